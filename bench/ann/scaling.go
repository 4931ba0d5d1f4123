package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"rag2/hnsw"
)

// scalePoint is the work of a query at recall 0.95 for one number of rows, and of the
// build.
type scalePoint struct {
	Rows         int
	Ef           int
	Nodes, Codes float64
	Vectors      float64
	Micros       float64 // CPU time
	Build        float64 // seconds of CPU
}

// scaling measures cost against the number of rows at a quarter, half, all and twice
// c.rows, fits a power law on three, predicts the fourth and extrapolates. What is
// fitted is the number of codes scored, which other load on the machine does not
// change.
func scaling(ctx context.Context, c config, file, queries string) (string, error) {
	qs, err := load(queries)
	if err != nil {
		return "", err
	}
	var pts []scalePoint
	for _, n := range []int{c.rows / 4, c.rows / 2, c.rows, 2 * c.rows} {
		p, err := step(c, fmt.Sprintf("growth %d", n), func() (scalePoint, error) { return scale(ctx, c, file, qs, n) })
		if err != nil {
			return "", err
		}
		pts = append(pts, p)
	}
	var b strings.Builder
	b.WriteString("## Growth with the number of rows (4bit codes, recall@10 0.95)\n\n| rows | ef | lists | codes | vectors | µs of CPU | build, s of CPU |\n|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, p := range pts {
		fmt.Fprintf(&b, "| %d | %d | %.0f | %.0f | %.0f | %.0f | %.1f |\n", p.Rows, p.Ef, p.Nodes, p.Codes, p.Vectors, p.Micros, p.Build)
	}
	a3, b3, _ := fit(pts[:3])
	last := pts[3]
	guess := math.Exp(a3) * math.Pow(float64(last.Rows), b3)
	fmt.Fprintf(&b, "\nFitted on the first three, codes ∝ N^%.2f; *predicted* for %d rows: %.0f, measured %.0f (%+.0f %%).\n", b3, last.Rows, guess, last.Codes, 100*(guess/last.Codes-1))
	a4, b4, width := fit(pts)
	const pubmed = 69_743_442
	mid := a4 + b4*math.Log(pubmed)
	w := width(math.Log(pubmed))
	fmt.Fprintf(&b, "Fitted on all four, N^%.2f; *predicted* for %d rows in one segment: %.0f codes a query (95 %% interval %.0f to %.0f).\n",
		b4, pubmed, math.Exp(mid), math.Exp(mid-w), math.Exp(mid+w))
	return b.String(), nil
}

// scale builds and measures the first n rows.
func scale(ctx context.Context, c config, file string, qs [][]float32, n int) (scalePoint, error) {
	var pt scalePoint
	p := filepath.Join(c.work, fmt.Sprintf("scale-%d.npy", n))
	if err := head(file, p, n); err != nil {
		return pt, err
	}
	cpu := cpuSeconds()
	if err := hnsw.Build(ctx, p, p+".hnsw", hnsw.BuildOptions{Codes: hnsw.FourBit}); err != nil {
		return pt, err
	}
	build := cpuSeconds() - cpu
	x, err := hnsw.OpenWith(p+".hnsw", hnsw.OpenOptions{Resident: true})
	if err != nil {
		return pt, err
	}
	defer x.Close()
	t, err := x.Tune(ctx, qs, hnsw.TuneOptions{Recall: 0.95})
	if err != nil {
		return pt, err
	}
	o := hnsw.SearchOptions{Ef: t.Settings.Ef, Rescore: t.Settings.Rescore}
	best := math.Inf(1)
	var st hnsw.Stats
	for range 5 {
		start := cpuSeconds()
		if _, st, err = x.SearchBatch(ctx, qs, 10, o, 1); err != nil {
			return pt, err
		}
		best = min(best, cpuSeconds()-start)
	}
	m := float64(len(qs))
	return scalePoint{n, o.Ef, float64(st.NodeReads) / m, float64(st.CodeReads) / m, float64(st.VectorReads) / m, best / m * 1e6, build}, nil
}

// fit is the least-squares line of log codes over log rows, with the half width of
// its 95 % prediction interval.
func fit(pts []scalePoint) (a, b float64, width func(x float64) float64) {
	n := float64(len(pts))
	var mx, my float64
	for _, p := range pts {
		mx += math.Log(float64(p.Rows)) / n
		my += math.Log(p.Codes) / n
	}
	var sxx, sxy float64
	for _, p := range pts {
		x, y := math.Log(float64(p.Rows))-mx, math.Log(p.Codes)-my
		sxx += x * x
		sxy += x * y
	}
	b = sxy / sxx
	a = my - b*mx
	var rss float64
	for _, p := range pts {
		d := math.Log(p.Codes) - a - b*math.Log(float64(p.Rows))
		rss += d * d
	}
	t := map[int]float64{1: 12.706, 2: 4.303, 3: 3.182}[len(pts)-2]
	return a, b, func(x float64) float64 {
		return t * math.Sqrt(rss/(n-2)*(1+1/n+(x-mx)*(x-mx)/sxx))
	}
}
