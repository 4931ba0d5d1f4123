// Package plot draws line charts as SVG without outside parts.
package plot

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Series is a named line, or with Dots a set of points.
type Series struct {
	Name string
	X, Y []float64
	Dots bool
}

// Chart is a chart of lines over common axes.
type Chart struct {
	Title, XLabel, YLabel string
	Series                []Series
	// Min and Max fix the axes when they differ; otherwise the data do.
	MinX, MaxX, MinY, MaxY float64
	Diagonal               bool // draws y = x
}

const (
	width, height            = 720.0, 340.0
	left, right, top, bottom = 56.0, 12.0, 30.0, 44.0
)

var colours = []string{"#2b6cb0", "#b5483a", "#2a7f62", "#8a5bb5", "#b7862c"}

// SVG draws the chart. Points that are no numbers are left out.
func (c Chart) SVG() string {
	x0, x1, y0, y1 := c.MinX, c.MaxX, c.MinY, c.MaxY
	if x0 == x1 {
		x0, x1 = bounds(c.Series, func(s Series) []float64 { return s.X })
	}
	if y0 == y1 {
		y0, y1 = bounds(c.Series, func(s Series) []float64 { return s.Y })
	}
	px := func(x float64) float64 { return left + (x-x0)/(x1-x0)*(width-left-right) }
	py := func(y float64) float64 { return height - bottom - (y-y0)/(y1-y0)*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="system-ui,sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`, width, height)
	fmt.Fprintf(&b, `<text x="%g" y="18" font-size="14">%s</text>`, left, html.EscapeString(c.Title))
	for i := range 6 {
		x, y := x0+(x1-x0)*float64(i)/5, y0+(y1-y0)*float64(i)/5
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#e2e2e2"/><text x="%.1f" y="%.1f" text-anchor="end" fill="#555">%.3g</text>`, left, py(y), width-right, left-6, py(y)+4, y)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#555">%.4g</text>`, px(x), height-bottom+16, x)
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#555">%s</text>`, (left+width-right)/2, height-8, html.EscapeString(c.XLabel))
	fmt.Fprintf(&b, `<text transform="translate(14 %.1f) rotate(-90)" text-anchor="middle" fill="#555">%s</text>`, (top+height-bottom)/2, html.EscapeString(c.YLabel))
	if c.Diagonal {
		lo, hi := max(x0, y0), min(x1, y1)
		fmt.Fprintf(&b, `<path d="M%.1f %.1fL%.1f %.1f" stroke="#999" stroke-dasharray="4 3"/>`, px(lo), py(lo), px(hi), py(hi))
	}
	for i, s := range c.Series {
		colour := colours[i%len(colours)]
		var path strings.Builder
		for k := range s.X {
			x, y := px(s.X[k]), py(s.Y[k])
			if math.IsNaN(x+y) || math.IsInf(x+y, 0) {
				continue
			}
			if s.Dots {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%.4g, %.4g</title></circle>`, x, y, colour, s.X[k], s.Y[k])
				continue
			}
			fmt.Fprintf(&path, "%c%.1f %.1f", "LM"[btoi(path.Len() == 0)], x, y)
		}
		if path.Len() > 0 {
			fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, path.String(), colour)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end" fill="%s">%s</text>`, width-right, top+float64(14*i), colour, html.EscapeString(s.Name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// bounds are the least and the largest number, apart.
func bounds(ss []Series, of func(Series) []float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, s := range ss {
		for _, v := range of(s) {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	if lo > hi {
		return 0, 1
	}
	if lo == hi {
		return lo - 0.5, hi + 0.5
	}
	return lo, hi
}
