package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"
)

// point is one setting of a contestant.
type point struct {
	Ef     int     `json:"ef"`
	Recall float64 `json:"recall"`
	QPS    float64 `json:"qps"`
}

type curve []point

// at is the queries a second at a recall, between the two measured points around it
// on a logarithmic scale; 0 when the curve does not reach it.
func (c curve) at(recall float64) float64 {
	s := append(curve(nil), c...)
	sort.Slice(s, func(i, j int) bool { return s[i].Recall < s[j].Recall })
	best := 0.0
	for i, p := range s {
		if p.Recall >= recall {
			best = max(best, p.QPS)
			if i > 0 && s[i-1].Recall < recall {
				a, b := s[i-1], p
				t := (recall - a.Recall) / (b.Recall - a.Recall)
				best = max(best, math.Exp(math.Log(a.QPS)*(1-t)+math.Log(b.QPS)*t))
			}
		}
	}
	return best
}

// contestant is an index with its results.
type contestant struct {
	Name              string  `json:"name"`
	Ours              bool    `json:"ours"`
	Codes             bool    `json:"codes"`
	Build             float64 `json:"build_seconds"`
	CPU               float64 `json:"build_cpu_seconds"`
	Bytes             int     `json:"bytes_resident,omitempty"`
	CodeBytes         int     `json:"bytes_codes,omitempty"`
	Checkpoints       int     `json:"checkpoints,omitempty"`
	CheckpointSeconds float64 `json:"checkpoint_seconds,omitempty"`
	Curve             curve   `json:"curve"`
	Error             string  `json:"error,omitempty"`
}

// result is one data set.
type result struct {
	Name        string       `json:"name"`
	Rows, Dim   int          //
	Queries     int          `json:"queries"`
	Notes       []string     `json:"notes"`
	Contestants []contestant `json:"contestants"`
}

