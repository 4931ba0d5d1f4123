package plot

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"
)

func TestSVGIsWellFormed(t *testing.T) {
	for name, c := range map[string]Chart{
		"lines": {Title: "a <b> & c", XLabel: "x", YLabel: "y", Series: []Series{{Name: "s<", X: []float64{1, 2, 3}, Y: []float64{3, math.NaN(), 5}}, {Name: "dots", X: []float64{1}, Y: []float64{4}, Dots: true}}},
		"empty": {}, "constant": {Series: []Series{{X: []float64{1, 1}, Y: []float64{2, 2}}}}, "infinite": {Series: []Series{{X: []float64{1, 2}, Y: []float64{math.Inf(1), 2}}}},
		"diagonal": {MaxX: 1, MaxY: 1, Diagonal: true, Series: []Series{{X: []float64{0.5}, Y: []float64{0.4}, Dots: true}}},
	} {
		svg := c.SVG()
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v in %s", name, err, svg)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s holds a number that is none", name)
		}
	}
}
