package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"rag2/hnsw"
	"rag2/internal/npy"
	"rag2/tensor/simd"

	"golang.org/x/sync/errgroup"
)

type config struct {
	data, work, out, python, script string
	rows, rounds                    int
	million, builds                 bool
	budget                          time.Duration
	efs                             []int
	start                           time.Time
}

func main() {
	var c config
	flag.StringVar(&c.data, "data", "../shared/data/vectors", "folder of passages.npy, questions.npy and explanations.npy")
	flag.StringVar(&c.work, "work", filepath.Join(os.TempDir(), "rag2-ann"), "folder for indexes, synthetic vectors and the results of finished steps")
	flag.StringVar(&c.out, "out", "bench", "folder of the report")
	flag.StringVar(&c.python, "python", "python3", "Python with the peers")
	flag.StringVar(&c.script, "peers", "bench/ann/peers.py", "the peers' script")
	flag.IntVar(&c.rows, "synthetic", 100_000, "rows of the synthetic 768-d set; growth is measured from a quarter to twice as many")
	flag.IntVar(&c.rounds, "rounds", 3, "rounds; the best counts")
	flag.BoolVar(&c.million, "million", false, "the run of a million rows instead: ours and hnswlib, and on disk")
	flag.BoolVar(&c.builds, "builds", false, "only make the vectors and build the indexes, which may run in the background; a call without it measures")
	flag.DurationVar(&c.budget, "for", 0, "begin no step after this time and leave with exit code 3; call again to go on (default no limit)")
	flag.Parse()
	c.efs = []int{10, 20, 40, 60, 80, 120, 200, 300}
	c.start = time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	limited, err := coldMain(ctx)
	if !limited {
		if err = os.MkdirAll(c.work, 0o755); err == nil {
			if c.million {
				err = million(ctx, c)
			} else {
				err = run(ctx, c)
			}
		}
	}
	if errors.Is(err, errLater) {
		fmt.Fprintln(os.Stderr, "ann:", err)
		os.Exit(3)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ann:", err)
		os.Exit(1)
	}
}

var errLater = errors.New("time is up; call again for the next step")

// step runs f unless an earlier call finished it: results are kept in the work
// folder, one file each.
func step[T any](c config, name string, f func() (T, error)) (T, error) {
	var v T
	path := filepath.Join(c.work, "step-"+strings.ReplaceAll(name, " ", "-")+".json")
	if b, err := os.ReadFile(path); err == nil {
		return v, json.Unmarshal(b, &v)
	}
	if c.budget > 0 && time.Since(c.start) > c.budget {
		return v, errLater
	}
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format("15:04:05"), name)
	v, err := f()
	if err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	return v, os.WriteFile(path, b, 0o644)
}

// dataset is vectors in float16, the same values in float32, and sets of queries.
type dataset struct {
	name     string
	f16, f32 string
	queries  []querySet
	peers    []string
	notes    []string
}

type querySet struct{ name, path string }

func run(ctx context.Context, c config) error {
	shared := dataset{name: "shared", f16: filepath.Join(c.data, "passages.npy"), f32: filepath.Join(c.work, "passages-f32.npy"), peers: allPeers,
		queries: []querySet{{"questions", filepath.Join(c.data, "questions.npy")}, {"explanations", filepath.Join(c.data, "explanations.npy")}}}
	if err := widen(shared.f16, shared.f32); err != nil {
		return err
	}
	vectors, queries, err := makeSet(ctx, c, 2*c.rows)
	if err != nil {
		return err
	}
	half := setPath(c, c.rows)
	if err := head(vectors, half, c.rows); err != nil {
		return err
	}
	synthetic := dataset{name: "synthetic", f16: half, f32: strings.TrimSuffix(half, ".npy") + "-f32.npy", peers: syntheticPeers,
		queries: []querySet{{"questions", queries}}}
	if err := widen(synthetic.f16, synthetic.f32); err != nil {
		return err
	}
	note, err := step(c, "likeness", func() (string, error) { return likeness(ctx, c, shared, synthetic) })
	if err != nil {
		return err
	}
	synthetic.notes = append(synthetic.notes, note)
	var rs []result
	for _, d := range []dataset{shared, synthetic} {
		if err := buildAll(ctx, c, d); err != nil {
			return err
		}
		for _, q := range d.queries {
			r, err := step(c, "search "+d.name+" "+q.name, func() (result, error) { return measure(ctx, c, d, q) })
			if err != nil {
				return err
			}
			rs = append(rs, r)
		}
	}
	growth, err := scaling(ctx, c, vectors, queries)
	if err != nil {
		return err
	}
	disk, err := step(c, "cold", func() (string, error) { return cold(ctx, c, indexPath(c, "synthetic"), queries) })
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	return writeReport(c.out, "ann", "make bench-ann", rs, growth+disk, simd.Level.String(), c.rounds)
}

// widen writes float16 vectors as float32, unless that is done.
func widen(from, to string) error {
	if exists(to) {
		return nil
	}
	rows, err := load(from)
	if err != nil {
		return err
	}
	return save(to, rows, "<f4")
}

