package models

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"rag2/models/bert"
	"rag2/models/llama"
	"rag2/models/t5"
	"rag2/models/tokenizer"
)

// TestTrueArchitectures compares random models of true widths with transformers:
// RAG2_PARITY_DIR is written by testdata/parity.py.
func TestTrueArchitectures(t *testing.T) {
	dir := os.Getenv("RAG2_PARITY_DIR")
	if dir == "" {
		t.Skip("RAG2_PARITY_DIR is not set: no models of true architectures to compare with")
	}
	const tolerance = 1e-4
	ctx := context.Background()
	type golden struct {
		Text              string
		IDs               []int32
		CLS, Logits, Logp []float32
		Pair, Types       []int32 // the text and the next one
		Logit             []float32
	}
	read := func(name string) (out []golden) {
		f, err := os.Open(filepath.Join(dir, name, "golden.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sc := bufio.NewScanner(f)
		sc.Buffer(nil, 1<<24)
		for sc.Scan() {
			var g golden
			if err := json.Unmarshal(sc.Bytes(), &g); err != nil {
				t.Fatal(err)
			}
			out = append(out, g)
		}
		return
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name, "golden.jsonl"))
		if err != nil {
			t.Logf("not compared: %v", err)
		}
		return err == nil
	}
	encodings := func(gs []golden) (out []tokenizer.Encoding) {
		for _, g := range gs {
			out = append(out, tokenizer.Encoding{IDs: g.IDs, TypeIDs: make([]int32, len(g.IDs))})
		}
		return
	}
	for engine, e := range engines(t) {
		if engine == "go" {
			continue // too slow for true widths
		}
		say := func(name string, n int, worst float64) {
			t.Logf("%s %s: %d texts, max abs diff %.2g", engine, name, n, worst)
			if !(worst <= tolerance) {
				t.Errorf("%s %s: max abs diff %g", engine, name, worst)
			}
		}
		if has("bert") {
			b, err := bert.Open(e, filepath.Join(dir, "bert"), bert.CLS)
			if err != nil {
				t.Fatal(err)
			}
			gs := read("bert")
			rows, err := forward(ctx, b, encodings(gs), defaultBatchTokens, 1)
			if err != nil {
				t.Fatal(err)
			}
			worst := 0.0
			for i, g := range gs {
				worst = max(worst, maxDiff(rows[i], g.CLS))
			}
			say("bert", len(gs), worst)
			b.Close()
			if b, err = bert.Open(e, filepath.Join(dir, "bert"), bert.Classifier); err != nil {
				t.Fatal(err)
			}
			var pairs []tokenizer.Encoding
			for _, g := range gs {
				pairs = append(pairs, tokenizer.Encoding{IDs: g.Pair, TypeIDs: g.Types})
			}
			if rows, err = forward(ctx, b, pairs, defaultBatchTokens, 1); err != nil {
				t.Fatal(err)
			}
			worst = 0
			for i, g := range gs {
				worst = max(worst, maxDiff(rows[i], g.Logit))
			}
			say("bert pairs", len(gs), worst)
			b.Close()
		}
		for _, name := range []string{"t5", "t5wide"} {
			if !has(name) {
				continue
			}
			m, err := t5.Open(e, filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			gs := read(name)
			tokens := make([]int32, len(gs[0].Logits))
			for i := range tokens {
				tokens[i] = int32(i)
			}
			rows, err := inBatches(ctx, encodings(gs), FilterMaxTokens, len(tokens), defaultBatchTokens, 1, func(_ int, ids, _, lens []int32, batch, length int) ([]float32, error) {
				return m.FirstStep(ids, lens, tokens, batch, length)
			})
			if err != nil {
				t.Fatal(err)
			}
			worst := 0.0
			for i, g := range gs {
				worst = max(worst, maxDiff(rows[i], g.Logits))
			}
			say(name, len(gs), worst)
			m.Close()
		}
		for _, name := range []string{"llama3", "mistral"} {
			if !has(name) {
				continue
			}
			m, w, err := llama.Open(e, filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			s := m.NewSession()
			gs := read(name)
			worst := 0.0
			for _, g := range gs {
				s.Rewind(0)
				logp, err := s.Score(ctx, g.IDs[:len(g.IDs)-1], g.IDs[1:])
				if err != nil {
					t.Fatal(err)
				}
				worst = max(worst, maxDiff(logp, g.Logp))
				s.Rewind(0)
				logits, err := s.Feed(ctx, g.IDs)
				if err != nil {
					t.Fatal(err)
				}
				worst = max(worst, maxDiff(logits[:len(g.Logits)], g.Logits))
			}
			say(name, len(gs), worst)
			s.Close()
			m.Close()
		}
	}
}
