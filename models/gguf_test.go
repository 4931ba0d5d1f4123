package models

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"rag2/models/llama"
	"rag2/models/t5"
)

// Models in GGUF files, configured from their metadata alone, compute what transformers
// computes with the checkpoints that they were made of (testdata/gguf/gen.py).
func TestGGUFModelsEqualTransformers(t *testing.T) {
	ctx := context.Background()
	read := func(path string, v any) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const dir = "../testdata/gguf/"
	for name, e := range engines(t) {
		if name != "native" {
			continue // what the graphs compute elsewhere, other tests show
		}
		for path, golden := range map[string]string{dir + "mistral.gguf": "../testdata/llama/mistral/golden.json", dir + "qwen2.gguf": dir + "qwen2.golden.json", dir + "qwen2": dir + "qwen2.golden.json"} {
			var gs []struct {
				IDs    []int32
				Logits []float32
			}
			read(golden, &gs)
			m, w, err := llama.Open(e, path)
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			s := m.NewSession()
			for i, g := range gs {
				s.Rewind(0)
				logits, err := s.Feed(ctx, g.IDs)
				if err != nil {
					t.Fatal(err)
				}
				if d := maxDiff(logits[:len(g.Logits)], g.Logits); d > 1e-4 {
					t.Errorf("%s %s %d: logits differ by %g", name, path, i, d)
				}
			}
			s.Close()
			m.Close()
		}
		var g struct {
			Cases []struct {
				IDs, Greedy []int32
				Logits      []float32
			}
		}
		read("../testdata/t5/flan/golden.json", &g)
		m, err := t5.Open(e, dir+"t5.gguf")
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range g.Cases[:3] {
			tokens := make([]int32, len(c.Logits))
			for j := range tokens {
				tokens[j] = int32(j)
			}
			got, err := m.FirstStep(c.IDs, []int32{int32(len(c.IDs))}, tokens, 1, len(c.IDs))
			if err != nil {
				t.Fatal(err)
			}
			if d := maxDiff(got, c.Logits); d > 1e-4 {
				t.Errorf("%s t5 %d: logits differ by %g", name, i, d)
			}
			out, ended, err := m.Generate(ctx, c.IDs, len(c.Greedy))
			if ended {
				out = append(out, m.Config.EOS)
			}
			if err != nil || !slices.Equal(out, c.Greedy) {
				t.Errorf("%s t5 %d: %v, want %v (%v)", name, i, out, c.Greedy, err)
			}
		}
		m.Close()
	}
}
