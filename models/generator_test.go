package models

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rag2/models/llama"
)

func TestTinyLlamasEqualTransformers(t *testing.T) {
	ctx := context.Background()
	for name, e := range engines(t) {
		for _, arch := range []string{"llama3", "mistral"} {
			dir := "../testdata/llama/" + arch
			b, err := os.ReadFile(dir + "/golden.json")
			if err != nil {
				t.Fatal(err)
			}
			var goldens []struct {
				IDs, Targets, Greedy []int32
				Logits, Logp         []float32
			}
			if err := json.Unmarshal(b, &goldens); err != nil {
				t.Fatal(err)
			}
			m, w, err := llama.Open(e, dir)
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			s := m.NewSession()
			for i, g := range goldens {
				s.Rewind(0)
				logits, err := s.Feed(ctx, g.IDs)
				if err != nil {
					t.Fatal(err)
				}
				if d := maxDiff(logits[:32], g.Logits); d > 1e-4 {
					t.Errorf("%s %s %d: logits differ by %g", name, arch, i, d)
				}
				var out []int32
				for range g.Greedy {
					best := int32(0)
					for j, v := range logits {
						if v > logits[best] {
							best = int32(j)
						}
					}
					out = append(out, best)
					if logits, err = s.Feed(ctx, []int32{best}); err != nil {
						t.Fatal(err)
					}
				}
				if !slices.Equal(out, g.Greedy) {
					t.Errorf("%s %s %d: greedy %v, want %v", name, arch, i, out, g.Greedy)
				}
				// Scoring in two pieces through the cache.
				s.Rewind(0)
				half := len(g.IDs) / 2
				var logp []float32
				if half > 0 {
					if logp, err = s.Score(ctx, g.IDs[:half], g.Targets[:half]); err != nil {
						t.Fatal(err)
					}
				}
				rest, err := s.Score(ctx, g.IDs[half:], g.Targets[half:])
				if err != nil {
					t.Fatal(err)
				}
				if d := maxDiff(append(logp, rest...), g.Logp); d > 1e-4 {
					t.Errorf("%s %s %d: log-probabilities differ by %g", name, arch, i, d)
				}
			}
			s.Close()
			m.Close()
		}
	}
}

func TestTinyGenerator(t *testing.T) {
	ctx := context.Background()
	g, err := OpenGenerator(engines(t)["go"], "../testdata/llama/llama3", 256)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ask := []Message{{Role: "user", Content: "what is <|endoftext|> rare?"}}
	ids, err := g.prompt(ask)
	if err != nil {
		t.Fatal(err)
	}
	eot, _ := g.tok.TokenID("<|endoftext|>")
	n := 0
	for _, id := range ids {
		if id == eot {
			n++
		}
	}
	if n != 2 { // bos and the end of the turn; the one in the user's text is text
		t.Errorf("%d control tokens in %v", n, ids)
	}
	var streamed strings.Builder
	a, err := g.Chat(ctx, ask, GenerateOptions{MaxTokens: 20, Logprobs: true, OnToken: func(s string) { streamed.WriteString(s) }})
	if err != nil {
		t.Fatal(err)
	}
	if streamed.String() != a.Text {
		t.Errorf("streamed %q, returned %q", streamed.String(), a.Text)
	}
	if len(a.Tokens) != a.NewTokens || len(a.Logprobs) != a.NewTokens || a.PromptTokens != len(ids) {
		t.Errorf("%+v", a)
	}
	for _, lp := range a.Logprobs {
		if lp > 0 || math.IsNaN(lp) {
			t.Errorf("log-probability %g", lp)
		}
	}
	// The same seed gives the same sample; a scored continuation agrees with itself.
	opt := GenerateOptions{MaxTokens: 12, Temperature: 0.8, TopP: 0.9, Seed: 4}
	x, err := g.Chat(ctx, ask, opt)
	if err != nil {
		t.Fatal(err)
	}
	y, _ := g.Chat(ctx, ask, opt)
	if !slices.Equal(x.Tokens, y.Tokens) {
		t.Error("sampling with one seed differs")
	}
	_, lp1, err := g.ScoreContinuation(ctx, ask, "the patient")
	if err != nil {
		t.Fatal(err)
	}
	_, lp2, _ := g.ScoreContinuation(ctx, ask, "the patient")
	if len(lp1) == 0 || math.Abs(lp1[0]-lp2[0]) > 1e-5 {
		t.Errorf("%v and %v", lp1, lp2)
	}
	long := []Message{{Role: "user", Content: strings.Repeat("haemoglobin ", 400)}}
	if _, err := g.Chat(ctx, long, GenerateOptions{}); !errors.Is(err, ErrContext) {
		t.Errorf("overlong prompt: %v", err)
	}
	cctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := g.Chat(cctx, []Message{{Role: "user", Content: "other"}}, GenerateOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// RAG2_SMOLLM2_GOLDENS is written by testdata/llama/gen.py smollm2.
func TestSmolLM2Parity(t *testing.T) {
	path, dir := os.Getenv("RAG2_SMOLLM2_GOLDENS"), os.Getenv("RAG2_MODELS_DIR")
	if path == "" || dir == "" {
		t.Skip("RAG2_SMOLLM2_GOLDENS or RAG2_MODELS_DIR is not set: no tokens of transformers to compare with")
	}
	es := engines(t)
	for name, e := range es {
		prompts := 10
		if name == "go" {
			prompts = 1
		}
		g, err := OpenGenerator(e, filepath.Join(dir, "smollm2"), 0)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(f)
		sc.Buffer(nil, 1<<24)
		worst, equal := 0.0, 0
		for i := 0; sc.Scan() && i < prompts; i++ {
			var w struct {
				Prompt    string
				PromptIDs []int32 `json:"prompt_ids"`
				Tokens    []int
				Logp      []float64
			}
			if err := json.Unmarshal(sc.Bytes(), &w); err != nil {
				t.Fatal(err)
			}
			msgs := []Message{{Role: "user", Content: w.Prompt}}
			if ids, _ := g.prompt(msgs); !slices.Equal(ids, w.PromptIDs) {
				t.Errorf("%q: prompt ids differ:\n%v\n%v", w.Prompt, ids, w.PromptIDs)
			}
			a, err := g.Chat(context.Background(), msgs, GenerateOptions{MaxTokens: 64, Logprobs: true})
			if err != nil {
				t.Fatal(err)
			}
			want := w.Tokens
			if a.FinishReason == "stop" { // transformers keeps the end token
				want = want[:len(want)-1]
			}
			if slices.Equal(a.Tokens, want) {
				equal++
			} else {
				t.Errorf("%s %q: tokens differ: %v, want %v", name, w.Prompt, a.Tokens, want)
			}
			for j := range a.Logprobs {
				worst = max(worst, math.Abs(a.Logprobs[j]-w.Logp[j]))
			}
		}
		f.Close()
		g.Close()
		t.Logf("%s: %d prompts equal, log-probabilities within %.2g", name, equal, worst)
		if worst > 1e-2 {
			t.Errorf("%s: log-probabilities differ by %g", name, worst)
		}
	}
}
