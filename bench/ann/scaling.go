package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"rag2/hnsw"
)

// scalePoint is the work of a query at recall 0.95 for one number of rows.
type scalePoint struct {
	rows         int
	ef           int
	nodes, codes float64
	vectors      float64
	micros       float64 // CPU time
}

// scaling measures cost against the number of rows at four sizes, fits a power law
// on three, predicts the fourth and extrapolates. What is fitted is the number of
// codes scored, which other load on the machine does not change.
func scaling(ctx context.Context, c config, file string, qs [][]float32, codes hnsw.Codes) (string, error) {
	rows, err := load(file)
	if err != nil {
		return "", err
	}
	if len(qs) > 500 {
		qs = qs[:500]
	}
	var pts []scalePoint
	for _, part := range []int{8, 4, 2, 1} {
		n := len(rows) / part
		p := filepath.Join(c.work, fmt.Sprintf("scale-%d.npy", n))
		if err := save(p, rows[:n], "<f2"); err != nil {
			return "", err
		}
		if err := hnsw.Build(ctx, p, p+".hnsw", hnsw.BuildOptions{Codes: codes}); err != nil {
			return "", err
		}
		x, err := hnsw.OpenWith(p+".hnsw", hnsw.OpenOptions{Resident: true})
		if err != nil {
			return "", err
		}
		t, err := x.Tune(ctx, qs, hnsw.TuneOptions{Recall: 0.95})
		if err != nil {
			x.Close()
			return "", err
		}
		o := hnsw.SearchOptions{Ef: t.Settings.Ef, Rescore: t.Settings.Rescore}
		best := math.Inf(1)
		var st hnsw.Stats
		for range 5 {
			start := cpuSeconds()
			if _, st, err = x.SearchBatch(ctx, qs, 10, o, 1); err != nil {
				x.Close()
				return "", err
			}
			best = min(best, cpuSeconds()-start)
		}
		m := float64(len(qs))
		pts = append(pts, scalePoint{n, o.Ef, float64(st.NodeReads) / m, float64(st.CodeReads) / m, float64(st.VectorReads) / m, best / m * 1e6})
		fmt.Fprintf(os.Stderr, "scaling: %+v\n", pts[len(pts)-1])
		if err := x.Close(); err != nil {
			return "", err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Growth with the number of rows (%v codes, recall@10 0.95)\n\n| rows | ef | lists | codes | vectors | µs of CPU |\n|---:|---:|---:|---:|---:|---:|\n", codes)
	for _, p := range pts {
		fmt.Fprintf(&b, "| %d | %d | %.0f | %.0f | %.0f | %.0f |\n", p.rows, p.ef, p.nodes, p.codes, p.vectors, p.micros)
	}
	a3, b3, _ := fit(pts[:3])
	last := pts[3]
	guess := math.Exp(a3) * math.Pow(float64(last.rows), b3)
	fmt.Fprintf(&b, "\nFitted on the first three, codes ∝ N^%.2f; *predicted* for %d rows: %.0f, measured %.0f (%+.0f %%).\n", b3, last.rows, guess, last.codes, 100*(guess/last.codes-1))
	a4, b4, width := fit(pts)
	const pubmed = 69_743_442
	mid := a4 + b4*math.Log(pubmed)
	w := width(math.Log(pubmed))
	fmt.Fprintf(&b, "Fitted on all four, N^%.2f; *predicted* for %d rows in one segment: %.0f codes a query (95 %% interval %.0f to %.0f).\n",
		b4, pubmed, math.Exp(mid), math.Exp(mid-w), math.Exp(mid+w))
	return b.String(), nil
}

// fit is the least-squares line of log codes over log rows, with the half width of
// its 95 % prediction interval.
func fit(pts []scalePoint) (a, b float64, width func(x float64) float64) {
	n := float64(len(pts))
	var mx, my float64
	for _, p := range pts {
		mx += math.Log(float64(p.rows)) / n
		my += math.Log(p.codes) / n
	}
	var sxx, sxy float64
	for _, p := range pts {
		x, y := math.Log(float64(p.rows))-mx, math.Log(p.codes)-my
		sxx += x * x
		sxy += x * y
	}
	b = sxy / sxx
	a = my - b*mx
	var rss float64
	for _, p := range pts {
		d := math.Log(p.codes) - a - b*math.Log(float64(p.rows))
		rss += d * d
	}
	t := map[int]float64{1: 12.706, 2: 4.303, 3: 3.182}[len(pts)-2]
	return a, b, func(x float64) float64 {
		return t * math.Sqrt(rss/(n-2)*(1+1/n+(x-mx)*(x-mx)/sxx))
	}
}
