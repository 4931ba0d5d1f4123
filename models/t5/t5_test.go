package t5

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rag2/tensor"
	_ "rag2/tensor/native"
)

const testdata = "../../testdata/t5/"

func engines(t testing.TB) map[string]*tensor.Engine {
	t.Helper()
	out := map[string]*tensor.Engine{}
	for _, name := range tensor.Known() {
		if name == "native:int8" {
			continue // not exact
		}
		e, err := tensor.Open(name, tensor.Options{})
		if errors.Is(err, tensor.ErrUnavailable) && name != "go" {
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

type goldens struct {
	Cases []struct {
		IDs, Greedy []int32
		Logits      []float32
	}
	Buckets map[string][]int32
}

func readGoldens(t testing.TB, name string) (g goldens) {
	t.Helper()
	b, err := os.ReadFile(testdata + name + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// padded lays rows out as one batch.
func padded(rows [][]int32, length int) (ids, lens []int32) {
	for _, r := range rows {
		ids = append(append(ids, r...), make([]int32, length-len(r))...)
		lens = append(lens, int32(len(r)))
	}
	return
}

func TestTinyModelsEqualTransformers(t *testing.T) {
	const tolerance = 1e-4
	ctx := context.Background()
	for engine, e := range engines(t) {
		for _, name := range []string{"flan", "t5"} {
			g := readGoldens(t, name)
			m, err := Open(e, testdata+name)
			if err != nil {
				t.Fatal(err)
			}
			tokens := make([]int32, len(g.Cases[0].Logits))
			for i := range tokens {
				tokens[i] = int32(i)
			}
			if engine == "go" {
				g.Cases = g.Cases[:3] // GoMLX's interpreter is slow on long inputs
			}
			length := 320
			if engine == "go" {
				length = 48
			}
			var rows [][]int32
			for _, c := range g.Cases {
				rows = append(rows, c.IDs)
			}
			ids, lens := padded(rows, length)
			for i := len(ids) - 8; i < len(ids); i++ {
				ids[i] = 77 // what lies behind a row's length does not matter
			}
			got, err := m.FirstStep(ids, lens, tokens, len(rows), length)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range g.Cases {
				row := got[i*len(tokens) : (i+1)*len(tokens)]
				for j := range row {
					if d := math.Abs(float64(row[j] - c.Logits[j])); !(d <= tolerance) {
						t.Fatalf("%s %s case %d: logit %d is %g, want %g", engine, name, i, j, row[j], c.Logits[j])
					}
				}
				if strings.HasPrefix(engine, "xla") && (name != "flan" || i != 2) {
					continue // each length costs XLA two compilations of seconds
				}
				out, ended, err := m.Generate(ctx, c.IDs, 20)
				if err != nil {
					t.Fatal(err)
				}
				want := c.Greedy
				if n := slices.Index(want, 1); n >= 0 {
					want = want[:n]
				} else if ended {
					t.Errorf("%s %s case %d: ended early", engine, name, i)
				}
				if !slices.Equal(out, want) {
					t.Errorf("%s %s case %d: greedy %v, want %v", engine, name, i, out, want)
				}
			}
			if n := m.Compilations(); n > 11 {
				t.Errorf("%s %s: %d compilations", engine, name, n)
			}
			m.Close()
			if _, err := m.FirstStep(ids, lens, tokens, len(rows), length); !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	}
}

func TestRelativePositionBuckets(t *testing.T) {
	g := readGoldens(t, "flan")
	c := Config{Buckets: 32, MaxDistance: 128}
	for i, want := range g.Buckets["true"] {
		if got := c.bucketOf(i-200, true); got != want {
			t.Errorf("both ways %d: %d, want %d", i-200, got, want)
		}
		if got := c.bucketOf(i-200, false); got != g.Buckets["false"][i] {
			t.Errorf("one way %d: %d, want %d", i-200, got, g.Buckets["false"][i])
		}
	}
}

func TestErrors(t *testing.T) {
	e, err := tensor.Open("go", tensor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	m, err := Open(e, testdata+"t5")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for name, f := range map[string]func() error{
		"id outside":    func() error { _, err := m.FirstStep([]int32{9999}, []int32{1}, []int32{1}, 1, 1); return err },
		"token outside": func() error { _, err := m.FirstStep([]int32{3}, []int32{1}, []int32{-1}, 1, 1); return err },
		"no tokens":     func() error { _, err := m.FirstStep([]int32{3}, []int32{1}, nil, 1, 1); return err },
		"empty row":     func() error { _, err := m.FirstStep([]int32{3}, []int32{0}, []int32{1}, 1, 1); return err },
		"wrong size":    func() error { _, err := m.FirstStep([]int32{3, 3}, []int32{1}, []int32{1}, 1, 1); return err },
		"no input":      func() error { _, _, err := m.Generate(context.Background(), nil, 3); return err },
		"no room":       func() error { _, _, err := m.Generate(context.Background(), []int32{3}, 0); return err },
	} {
		if f() == nil {
			t.Errorf("%s passes", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := m.Generate(ctx, []int32{3, 4}, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for name, edit := range map[string][2]string{
		"other model": {`"t5"`, `"bart"`}, "shape": {`"d_ff": 40`, `"d_ff": 44`}, "activation": {`"relu"`, `"gated-silu"`}, "start": {`"decoder_start_token_id": 0`, `"decoder_start_token_id": -3`},
	} {
		dir := t.TempDir()
		for _, f := range []string{"config.json", "model.safetensors"} {
			b, err := os.ReadFile(filepath.Join(testdata, "t5", f))
			if err != nil {
				t.Fatal(err)
			}
			if f == "config.json" {
				s := strings.Replace(string(b), edit[0], edit[1], 1)
				if s == string(b) {
					t.Fatalf("%s: nothing replaced", name)
				}
				b = []byte(s)
			}
			if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(e, dir); err == nil {
			t.Errorf("%s opens", name)
		}
	}
}

func FuzzConfig(f *testing.F) {
	b, err := os.ReadFile(testdata + "flan/config.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := parseHF("fuzz", b, true); err == nil && c.Layers < 8 && c.DecLayers < 8 {
			c.Params()
			c.bucketOf(50, true)
		}
	})
}
