package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rag2/hnsw"
	"rag2/tensor/simd"
)

type config struct {
	data, work, out, python, script  string
	rows, rounds                     int
	only, skip                       string
	efs                              []int
	synthOnly, noScaling, growthOnly, million bool
}

func main() {
	var c config
	flag.StringVar(&c.data, "data", "../shared/data/vectors", "folder of passages.npy and questions.npy")
	flag.StringVar(&c.work, "work", filepath.Join(os.TempDir(), "rag2-ann"), "folder for indexes and synthetic vectors")
	flag.StringVar(&c.out, "out", "bench", "folder of the report")
	flag.StringVar(&c.python, "python", "python3", "Python with the peers")
	flag.StringVar(&c.script, "peers", "bench/ann/peers.py", "the peers' script")
	flag.IntVar(&c.rows, "synthetic", 100_000, "rows of the synthetic 768-d set, 0 for none")
	flag.IntVar(&c.rounds, "rounds", 3, "rounds; the best counts")
	flag.StringVar(&c.only, "only", "", "contestants, separated by commas; all by default")
	flag.StringVar(&c.skip, "skip-synthetic", "usearch,usearch-i8", "peers left out of the synthetic set, where they are slowest of all")
	flag.BoolVar(&c.synthOnly, "synthetic-only", false, "leave the real set out")
	flag.BoolVar(&c.noScaling, "no-scaling", false, "leave out growth with the number of rows, and cold data")
	flag.BoolVar(&c.growthOnly, "growth-only", false, "only growth and cold data, with the indexes of an earlier run")
	flag.BoolVar(&c.million, "million", false, "the run of a million rows")
	flag.Parse()
	c.efs = []int{10, 20, 40, 60, 80, 120, 200, 300}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	limited, err := coldMain(ctx)
	if c.million {
		err = million(ctx, c)
	} else if !limited {
		err = run(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ann:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config) error {
	if err := os.MkdirAll(c.work, 0o755); err != nil {
		return err
	}
	real, err := load(filepath.Join(c.data, "passages.npy"))
	if err != nil {
		return err
	}
	questions, err := load(filepath.Join(c.data, "questions.npy"))
	if err != nil {
		return err
	}
	// Everyone gets the same float32 file; the float16 original is a contestant of ours.
	f32 := filepath.Join(c.work, "passages-f32.npy")
	if err := save(f32, real, "<f4"); err != nil {
		return err
	}
	var rs []result
	if c.growthOnly {
		return finish(ctx, c, nil)
	}
	if c.synthOnly {
		r, err := synthetic(ctx, c, real, questions)
		if err != nil {
			return err
		}
		return finish(ctx, c, []result{*r})
	}
	r, err := measure(ctx, c, "shared questions", f32, filepath.Join(c.data, "passages.npy"), filepath.Join(c.data, "questions.npy"), "")
	if err != nil {
		return err
	}
	rs = append(rs, *r)
	if c.rows > 0 {
		r, err := synthetic(ctx, c, real, questions)
		if err != nil {
			return err
		}
		rs = append(rs, *r)
	}
	return finish(ctx, c, rs)
}

// finish measures growth on the synthetic set, when it was made, and writes all.
func finish(ctx context.Context, c config, rs []result) error {
	growth := ""
	if c.rows > 0 && !c.noScaling {
		qs, err := load(filepath.Join(c.work, fmt.Sprintf("synth-%d-queries.npy", c.rows)))
		if err != nil {
			return err
		}
		if growth, err = scaling(ctx, c, filepath.Join(c.work, fmt.Sprintf("synth-%d.npy", c.rows)), qs, hnsw.FourBit); err != nil {
			return err
		}
		more, err := cold(ctx, c, "synthetic", qs, filepath.Join(c.work, fmt.Sprintf("synth-%d-queries.npy", c.rows)))
		if err != nil {
			return err
		}
		growth += more
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	return writeReport(c.out, rs, growth, simd.Level.String(), c.rounds)
}

func synthetic(ctx context.Context, c config, real, questions [][]float32) (*result, error) {
	vectors, queries, err := makeSet(ctx, c, c.rows)
	if err != nil {
		return nil, err
	}
	rows, err := load(vectors)
	if err != nil {
		return nil, err
	}
	// Dimensions are compared at equal density: on as many rows as there are real ones.
	a, err := intrinsicDimension(ctx, real, 20, c.work)
	if err != nil {
		return nil, err
	}
	b, err := intrinsicDimension(ctx, rows[:min(len(rows), len(real))], 20, c.work)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("local intrinsic dimension %.1f, of the real set %.1f", b, a)
	fmt.Fprintln(os.Stderr, note)
	if b > 1.5*a || a > 1.5*b {
		return nil, fmt.Errorf("synthetic set refused: %s", note)
	}
	rows = nil
	half := filepath.Join(c.work, fmt.Sprintf("synth-%d-f16.npy", c.rows))
	if _, err := os.Stat(half); err != nil {
		r, err := load(vectors)
		if err != nil {
			return nil, err
		}
		if err := save(half, r, "<f2"); err != nil {
			return nil, err
		}
	}
	r, err := measure(ctx, c, "synthetic", vectors, half, queries, c.skip)
	if r != nil {
		r.Notes = append(r.Notes, note)
	}
	return r, err
}

// runner searches all queries once on one thread.
type runner func(ef int) (point, error)

func measure(ctx context.Context, c config, name, f32, f16, queries, skip string) (*result, error) {
	qs, err := load(queries)
	if err != nil {
		return nil, err
	}
	r := &result{Name: name, Queries: len(qs)}
	var runs []runner
	wanted := func(n string) bool { return c.only == "" || slices.Contains(strings.Split(c.only, ","), n) }
	type variant struct {
		name, file string
		o          hnsw.BuildOptions
	}
	var truth [][]hnsw.Hit
	for _, v := range []variant{
		{"ours f32", f32, hnsw.BuildOptions{}}, {"ours f16", f16, hnsw.BuildOptions{}}, {"ours int8", f16, hnsw.BuildOptions{Codes: hnsw.Int8}},
		{"ours 4bit", f16, hnsw.BuildOptions{Codes: hnsw.FourBit}}, {"ours 1bit", f16, hnsw.BuildOptions{Codes: hnsw.OneBit}},
	} {
		if !wanted(v.name) && truth != nil {
			continue
		}
		g := filepath.Join(c.work, strings.ReplaceAll(name+" "+v.name, " ", "-")+".hnsw")
		start, cpu := time.Now(), cpuSeconds()
		if err := hnsw.Build(ctx, v.file, g, v.o); err != nil {
			return nil, err
		}
		k := contestant{Name: v.name, Ours: true, Codes: v.o.Codes != hnsw.NoCodes, Build: time.Since(start).Seconds(), CPU: cpuSeconds() - cpu}
		x, err := hnsw.OpenWith(g, hnsw.OpenOptions{Resident: true})
		if err != nil {
			return nil, err
		}
		defer x.Close()
		in := x.Info()
		r.Rows, r.Dim = in.N, in.Dim
		if k.Bytes = in.GraphBytes + in.CodeBytes; in.CodeBytes == 0 {
			k.Bytes += in.VectorBytes
		}
		if truth == nil {
			if truth, err = x.Exact(ctx, qs, 10, 2); err != nil {
				return nil, err
			}
			e := exactContestant(ctx, x, qs)
			r.Contestants = append(r.Contestants, e.contestant)
			runs = append(runs, e.run)
		}
		fmt.Fprintf(os.Stderr, "%s: %s built in %.1f s (%.1f s of CPU)\n", name, v.name, k.Build, k.CPU)
		r.Contestants = append(r.Contestants, k)
		dst := make([]hnsw.Hit, 0, 10)
		runs = append(runs, func(ef int) (point, error) {
			got := make([][]hnsw.Hit, len(qs))
			store := make([]hnsw.Hit, 0, 10*len(qs))
			start := cpuSeconds()
			for i, q := range qs {
				h, _, err := x.SearchInto(ctx, dst[:0], q, 10, hnsw.SearchOptions{Ef: ef})
				if err != nil {
					return point{}, err
				}
				store = append(store, h...)
				got[i] = store[len(store)-len(h):]
			}
			s := cpuSeconds() - start
			return point{ef, overlap(got, truth), float64(len(qs)) / s}, nil
		})
	}
	p, err := startPeers(ctx, c, f32, queries, truth)
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("no peers: %v", err))
	} else {
		defer p.close()
		for _, n := range []string{"hnswlib", "faiss", "usearch", "usearch-i8", "blas"} {
			if !wanted(n) || slices.Contains(strings.Split(skip, ","), n) {
				continue
			}
			var a answer
			if err := p.ask(&a, "build %s", n); err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "%s: %s built in %.1f s (%.1f s of CPU) %s\n", name, n, a.Seconds, a.CPU, a.Error)
			r.Contestants = append(r.Contestants, contestant{Name: n, Build: a.Seconds, CPU: a.CPU, Error: a.Error})
			runs = append(runs, func(ef int) (point, error) {
				var a answer
				err := p.ask(&a, "run %s %d", n, ef)
				if err == nil && a.Error != "" {
					err = fmt.Errorf("%s: %s", n, a.Error)
				}
				return point{ef, a.Recall, a.QPS}, err
			})
		}
	}
	for round := range c.rounds {
		for i := range r.Contestants {
			k := &r.Contestants[i]
			if k.Error != "" {
				continue
			}
			for j, ef := range c.efs {
				if (k.Name == "blas" || k.Name == "ours exact") && j > 0 {
					break
				}
				pt, err := runs[i](ef)
				if err != nil {
					return nil, err
				}
				if round == 0 {
					k.Curve = append(k.Curve, pt)
				} else if pt.QPS > k.Curve[j].QPS {
					k.Curve[j] = pt
				}
			}
			fmt.Fprintf(os.Stderr, "%s, round %d: %s %v\n", name, round+1, k.Name, k.Curve)
		}
	}
	return r, nil
}

