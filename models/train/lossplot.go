package train

import (
	"path/filepath"

	"rag2/internal/atomicfile"
	"rag2/internal/plot"
)

// PlotFile is the picture of a run's log, in the run's directory.
const PlotFile = "loss.svg"

// Plot draws the log of the run in dir: the loss, its running mean, and what was found on
// held-out data.
func Plot(dir, title string) error {
	log, err := ReadLog(filepath.Join(dir, LogFile))
	if err != nil {
		return err
	}
	loss, mean, dev := plot.Series{Name: "loss"}, plot.Series{Name: "running mean"}, plot.Series{Name: "held-out score", Dots: true}
	m := 0.0
	for i, e := range log {
		if m = 0.95*m + 0.05*e.Loss; i == 0 {
			m = e.Loss
		}
		x := float64(e.Step)
		loss.X, loss.Y = append(loss.X, x), append(loss.Y, e.Loss)
		mean.X, mean.Y = append(mean.X, x), append(mean.Y, m)
		if e.Dev != nil {
			dev.X, dev.Y = append(dev.X, x), append(dev.Y, e.Dev.Value)
		}
	}
	series := []plot.Series{loss, mean}
	if len(dev.X) > 0 {
		series = append(series, dev)
	}
	c := plot.Chart{Title: title, XLabel: "step", YLabel: "loss", Series: series}
	return atomicfile.WriteFile(filepath.Join(dir, PlotFile), []byte(c.SVG()))
}
