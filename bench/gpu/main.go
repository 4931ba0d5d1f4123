// Command gpu measures the models on an XLA engine and compares them with native: bench/gpu.sh
// writes the checkpoints (testdata/fullsize.py) and calls it.
//
//	gpu -engine xla:cuda -models DIR -check DIR -o gpu.json
//
// Numbers of a GPU and of anything else are kept apart: without a GPU the JSON says "proves: code
// path" and its GPU cells are empty.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"rag2/models/bert"
	"rag2/models/llama"
	"rag2/models/t5"
	"rag2/tensor"
	_ "rag2/tensor/native" // what is compared with

	"golang.org/x/sync/errgroup"
)

// Row is one figure. GPU is its value on a GPU, Here that on anything else.
type Row struct {
	What    string   `json:"what"`
	Unit    string   `json:"unit"`
	GPU     *float64 `json:"gpu"`
	Here    *float64 `json:"here,omitempty"`
	Percent *float64 `json:"percent_of_peak"` // of the GPU's bfloat16 peak, for decoding of its memory bandwidth
	Error   string   `json:"error,omitempty"`
}

// Check compares an engine with native on the same weights and inputs.
type Check struct {
	Model   string  `json:"model"`
	Engine  string  `json:"engine"`
	MaxDiff float64 `json:"max_abs_diff"`
	Cosine  float64 `json:"cosine"`
	OK      bool    `json:"ok"` // f32: within 1e-3 of the largest value; bf16: cosine ≥ 0.9995
	Error   string  `json:"error,omitempty"`
}

// Report is the file that is written.
type Report struct {
	Proves    string      `json:"proves"` // "speed" on a GPU, else "code path"
	Device    tensor.Info `json:"device"`
	Commit    string      `json:"commit"`
	Date      string      `json:"date"`
	Seconds   float64     `json:"seconds"`
	Checks    []Check     `json:"checks"`
	Rows      []Row       `json:"rows"`
	HighWater int64       `json:"memory_high_water_bytes"` // of the GPU; null is 0 where there is none
}

type bench struct {
	engine string
	models string // full shapes
	check  string // shapes that native runs too
	gpu    bool
	small  bool
	each   time.Duration
	peak   peak
	r      Report
}

// peak is what a chip's data sheet promises: dense bfloat16 FLOP/s and bytes/s.
type peak struct{ flops, bytes float64 }

// peaks by what the device's name contains, the first that fits.
var peaks = []struct {
	name string
	peak
}{{"H200", peak{989e12, 4.8e12}}, {"H100", peak{989e12, 3.35e12}}, {"A100", peak{312e12, 2.04e12}}, {"L40S", peak{362e12, 0.864e12}}, {"L4", peak{121e12, 0.3e12}}}

func main() {
	log.SetFlags(0)
	var b bench
	flag.StringVar(&b.engine, "engine", "xla:cuda", "engine")
	flag.StringVar(&b.models, "models", "", "checkpoints of full size")
	flag.StringVar(&b.check, "check", "", "checkpoints for the comparison with native")
	flag.BoolVar(&b.small, "small", false, "the checkpoints are small: short inputs too")
	flag.DurationVar(&b.each, "each", 4*time.Second, "time of one figure")
	out := flag.String("o", "gpu.json", "where to write")
	flag.Parse()
	if err := b.run(context.Background(), *out); err != nil {
		log.Fatal(err)
	}
}

