package models

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// batchEqualsChat runs jobs together and one by one.
func batchEqualsChat(t *testing.T, g *Llama, jobs []BatchJob, width int) {
	t.Helper()
	got := make([]*BatchResult, len(jobs))
	err := g.ChatBatch(t.Context(), jobs, width, func(i int, r BatchResult) error {
		if got[i] != nil {
			t.Errorf("job %d ended twice", i)
		}
		got[i] = &r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range jobs {
		g.Forget()
		want, err := g.Chat(t.Context(), j.Messages, j.Options)
		if j.ScoreOnly && err == nil {
			want.Tokens, want.Text, want.NewTokens, want.FinishReason, want.Logprobs = nil, "", 0, "length", nil
		}
		r := got[i]
		if r == nil || !errors.Is(r.Err, err) && !errors.Is(err, ErrContext) || (r.Err == nil) != (err == nil) {
			t.Fatalf("job %d: %+v, Chat gives %v", i, r, err)
		}
		c := r.Completion
		if !slices.Equal(c.Tokens, want.Tokens) || c.Text != want.Text || c.FinishReason != want.FinishReason || c.NewTokens != want.NewTokens || c.PromptTokens != want.PromptTokens || len(c.Logprobs) != len(want.Logprobs) {
			t.Errorf("job %d: %+v, alone %+v", i, c, want)
		}
		if len(j.Score) == 0 {
			continue
		}
		lp, err := g.ScoreTokens(t.Context(), j.Messages, j.Score)
		if err != nil {
			t.Fatal(err)
		}
		for k := range lp {
			if len(r.Score) != len(lp) || math.Abs(lp[k]-r.Score[k]) > 1e-4 {
				t.Fatalf("job %d: scores %v, alone %v", i, r.Score, lp)
			}
		}
	}
}

func user(text string) []Message { return []Message{{Role: "user", Content: text}} }

func TestChatBatch(t *testing.T) {
	var jobs []BatchJob
	for i := range 9 {
		jobs = append(jobs, BatchJob{Messages: user(fmt.Sprintf("the patient has a fever of unknown origin %s case %d", strings.Repeat("and ", i), i)), Options: GenerateOptions{MaxTokens: 4 + 3*i}})
	}
	jobs[1].Options = GenerateOptions{MaxTokens: 9, Temperature: 0.9, TopP: 0.9, Seed: 3, Logprobs: true}
	jobs[2].Messages = user(strings.Repeat("haemoglobin ", 400)) // does not fit
	jobs[3].Score = []int{5, 6, 7, 300}
	jobs[4].Score, jobs[4].ScoreOnly = []int{9}, true
	jobs[5].Options.Stop = []string{"e"}
	for _, engine := range []string{"go", "native"} {
		g, err := OpenGenerator(engines(t)[engine], "../testdata/llama/llama3", 256)
		if err != nil {
			t.Fatal(err)
		}
		for _, width := range []int{1, 3, 0} {
			batchEqualsChat(t, g, jobs, width)
		}
		batchEqualsChat(t, g, jobs[:1], 0)
		batchEqualsChat(t, g, nil, 0)
		stop := errors.New("enough")
		calls := 0
		if err := g.ChatBatch(t.Context(), jobs, 0, func(int, BatchResult) error { calls++; return stop }); err != stop || calls != 1 {
			t.Errorf("an error of done: %v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.ChatBatch(ctx, jobs, 0, func(int, BatchResult) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if err := g.ChatBatch(t.Context(), []BatchJob{{Messages: user("x"), Score: []int{1 << 20}}}, 0, nil); err == nil {
			t.Error("a token outside the vocabulary is scored")
		}
		g.Close()
	}
}

func TestSmolLM2Batch(t *testing.T) {
	path := filepath.Join(os.Getenv("RAG2_MODELS_DIR"), "smollm2")
	if _, err := os.Stat(path); err != nil {
		t.Skip("RAG2_MODELS_DIR holds no smollm2")
	}
	g, err := OpenGenerator(engines(t)["native"], path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var jobs []BatchJob
	for _, s := range []string{"What does metformin do?", "Name a symptom of anaemia.", "Is aspirin a painkiller? Answer yes or no.", "What is the liver for?", "Why is sleep important?", "Which vitamin prevents scurvy?"} {
		jobs = append(jobs, BatchJob{Messages: user("You are a doctor who answers briefly and truthfully. " + s), Options: GenerateOptions{MaxTokens: 24}})
	}
	jobs[2].Score = []int{5345, 28, 198}
	batchEqualsChat(t, g, jobs, 4)
}
