package models

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

	"rag2/models/tokenizer"
)

const tinyT5 = "../testdata/t5/flan"

type filterGolden struct {
	Filter []struct {
		Question, Snippet string
		IDs               []int32
		P                 float64
	}
	Overflow []float64
}

func readFilterGolden(t *testing.T) (g filterGolden) {
	t.Helper()
	b, err := os.ReadFile(tinyT5 + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestFilterEqualsTransformers(t *testing.T) {
	ctx := context.Background()
	g := readFilterGolden(t)
	for name, e := range engines(t) {
		f, err := OpenFilter(e, tinyT5)
		if err != nil {
			t.Fatal(err)
		}
		byQuestion := map[string][]int{}
		for i, c := range g.Filter {
			byQuestion[c.Question] = append(byQuestion[c.Question], i)
			if enc, err := EncodeFilter(f.t, c.Question, c.Snippet); err != nil || !slices.Equal(enc.IDs, c.IDs) {
				t.Errorf("%q %q: ids %v, want %v, %v", c.Question, c.Snippet, enc.IDs, c.IDs, err)
			}
		}
		for q, idx := range byQuestion {
			if strings.HasPrefix(name, "xla") && q != g.Filter[0].Question {
				continue // each shape costs XLA seconds
			}
			var snippets []string
			for _, i := range idx {
				snippets = append(snippets, g.Filter[i].Snippet)
			}
			got, rep, err := f.Judge(ctx, q, snippets)
			if err != nil {
				t.Fatal(err)
			}
			for j, i := range idx {
				if d := math.Abs(got[j].P - g.Filter[i].P); !(d <= 1e-4) || got[j].Helpful != (got[j].P > 0.5) {
					t.Errorf("%s %q: %+v, want %g", name, g.Filter[i].Snippet, got[j], g.Filter[i].P)
				}
			}
			if rep.Truncated != 0 || rep.Tokens == 0 {
				t.Errorf("%+v", rep)
			}
		}
		f.Close()
	}
}

// scaled copies the tiny filter with its feed-forward output weights multiplied.
func scaled(t *testing.T, by float32) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join(tinyT5, n))
		if err != nil {
			t.Fatal(err)
		}
		if n == "model.safetensors" {
			size := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
			var header map[string]struct {
				Offsets []int `json:"data_offsets"`
			}
			if err := json.Unmarshal(b[8:8+size], &header); err != nil {
				t.Fatal(err)
			}
			for name, h := range header {
				if !strings.HasSuffix(name, "DenseReluDense.wo.weight") {
					continue
				}
				data := b[8+size:][h.Offsets[0]:h.Offsets[1]]
				for i := 0; i < len(data); i += 4 {
					bits := uint32(data[i]) | uint32(data[i+1])<<8 | uint32(data[i+2])<<16 | uint32(data[i+3])<<24
					bits = math.Float32bits(math.Float32frombits(bits) * by)
					data[i], data[i+1], data[i+2], data[i+3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
				}
			}
		}
		if err := os.WriteFile(filepath.Join(dir, n), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// T5 in float16 overflows in its feed-forward: here that is arithmetic as usual, and
// what overflows float32 too is an error.
func TestFilterOverflow(t *testing.T) {
	ctx := context.Background()
	g := readFilterGolden(t)
	big, huge, broken := scaled(t, 1e4), scaled(t, 1e30), scaled(t, float32(math.NaN()))
	for name, e := range engines(t) {
		if strings.HasPrefix(name, "xla") && testing.Short() {
			continue
		}
		f, err := OpenFilter(e, big)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := f.Judge(ctx, g.Filter[0].Question, []string{g.Filter[0].Snippet})
		if err != nil || math.Abs(got[0].P-g.Overflow[0]) > 1e-4 {
			t.Errorf("%s × 1e4: %v, %v, want %g", name, got, err, g.Overflow[0])
		}
		f.Close()
		for what, dir := range map[string]string{"overflow of float32": huge, "NaN": broken} {
			if strings.HasPrefix(name, "xla") && what != "NaN" {
				continue // each compilation takes seconds
			}
			if f, err = OpenFilter(e, dir); err != nil {
				t.Fatal(err)
			}
			if got, _, err := f.Judge(ctx, "q", []string{"s"}); !errors.Is(err, ErrNotFinite) {
				t.Errorf("%s: %s: %v, %v", name, what, got, err)
			}
			f.Close()
		}
	}
}

func TestFilterLimits(t *testing.T) {
	tok, err := tokenizer.Load(tinyT5)
	if err != nil {
		t.Fatal(err)
	}
	count := func(s string) int { return len(tok.AppendPlain(nil, s)) }
	word := "blood " // how many tokens it is does not matter
	per := count(word)
	overhead := count(filterHead) + count(filterTail) + 1
	for name, x := range map[string]struct{ question, evidence int }{
		"all fits":                {10, 20},
		"evidence is cut":         {10, 2000},
		"long question":           {(480 - overhead) / per, 2000},
		"longer than 512":         {(700 - overhead) / per, 2000},
		"exactly the limit":       {(FilterMaxTokens - filterEvidence - overhead) / per, 2000},
		"long, but little to cut": {(700 - overhead) / per, 3},
	} {
		q, s := strings.TrimSpace(strings.Repeat(word, x.question)), strings.TrimSpace(strings.Repeat(word, x.evidence))
		enc, err := EncodeFilter(tok, q, s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		nq := count(q) + overhead
		limit := max(512, nq+64)
		if len(enc.IDs) > limit || enc.Truncated != max(0, nq+count(s)-limit) || enc.Truncated > 0 && len(enc.IDs) != limit {
			t.Errorf("%s: %d ids of %d, %d cut", name, len(enc.IDs), limit, enc.Truncated)
		}
		tail := tok.EncodeSingle(filterTail+q, 0).IDs
		if !slices.Equal(enc.IDs[len(enc.IDs)-len(tail):], tail) {
			t.Errorf("%s: the question was cut", name)
		}
		if enc.Truncated > 0 {
			whole := tok.EncodeSingle(FilterText(q, s), 0).IDs
			if n := len(enc.IDs) - len(tail); !slices.Equal(enc.IDs[:n], whole[:n]) {
				t.Errorf("%s: the parts are not those of the whole", name)
			}
		}
	}
	if _, err := EncodeFilter(tok, "A 45-year-old man "+strings.Repeat(word, 1000), "x"); !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "A 45-year-old man") {
		t.Errorf("too long: %v", err)
	}
}

func TestFilterWithoutLabels(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join(tinyT5, n))
		if err != nil {
			t.Fatal(err)
		}
		if n == "tokenizer.json" {
			b = []byte(strings.Replace(string(b), `"[NOT_HELPFUL]"`, `"[OTHER]"`, 1))
		}
		if err := os.WriteFile(filepath.Join(dir, n), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenFilter(engines(t)["go"], dir); !errors.Is(err, ErrNoLabel) || !strings.Contains(err.Error(), "NOT_HELPFUL") {
		t.Errorf("%v", err)
	}
}
