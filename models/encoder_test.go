package models

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rag2/tensor"
)

const tinyBERT = "../testdata/bert/tiny"

// engines opens every engine that exists here.
func engines(t testing.TB) map[string]*tensor.Engine {
	t.Helper()
	out := map[string]*tensor.Engine{}
	for _, name := range []string{"go", "native", "xla:cpu"} {
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

func maxDiff(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	d := 0.0
	for i := range a {
		d = max(d, math.Abs(float64(a[i]-b[i])))
	}
	return d
}

func TestTinyBERTEqualsTransformers(t *testing.T) {
	var g struct {
		Texts     []string
		CLS, Mean [][]float32
		Pairs     [][2]string
		Logits    []float32
	}
	b, err := os.ReadFile(tinyBERT + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for name, e := range engines(t) {
		for pool, want := range map[string][][]float32{"cls": g.CLS, "mean": g.Mean} {
			enc, err := OpenEncoder(e, EncoderSpec{QueryDir: tinyBERT, Pooling: pool})
			if err != nil {
				t.Fatal(err)
			}
			got, rep, err := enc.EncodeQueries(ctx, g.Texts)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if d := maxDiff(got[i], want[i]); d > 1e-4 {
					t.Errorf("%s %s %q: max abs diff %g", name, pool, g.Texts[i], d)
				}
				// A text's vector does not depend on its batch mates.
				one, _, err := enc.EncodeQueries(ctx, g.Texts[i:i+1])
				if err != nil {
					t.Fatal(err)
				}
				if d := maxDiff(one[0], got[i]); d > 1e-5*6 {
					t.Errorf("%s %s %q: alone and in a batch differ by %g", name, pool, g.Texts[i], d)
				}
			}
			if rep.Truncated != 1 {
				t.Errorf("%d truncated, want 1", rep.Truncated)
			}
			enc.Close()
		}
		ce, err := OpenCrossEncoder(e, tinyBERT, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range g.Pairs {
			got, _, err := ce.Score(ctx, p[0], []string{p[1]})
			if err != nil {
				t.Fatal(err)
			}
			if d := math.Abs(float64(got[0] - g.Logits[i])); d > 1e-4 {
				t.Errorf("%s pair %d: %g, want %g", name, i, got[0], g.Logits[i])
			}
		}
		ce.Close()
	}
}

func TestEncoderErrors(t *testing.T) {
	e := engines(t)["go"]
	if _, err := OpenEncoder(e, EncoderSpec{QueryDir: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing model: %v", err)
	}
	dir := t.TempDir()
	for _, f := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join(tinyBERT, f))
		if err != nil {
			t.Fatal(err)
		}
		if f == "config.json" {
			b = []byte(strings.Replace(string(b), `"hidden_size": 32`, `"hidden_size": 36`, 1))
		}
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenEncoder(e, EncoderSpec{QueryDir: dir}); err == nil || !strings.Contains(err.Error(), "shape") {
		t.Errorf("config that contradicts the weights: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	enc, err := OpenEncoder(e, EncoderSpec{QueryDir: tinyBERT})
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	if _, _, err := enc.EncodeQueries(ctx, []string{"a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// RAG2_MINILM_GOLDENS is written by testdata/bert/gen.py minilm.
func TestMiniLMParity(t *testing.T) {
	path, dir := os.Getenv("RAG2_MINILM_GOLDENS"), os.Getenv("RAG2_MODELS_DIR")
	if path == "" || dir == "" {
		t.Skip("RAG2_MINILM_GOLDENS or RAG2_MODELS_DIR is not set: no vectors of transformers to compare with")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var texts []string
	var want [][]float32
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var g struct {
			Text string
			Vec  []float32
		}
		if err := json.Unmarshal(sc.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		texts, want = append(texts, g.Text), append(want, g.Vec)
	}
	for name, e := range engines(t) {
		n := len(texts)
		if name == "go" {
			n = min(n, 20)
		}
		enc, err := OpenEncoder(e, EncoderSpec{QueryDir: filepath.Join(dir, "minilm"), Normalize: "no"})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := enc.EncodeQueries(context.Background(), texts[:n])
		if err != nil {
			t.Fatal(err)
		}
		worst := 0.0
		for i := range got {
			worst = max(worst, maxDiff(got[i], want[i]))
		}
		t.Logf("%s: %d passages, max abs diff %.2g", name, n, worst)
		if worst > 1e-4 {
			t.Errorf("%s: max abs diff %g", name, worst)
		}
		enc.Close()
	}
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat("Metformin lowers hepatic glucose output in type 2 diabetes. ", 4)
	for name, e := range engines(b) {
		enc, err := OpenEncoder(e, EncoderSpec{QueryDir: tinyBERT})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/tiny", func(b *testing.B) {
			for b.Loop() {
				if _, _, err := enc.EncodeQueries(context.Background(), []string{text}); err != nil {
					b.Fatal(err)
				}
			}
		})
		enc.Close()
	}
}