// overlap counts rows, as the peers do, without regard for ties.
func overlap(got, want [][]hnsw.Hit) float64 {
	n, all := 0, 0
	for i := range want {
		all += len(want[i])
		for _, w := range want[i] {
			if slices.ContainsFunc(got[i], func(h hnsw.Hit) bool { return h.Row == w.Row }) {
				n++
			}
		}
	}
	return float64(n) / float64(all)
}

type exactRun struct {
	contestant
	run runner
}

func exactContestant(ctx context.Context, x *hnsw.Index, qs [][]float32) exactRun {
	return exactRun{contestant{Name: "ours exact", Ours: true}, func(ef int) (point, error) {
		start := cpuSeconds()
		for i := 0; i < len(qs); i += 512 {
			if _, err := x.Exact(ctx, qs[i:min(i+512, len(qs))], 10, 1); err != nil {
				return point{}, err
			}
		}
		return point{ef, 1, float64(len(qs)) / (cpuSeconds() - start)}, nil
	}}
}

// peers is the Python process.
type peers struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

type answer struct {
	Seconds, CPU, QPS, Recall float64
	Error                     string
}

func startPeers(ctx context.Context, c config, vectors, queries string, truth [][]hnsw.Hit) (*peers, error) {
	t := filepath.Join(c.work, "truth.npy")
	if err := saveTruth(t, truth); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, c.python, c.script, vectors, queries, t)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &peers{cmd, in, bufio.NewReader(out)}, nil
}

func (p *peers) ask(a *answer, format string, args ...any) error {
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		return err
	}
	l, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	return json.Unmarshal(l, a)
}

func (p *peers) close() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// saveTruth writes the right rows as float32, which holds them exactly up to 2^24.
func saveTruth(path string, truth [][]hnsw.Hit) error {
	if len(truth) == 0 {
		return fmt.Errorf("no queries")
	}
	rows := make([][]float32, len(truth))
	for i, t := range truth {
		for _, h := range t {
			if h.Row >= 1<<24 {
				return fmt.Errorf("row %d is too large for %s", h.Row, path)
			}
			rows[i] = append(rows[i], float32(h.Row))
		}
	}
	return save(path, rows, "<f4")
}