func (r *result) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s: %d × %d, %d queries\n\n", r.Name, r.Rows, r.Dim, r.Queries)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	best := map[float64]float64{}
	for _, c := range r.Contestants {
		if !c.Ours && c.Name != "usearch-i8" && c.Name != "blas" {
			for _, t := range []float64{0.95, 0.99} {
				best[t] = max(best[t], c.Curve.at(t))
			}
		}
	}
	b.WriteString("\n| index | build s | build CPU s | QPS at 0.95 | × fastest f32 peer | QPS at 0.99 | × | resident MiB | codes / f32 vectors | resident / f32 vectors |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range r.Contestants {
		if c.Error != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", c.Name, c.Error)
			continue
		}
		if c.Build > 0 {
			fmt.Fprintf(&b, "| %s | %.1f | %.1f ", c.Name, c.Build, c.CPU)
		} else {
			fmt.Fprintf(&b, "| %s | | ", c.Name)
		}
		for _, t := range []float64{0.95, 0.99} {
			q := c.Curve.at(t)
			if q == 0 {
				fmt.Fprintf(&b, "| – | – ")
				continue
			}
			x := "–"
			if best[t] > 0 {
				x = fmt.Sprintf("%.2f", q/best[t])
			}
			fmt.Fprintf(&b, "| %.0f | %s ", q, x)
		}
		if c.Bytes > 0 {
			f32, codes := float64(4*r.Rows*r.Dim), ""
			if c.CodeBytes > 0 {
				codes = fmt.Sprintf("%.3f", float64(c.CodeBytes)/f32)
			}
			fmt.Fprintf(&b, "| %.1f | %s | %.3f |\n", float64(c.Bytes)/(1<<20), codes, float64(c.Bytes)/f32)
		} else {
			b.WriteString("| | | |\n")
		}
	}
	b.WriteString("\nrecall@10 / QPS by ef:\n\n| index |")
	var efs []int
	for _, c := range r.Contestants {
		if len(c.Curve) > len(efs) {
			efs = efs[:0]
			for _, p := range c.Curve {
				efs = append(efs, p.Ef)
			}
		}
	}
	for _, e := range efs {
		fmt.Fprintf(&b, " %d |", e)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(efs)) + "\n")
	for _, c := range r.Contestants {
		if c.Error != "" {
			continue
		}
		fmt.Fprintf(&b, "| %s |", c.Name)
		for _, p := range c.Curve {
			fmt.Fprintf(&b, " %.4f / %.0f |", p.Recall, p.QPS)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// svg draws recall (on a scale of log 1/(1-recall)) against QPS (logarithmic).
func (r *result) svg() string {
	const w, h, left, bottom, top, right = 760, 480, 70, 50, 40, 150
	lo, hi := math.Inf(1), 0.0
	for _, c := range r.Contestants {
		for _, p := range c.Curve {
			if p.Recall >= 0.8 {
				lo, hi = min(lo, p.QPS), max(hi, p.QPS)
			}
		}
	}
	if hi == 0 {
		return ""
	}
	lo, hi = math.Log10(lo)-0.05, math.Log10(hi)+0.05
	sx := func(rec float64) float64 {
		f := func(v float64) float64 { return -math.Log10(max(1-v, 1e-4)) }
		return left + (w-left-right)*(f(rec)-f(0.8))/(f(0.999)-f(0.8))
	}
	sy := func(q float64) float64 { return h - bottom - (h-bottom-top)*(math.Log10(q)-lo)/(hi-lo) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`, w, h)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="22" font-size="15">%s, %d × %d, one thread</text>`, w, h, left, r.Name, r.Rows, r.Dim)
	for _, t := range []float64{0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999} {
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%g</text>`, sx(t), sx(t), top, h-bottom, sx(t), h-bottom+18, t)
	}
	for e := math.Floor(lo); e <= hi; e++ {
		for _, m := range []float64{1, 2, 5} {
			q := m * math.Pow(10, e)
			if l := math.Log10(q); l >= lo && l <= hi {
				fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`, left, w-right, sy(q), sy(q), left-6, sy(q)+4, q)
			}
		}
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">recall@10</text><text x="18" y="%d" transform="rotate(-90 18 %d)" text-anchor="middle">queries per second</text>`, (left+w-right)/2, h-12, h/2, h/2)
	colours := []string{"#1b6ca8", "#c0392b", "#1e8449", "#8e44ad", "#d68910", "#117a65", "#7f8c8d", "#2c3e50", "#e84393", "#b7950b"}
	for i, c := range r.Contestants {
		col, dash := colours[i%len(colours)], ""
		if !c.Ours {
			dash = ` stroke-dasharray="5 3"`
		}
		var pts []string
		for _, p := range c.Curve {
			if p.Recall >= 0.8 {
				pts = append(pts, fmt.Sprintf("%.1f,%.1f", sx(min(p.Recall, 0.999)), sy(p.QPS)))
			}
		}
		y := top + 12 + 18*i
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`, strings.Join(pts, " "), col, dash)
		for _, p := range pts {
			xy := strings.Split(p, ",")
			fmt.Fprintf(&b, `<circle cx="%s" cy="%s" r="2.5" fill="%s"/>`, xy[0], xy[1], col)
		}
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="2"%s/><text x="%d" y="%d">%s</text>`, w-right+10, w-right+34, y, y, col, dash, w-right+40, y+4, c.Name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// cpuName is the processor's name where the system tells it.
func cpuName() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for _, l := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// writeReport puts NAME.md and a plot for each data set into dir.
func writeReport(dir, file, command string, rs []result, growth, isa string, rounds int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Nearest neighbours: ours and peers\n\nMeasured %s on %s, %d CPUs, kernels %s, Go %s; `%s`. One thread a search, QPS by CPU time (other load on the machine does not count), best of %d rounds in turn, M 16, efConstruction 200; builds on all CPUs (no time: the graph of 4bit with other codes). %s\n\n",
		time.Now().UTC().Format("2006-01-02"), cpuName(), runtime.NumCPU(), isa, strings.TrimPrefix(runtime.Version(), "go"), command, rounds, checkpointNote(rs))
	for _, r := range rs {
		name := file + "-" + strings.ReplaceAll(strings.ToLower(r.Name), " ", "-") + ".svg"
		b.WriteString(r.table())
		fmt.Fprintf(&b, "\n![%s](%s)\n\n", r.Name, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(r.svg()), 0o644); err != nil {
			return err
		}
	}
	b.WriteString(growth)
	return os.WriteFile(filepath.Join(dir, file+".md"), []byte(b.String()), 0o644)
}

// checkpointNote says what checkpoints cost the longest build.
func checkpointNote(rs []result) string {
	var k contestant
	for _, r := range rs {
		for _, c := range r.Contestants {
			if c.Checkpoints > 0 && c.Build > k.Build {
				k = c
			}
		}
	}
	if k.Checkpoints == 0 {
		return ""
	}
	return fmt.Sprintf("%d checkpoints took %.1f %% of the longest build of ours.", k.Checkpoints, 100*k.CheckpointSeconds/k.Build)
}
