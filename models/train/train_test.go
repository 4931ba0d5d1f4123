package train

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"

	"rag2/models/bert"
	"rag2/tensor"
	_ "rag2/tensor/native"
	"rag2/tensor/weights"
)

const testdata = "../../testdata/train/"

type golden struct {
	Batches []struct{ IDs, Types, Lens []int32 }
	Loss    []float64
}

func engines(t *testing.T) map[string]*tensor.Engine {
	t.Helper()
	out := map[string]*tensor.Engine{}
	for _, name := range []string{"native", "xla:cpu"} {
		e, err := tensor.Open(name, tensor.Options{})
		if errors.Is(err, tensor.ErrUnavailable) && name != "native" {
			t.Logf("not tested on %s: %v", name, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		out[name] = e
	}
	return out
}

func load(t *testing.T) (golden, func() *BERT) {
	t.Helper()
	b, err := os.ReadFile(testdata + "golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return g, func() *BERT {
		c, err := bert.ReadConfig(testdata + "tiny")
		if err != nil {
			t.Fatal(err)
		}
		x := &BERT{Config: c, dir: testdata + "tiny"}
		if err := x.read(BERTOptions{Labels: 1}); err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func (g golden) batch(i int) []Input {
	b := g.Batches[i%len(g.Batches)]
	d := []int{len(b.Lens), len(b.IDs) / len(b.Lens)}
	return []Input{{b.IDs, d}, {b.Types, d}, {b.Lens, d[:1]}}
}

func TestGradientsEqualTorch(t *testing.T) {
	g, open := load(t)
	w, err := weights.Open(testdata + "grads.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, e := range engines(t) {
		x := open()
		tr, err := New(e, x.Params, x.GroupLoss(4), Options{Steps: 1})
		if err != nil {
			t.Fatal(err)
		}
		loss, grads, err := tr.Gradients(g.batch(0))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := math.Abs(loss - g.Loss[0]); d > 1e-5*g.Loss[0] {
			t.Errorf("%s: loss %g, torch %g", name, loss, g.Loss[0])
		}
		total := 0.0 // of all gradients, to tell a gradient that is 0 by theory
		refs := make([][]float32, len(grads))
		for i, p := range x.Params {
			if refs[i], err = w.Float32(p.Name); err != nil {
				t.Fatal(err)
			}
			for _, v := range refs[i] {
				total += float64(v) * float64(v)
			}
		}
		worst := 0.0
		for i, p := range x.Params {
			diff, norm := 0.0, 0.0
			for j, v := range refs[i] {
				d := float64(v - grads[i][j])
				diff += d * d
				norm += float64(v) * float64(v)
			}
			if norm < 1e-12*total { // keys' biases do not change a softmax
				if diff > 1e-10*total {
					t.Errorf("%s: %s should have no gradient", name, p.Name)
				}
				continue
			}
			rel := math.Sqrt(diff / norm)
			if worst = max(worst, rel); !(rel <= 1e-4) {
				t.Errorf("%s: gradient of %s differs by %.2g", name, p.Name, rel)
			}
		}
		t.Logf("%s: largest relative difference of a gradient %.2g", name, worst)
		tr.Close()
	}
}

func TestLossCurveFollowsTorch(t *testing.T) {
	g, open := load(t)
	for name, e := range engines(t) {
		x := open()
		tr, err := New(e, x.Params, x.GroupLoss(4), Options{Steps: len(g.Loss), Warmup: 20, LR: 5e-4, WeightDecay: 0.01, Clip: 1})
		if err != nil {
			t.Fatal(err)
		}
		worst := 0.0
		for i, want := range g.Loss {
			got, err := tr.Batch(g.batch(i))
			if err != nil {
				t.Fatal(err)
			}
			rel := math.Abs(got-want) / want
			if worst = max(worst, rel); rel > 0.01 {
				t.Fatalf("%s: step %d: loss %g, torch %g", name, i, got, want)
			}
		}
		t.Logf("%s: largest relative difference of a loss %.2g, last loss %g", name, worst, g.Loss[len(g.Loss)-1])
		dir := t.TempDir()
		for _, dtype := range []string{F32, F16, BF16} {
			if err := x.Save(dir, dtype, nil); err != nil {
				t.Fatal(err)
			}
			m, err := bert.Open(e, dir, bert.Classifier)
			if err != nil {
				t.Fatal(err)
			}
			m.Close()
		}
		tr.Close()
	}
}

func TestAccumulationIsOneLargeBatch(t *testing.T) {
	g, open := load(t)
	e := engines(t)["native"]
	b := g.batch(0)
	n, l := b[0].Dims[0]/2, b[0].Dims[1]
	half := func(i int) []Input {
		d := []int{n, l}
		return []Input{{b[0].Flat[i*n*l : (i+1)*n*l], d}, {b[1].Flat[i*n*l : (i+1)*n*l], d}, {b[2].Flat[i*n : (i+1)*n], d[:1]}}
	}
	a, c := open(), open()
	whole, err := New(e, a.Params, a.GroupLoss(4), Options{Steps: 9, LR: 1e-3})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := New(e, c.Params, c.GroupLoss(4), Options{Steps: 9, LR: 1e-3, Accumulate: 2})
	if err != nil {
		t.Fatal(err)
	}
	_, ga, err := whole.Gradients(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if parts.Step() != 0 {
			t.Error("updated early")
		}
		if _, err := parts.Batch(half(i)); err != nil {
			t.Fatal(err)
		}
	}
	if parts.Step() != 1 {
		t.Errorf("%d updates", parts.Step())
	}
	for i, p := range c.Params { // m = (1-β₁)·g
		diff, norm := 0.0, 0.0
		for j, v := range p.m {
			d := float64(v)/0.1 - float64(ga[i][j])
			diff, norm = diff+d*d, norm+float64(ga[i][j])*float64(ga[i][j])
		}
		if norm > 1e-9 && math.Sqrt(diff/norm) > 1e-4 {
			t.Errorf("%s: %g", p.Name, math.Sqrt(diff/norm))
		}
	}
}

func TestOptionsAndSchedule(t *testing.T) {
	for _, o := range []Options{{}, {Steps: 5, Warmup: 5}, {Steps: 1, LR: -1}, {Steps: 1, LR: math.NaN()}, {Steps: 1, Beta1: 1}, {Steps: 1, Accumulate: -1}} {
		if o.Validate() == nil {
			t.Errorf("%+v passes", o)
		}
	}
	o := Options{Steps: 10, Warmup: 2, LR: 1}
	for i, want := range []float64{0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0} {
		if got := o.rate(i); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: %g, want %g", i, got, want)
		}
	}
	if WriteSafetensors(t.TempDir()+"/x", []Tensor{{"a", []int{1}, []float32{1e6}}}, F16, nil) == nil {
		t.Error("1e6 passes as float16")
	}
}