// head writes the first n rows of a file of float16, unless that is done.
func head(from, to string, n int) error {
	if exists(to) {
		return nil
	}
	a, err := npy.Open(from)
	if err != nil {
		return err
	}
	defer a.Close()
	w, err := npy.NewWriter(to, a.Cols(), "<f2")
	if err != nil {
		return err
	}
	defer w.Abort()
	for i := range n {
		if err := w.WriteRow(a.Row32(i, nil)); err != nil {
			return err
		}
	}
	return w.Commit()
}

// likeness compares the synthetic set with the real one on as many rows: by local
// intrinsic dimension, and by the breadth that hnswlib needs for recall 0.95.
func likeness(ctx context.Context, c config, real, synthetic dataset) (string, error) {
	a, err := load(real.f16)
	if err != nil {
		return "", err
	}
	p := filepath.Join(c.work, "synthetic-likeness.npy")
	if err := head(synthetic.f16, p, len(a)); err != nil {
		return "", err
	}
	b, err := load(p)
	if err != nil {
		return "", err
	}
	da, err := intrinsicDimension(ctx, a, 20, c.work)
	if err != nil {
		return "", err
	}
	db, err := intrinsicDimension(ctx, b, 20, c.work)
	if err != nil {
		return "", err
	}
	note := fmt.Sprintf("at %d rows, local intrinsic dimension %.1f (real set %.1f)", len(a), db, da)
	fmt.Fprintln(os.Stderr, note)
	ok := within(da, db)
	var efs [2]float64
	for i, d := range []struct{ vectors, queries string }{{real.f16, real.queries[0].path}, {p, synthetic.queries[0].path}} {
		truth, err := exactHits(ctx, d.vectors, d.queries)
		if err != nil {
			return "", err
		}
		s, err := startPeers(ctx, c, d.vectors, d.queries, truth)
		if err != nil {
			return "", err
		}
		efs[i], err = s.breadth("hnswlib", filepath.Join(c.work, fmt.Sprintf("likeness-%d.bin", i)))
		s.close()
		if err != nil {
			return "", err
		}
	}
	note += fmt.Sprintf("; hnswlib's ef for recall 0.95: %.0f (real set %.0f)", efs[1], efs[0])
	fmt.Fprintln(os.Stderr, note)
	if !ok || !within(efs[0], efs[1]) {
		return "", fmt.Errorf("synthetic set refused, not within a factor of 1.5: %s", note)
	}
	return note + "; both within a factor of 1.5", nil
}

func within(a, b float64) bool { return a <= 1.5*b && b <= 1.5*a }

func exactHits(ctx context.Context, vectors, queries string) ([][]hnsw.Hit, error) {
	qs, err := load(queries)
	if err != nil {
		return nil, err
	}
	a, err := npy.Open(vectors)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	out := make([][]hnsw.Hit, len(qs))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, q := range qs {
		g.Go(func() (err error) {
			out[i], err = hnsw.Exact(ctx, a, q, 10, nil)
			return err
		})
	}
	return out, g.Wait()
}

// variants are our contestants. Those that are recoded share the graph that was built
// with 4-bit codes, which is the one they would build themselves.
var variants = []struct {
	name    string
	f32     bool
	recoded bool
	codes   hnsw.Codes
}{{"ours f32", true, false, hnsw.NoCodes}, {"ours 4bit", false, false, hnsw.FourBit}, {"ours f16", false, true, hnsw.NoCodes},
	{"ours int8", false, true, hnsw.Int8}, {"ours 1bit", false, true, hnsw.OneBit}, {"ours pca", false, true, hnsw.Principal}}

// usearch-i8 takes vectors of unit length for granted; that is shown on one set.
var (
	allPeers       = []string{"hnswlib", "faiss", "usearch", "usearch-i8", "blas"}
	syntheticPeers = []string{"hnswlib", "faiss", "usearch", "blas"}
)

func indexPath(c config, name string) string {
	return filepath.Join(c.work, strings.ReplaceAll(name, " ", "-")+".hnsw")
}

