package train

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"rag2/models/t5"
	"rag2/tensor/weights"
)

type goldenT5 struct {
	Labels  [2]int32
	Weight  [2]float64
	Batches []struct{ IDs, Lens, Class []int32 }
	Loss    []float64
}

// openT5 reads a tiny T5 without a tokenizer, and its golden.
func openT5(t *testing.T, name string) (goldenT5, *T5) {
	t.Helper()
	dir := filepath.Join(testdata, name)
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g goldenT5
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	x := &T5{Labels: g.Labels, Weight: g.Weight, hf: map[string]string{}, dir: dir}
	if err := x.read(0, 0); err != nil {
		t.Fatal(err)
	}
	return g, x
}

func (g goldenT5) batch(i int) []Input {
	b := g.Batches[i%len(g.Batches)]
	n := len(b.Lens)
	return []Input{{b.IDs, []int{n, len(b.IDs) / n}}, {b.Lens, []int{n}}, {b.Class, []int{n}}}
}

func TestT5GradientsEqualTorch(t *testing.T) {
	for _, dir := range []string{"t5", "t5tied"} {
		for name, e := range engines(t) {
			g, x := openT5(t, dir)
			w, err := weights.Open(filepath.Join(x.dir, "grads.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			tr, err := New(e, x.Params, x.Loss, Options{Steps: 1})
			if err != nil {
				t.Fatal(err)
			}
			loss, grads, err := tr.Gradients(g.batch(0))
			if err != nil {
				t.Fatalf("%s %s: %v", dir, name, err)
			}
			if math.Abs(loss-g.Loss[0]) > 1e-5*g.Loss[0] {
				t.Errorf("%s %s: loss %g, torch %g", dir, name, loss, g.Loss[0])
			}
			worst, total := 0.0, 0.0
			for pass := range 2 { // the first sums all gradients up
				for i, p := range x.Params {
					ref, err := w.Float32(x.hf[p.Name])
					if err != nil {
						t.Fatal(err)
					}
					diff, norm := 0.0, 0.0
					for j, v := range ref {
						d := float64(v) - float64(grads[i][j])
						diff, norm = diff+d*d, norm+float64(v)*float64(v)
					}
					switch {
					case pass == 0:
						total += norm
					case norm < 1e-12*total: // of a softmax over one position
						if diff > 1e-10*total {
							t.Errorf("%s %s: %s should have no gradient", dir, name, p.Name)
						}
					default:
						rel := math.Sqrt(diff / norm)
						if worst = max(worst, rel); !(rel <= 1e-4) {
							t.Errorf("%s %s: gradient of %s differs by %.2g", dir, name, p.Name, rel)
						}
					}
				}
			}
			t.Logf("%s %s: largest relative difference of a gradient %.2g", dir, name, worst)
			tr.Close()
			w.Close()
		}
	}
}

func TestT5LossCurveFollowsTorch(t *testing.T) {
	for _, dir := range []string{"t5", "t5tied"} {
		for name, e := range engines(t) {
			g, x := openT5(t, dir)
			tr, err := New(e, x.Params, x.Loss, Options{Steps: len(g.Loss), Warmup: 20, LR: 1e-3, WeightDecay: 0.01, Clip: 1})
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
				if worst = max(worst, rel); rel > 0.01 || i == 0 && rel > 1e-5 {
					t.Fatalf("%s %s: step %d: loss %g, torch %g", dir, name, i, got, want)
				}
			}
			t.Logf("%s %s: largest relative difference of a loss %.2g, last loss %g", dir, name, worst, g.Loss[len(g.Loss)-1])
			tr.Close()
			out := t.TempDir()
			if err := x.Save(out, F16); err != nil {
				t.Fatal(err)
			}
			m, err := t5.Open(e, out)
			if err != nil {
				t.Fatal(err)
			}
			m.Close()
		}
	}
}

// The loss falls with dropout, bfloat16 storage and low-rank additions too, a run is
// repeated by its seed, and another seed draws other masks.
func TestT5Variants(t *testing.T) {
	e := engines(t)["native"]
	run := func(o Options, lora *LoRA) []float64 {
		g, x := openT5(t, "t5")
		if lora != nil {
			var err error
			x.Params, err = lora.Apply(x.Params, func(n string) bool { return n != "shared" && n != "head" && n != "enc.bias" && n != "dec.bias" }, func(n string) bool { return n == "head" }, 3)
			if err != nil {
				t.Fatal(err)
			}
		}
		o.Steps, o.LR = 60, 2e-3
		tr, err := New(e, x.Params, x.Loss, o)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		var out []float64
		for i := range o.Steps {
			l, err := tr.Batch(g.batch(i))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, l)
		}
		if last := out[len(out)-1]; last > 0.8*out[0] {
			t.Errorf("%+v: the loss went from %g to %g", o, out[0], last)
		}
		return out
	}
	plain := run(Options{}, nil)
	if b := run(Options{Storage: "bfloat16"}, nil); b[0] == plain[0] || math.Abs(b[0]-plain[0]) > 0.02*plain[0] {
		t.Errorf("bfloat16 begins at %g, float32 at %g", b[0], plain[0])
	}
	if l := run(Options{}, &LoRA{4, 8}); l[0] != plain[0] {
		t.Errorf("additions that begin at 0 change the loss: %g, %g", l[0], plain[0])
	}
	a, b, c := run(Options{Dropout: 0.1, Seed: 1}, nil), run(Options{Dropout: 0.1, Seed: 1}, nil), run(Options{Dropout: 0.1, Seed: 2}, nil)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("step %d: %g, with the same seed %g", i, a[i], b[i])
		}
	}
	if a[0] == c[0] || a[0] == plain[0] {
		t.Error("dropout does not depend on the seed, or drops nothing")
	}
}

// Dropout keeps the share that it says and the mean.
func TestDropoutShare(t *testing.T) {
	e := engines(t)["native"]
	p := &Param{Name: "p", Dims: []int{100, 100}, Value: make([]float32, 10000)}
	for i := range p.Value {
		p.Value[i] = 1
	}
	tr, err := New(e, []*Param{p}, dropSum, Options{Steps: 1, Dropout: 0.3, Seed: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	_, grads, err := tr.Gradients([]Input{{[]int32{1}, []int{1}}})
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, g := range grads[0] {
		if g != 0 {
			if kept++; math.Abs(float64(g)-1/0.7) > 1e-6 {
				t.Fatalf("a kept element is scaled by %g", g)
			}
		}
	}
	if kept < 6800 || kept > 7200 {
		t.Errorf("%d of 10,000 elements are kept at dropout 0.3", kept)
	}
}

func TestShuffledCoversAnEpoch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var ex []Example
	for i := range 100 {
		ex = append(ex, Example{IDs: make([]int32, 1+rng.IntN(90)), Class: i})
	}
	s := &Shuffled{Examples: ex, Batch: 10, Seed: 4}
	again := &Shuffled{Examples: ex, Batch: 10, Seed: 4}
	var first [2]int
	for epoch := range 2 {
		seen := map[int]bool{}
		for i := range 10 {
			b := s.At(epoch*10 + i)
			for _, e := range b {
				seen[e.Class] = true
			}
			if i == 0 {
				first[epoch] = b[0].Class
			}
		}
		if len(seen) != 100 {
			t.Errorf("epoch %d has %d of 100 examples", epoch, len(seen))
		}
	}
	if first[0] == first[1] {
		t.Error("two epochs begin alike")
	}
	if a, b := s.At(13), again.At(13); a[3].Class != b[3].Class {
		t.Error("a batch depends on what was asked before")
	}
}