func (b *bench) run(ctx context.Context, out string) error {
	start := time.Now()
	e, err := tensor.Open(b.engine, tensor.Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	b.gpu = strings.HasPrefix(b.engine, "xla:cuda")
	b.r = Report{Proves: "code path", Device: e.Info(), Date: start.UTC().Format(time.RFC3339)}
	b.r.Device.Plugin = filepath.Base(b.r.Device.Plugin)
	if b.gpu {
		b.r.Proves = "speed"
		for _, p := range peaks {
			if strings.Contains(b.r.Device.Device, p.name) {
				b.peak = p.peak
				break
			}
		}
	}
	if rev, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		b.r.Commit = strings.TrimSpace(string(rev))
	}
	ctx, stop := context.WithCancel(ctx)
	var high atomic.Int64
	var g errgroup.Group
	g.Go(func() error { b.watch(ctx, &high); return nil })
	b.checks(ctx)
	for _, engine := range []string{b.engine, b.engine + ":bf16"} {
		b.measure(ctx, engine)
	}
	stop()
	_ = g.Wait()
	b.r.HighWater, b.r.Seconds = high.Load(), time.Since(start).Seconds()
	j, err := json.MarshalIndent(b.r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(j, '\n'), 0o644); err != nil {
		return err
	}
	fmt.Print(b.r.table())
	for _, c := range b.r.Checks {
		if !c.OK {
			return fmt.Errorf("%s on %s is not what native computes", c.Model, c.Engine)
		}
	}
	return nil
}

// watch samples the memory that the GPU's driver reports.
func (b *bench) watch(ctx context.Context, high *atomic.Int64) {
	for b.gpu && ctx.Err() == nil {
		out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
		if err == nil {
			first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			if mib, err := strconv.ParseInt(strings.TrimSpace(first), 10, 64); err == nil {
				high.Store(max(high.Load(), mib<<20))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// fill is a batch of ids that mean nothing.
func fill(batch, length int) (ids, types, lens []int32) {
	ids, types, lens = make([]int32, batch*length), make([]int32, batch*length), make([]int32, batch)
	for i := range ids {
		ids[i] = int32(5 + (i*7919)%3000)
	}
	for i := range lens {
		lens[i] = int32(length)
	}
	return
}

// outputs runs a model of b.check once on an engine.
func (b *bench) outputs(ctx context.Context, engine, model string) ([]float32, error) {
	e, err := tensor.Open(engine, tensor.Options{})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	dir := filepath.Join(b.check, strings.TrimSuffix(model, " pairs"))
	ids, types, lens := fill(2, 64)
	lens[1] = 40
	switch model {
	case "bert-base", "bert-base pairs":
		head := bert.CLS
		if strings.HasSuffix(model, "pairs") {
			head = bert.Classifier
			for i := range types {
				types[i] = int32(i % 64 / 30 % 2)
			}
		}
		m, err := bert.Open(e, dir, head)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return m.Forward(ids, types, lens, 2, 64)
	case "t5-large":
		m, err := t5.Open(e, dir)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return m.FirstStep(ids, lens, []int32{3, 4, 5, 6, 7, 8, 9, 10}, 2, 64)
	}
	m, w, err := llama.Open(e, dir)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := w.Close(); err != nil {
		return nil, err
	}
	s := m.NewSession()
	defer s.Close()
	if _, err := s.Feed(ctx, ids[:63]); err != nil {
		return nil, err
	}
	return s.Feed(ctx, ids[63:64])
}

// checks compares every model with native.
func (b *bench) checks(ctx context.Context) {
	for _, model := range []string{"bert-base", "bert-base pairs", "t5-large", "llama-3-8b"} {
		want, err := b.outputs(ctx, "native", model)
		for _, engine := range []string{b.engine, b.engine + ":bf16"} {
			c := Check{Model: model, Engine: engine}
			var got []float32
			if err == nil {
				got, err = b.outputs(ctx, engine, model)
			}
			if err != nil {
				c.Error, err = err.Error(), nil
				b.r.Checks = append(b.r.Checks, c)
				continue
			}
			var dot, g2, w2, top float64
			for i, w := range want {
				g, w := float64(got[i]), float64(w)
				c.MaxDiff, top = max(c.MaxDiff, math.Abs(g-w)), max(top, math.Abs(w))
				dot, g2, w2 = dot+g*w, g2+g*g, w2+w*w
			}
			c.Cosine = dot / math.Sqrt(g2*w2)
			c.OK = c.MaxDiff <= 1e-3*top
			if strings.HasSuffix(engine, ":bf16") {
				c.OK = c.Cosine >= 0.9995
			}
			b.r.Checks = append(b.r.Checks, c)
		}
	}
}