// buildAll builds every contestant of a set, each a step.
func buildAll(ctx context.Context, c config, d dataset) error {
	for _, v := range variants {
		if v.f32 && d.f32 == "" {
			continue
		}
		_, err := step(c, "build "+d.name+" "+v.name, func() (contestant, error) {
			k := contestant{Name: v.name, Ours: true, Codes: v.codes != hnsw.NoCodes}
			g := indexPath(c, d.name+" "+v.name)
			if v.recoded {
				return k, hnsw.Recode(ctx, indexPath(c, d.name+" ours 4bit"), g, v.codes)
			}
			file := d.f16
			if v.f32 {
				file = d.f32
			}
			start, cpu := time.Now(), cpuSeconds()
			err := hnsw.Build(ctx, file, g, hnsw.BuildOptions{Codes: v.codes, OnCheckpoint: func(took time.Duration) {
				k.Checkpoints, k.CheckpointSeconds = k.Checkpoints+1, k.CheckpointSeconds+took.Seconds()
			}})
			k.Build, k.CPU = time.Since(start).Seconds(), cpuSeconds()-cpu
			return k, err
		})
		if err != nil {
			return err
		}
	}
	for _, n := range d.peers {
		_, err := step(c, "build "+d.name+" "+n, func() (contestant, error) {
			k := contestant{Name: n}
			p, err := startPeers(ctx, c, d.f16, d.queries[0].path, make([][]hnsw.Hit, 1))
			if err != nil {
				return k, err
			}
			defer p.close()
			var a answer
			if err := p.ask(&a, "build %s %s", n, peerPath(c, d, n)); err != nil {
				return k, err
			}
			k.Build, k.CPU, k.Error = a.Seconds, a.CPU, a.Error
			return k, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func peerPath(c config, d dataset, peer string) string {
	return filepath.Join(c.work, d.name+"-"+peer+".bin")
}

// runner searches all queries once on one thread.
type runner func(ef int) (point, error)

// measure lets all contestants search one set of queries, in turns.
func measure(ctx context.Context, c config, d dataset, q querySet) (result, error) {
	r := result{Name: d.name + " " + q.name, Notes: d.notes}
	qs, err := load(q.path)
	if err != nil {
		return r, err
	}
	r.Queries = len(qs)
	built := func(name string) (contestant, error) {
		return step(c, "build "+d.name+" "+name, func() (contestant, error) { return contestant{}, errors.New("not built") })
	}
	var runs []runner
	var truth [][]hnsw.Hit
	for _, v := range variants {
		if v.f32 && d.f32 == "" {
			continue
		}
		k, err := built(v.name)
		if err != nil {
			return r, err
		}
		x, err := hnsw.OpenWith(indexPath(c, d.name+" "+v.name), hnsw.OpenOptions{Resident: true})
		if err != nil {
			return r, err
		}
		defer x.Close()
		in := x.Info()
		r.Rows, r.Dim = in.N, in.Dim
		if k.Bytes, k.CodeBytes = in.GraphBytes+in.CodeBytes, in.CodeBytes; in.CodeBytes == 0 {
			k.Bytes += in.VectorBytes
		}
		if truth == nil {
			if truth, err = x.Exact(ctx, qs, 10, 2); err != nil {
				return r, err
			}
			if !c.million {
				e := exactContestant(ctx, x, qs)
				r.Contestants = append(r.Contestants, e.contestant)
				runs = append(runs, e.run)
			}
		}
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
	p, err := startPeers(ctx, c, d.f16, q.path, truth)
	if err != nil {
		return r, err
	}
	defer p.close()
	for _, n := range d.peers {
		k, err := built(n)
		if err != nil {
			return r, err
		}
		if k.Error == "" {
			var a answer
			if err := p.ask(&a, "load %s %s", n, peerPath(c, d, n)); err != nil {
				return r, err
			}
			k.Error = a.Error
		}
		r.Contestants = append(r.Contestants, k)
		runs = append(runs, func(ef int) (point, error) {
			var a answer
			err := p.ask(&a, "run %s %d", n, ef)
			if err == nil && a.Error != "" {
				err = fmt.Errorf("%s: %s", n, a.Error)
			}
			return point{ef, a.Recall, a.QPS}, err
		})
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
					return r, err
				}
				if round == 0 {
					k.Curve = append(k.Curve, pt)
				} else if pt.QPS > k.Curve[j].QPS {
					k.Curve[j] = pt
				}
			}
			fmt.Fprintf(os.Stderr, "%s, round %d: %s %v\n", r.Name, round+1, k.Name, k.Curve)
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

// breadth builds an index and is the ef, between those tried, that reaches recall 0.95.
func (p *peers) breadth(name, path string) (float64, error) {
	var a answer
	if err := p.ask(&a, "build %s %s", name, path); err != nil || a.Error != "" {
		return 0, errors.Join(err, errors.New(a.Error))
	}
	lastEf, last := 0.0, 0.0
	for ef := 10; ef <= 640; ef += max(5, ef/10) {
		var a answer
		if err := p.ask(&a, "run %s %d", name, ef); err != nil || a.Error != "" {
			return 0, errors.Join(err, errors.New(a.Error))
		}
		if a.Recall >= 0.95 {
			return lastEf + (float64(ef)-lastEf)*(0.95-last)/(a.Recall-last), nil
		}
		lastEf, last = float64(ef), a.Recall
	}
	return 0, fmt.Errorf("%s does not reach recall 0.95", name)
}

func (p *peers) close() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// saveTruth writes the right rows as float32, which holds them exactly up to 2^24.
func saveTruth(path string, truth [][]hnsw.Hit) error {
	rows := make([][]float32, len(truth))
	for i, t := range truth {
		for _, h := range t {
			if h.Row >= 1<<24 {
				return fmt.Errorf("row %d is too large for %s", h.Row, path)
			}
			rows[i] = append(rows[i], float32(h.Row))
		}
		if len(t) == 0 { // only builds
			rows[i] = []float32{0}
		}
	}
	return save(path, rows, "<f4")
}
