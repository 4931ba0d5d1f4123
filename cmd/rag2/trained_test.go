package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// asked is what is read of `ask --json`.
type asked struct {
	Notes []string
	Trace struct {
		Settings struct {
			Threshold float64 `json:"filter_threshold"`
		}
		Stages []struct {
			Stage   string
			In, Out int
			Note    string
		}
		Snippets []struct {
			N       int
			ID      string
			Rerank  *float64 `json:"rerank_score"`
			Verdict *struct {
				Helpful bool
				P       *float64 `json:"p_helpful"`
			}
			Dropped string
		}
	}
}

// The answer's JSON shows for each snippet what the filter gave it, whether it was
// dropped, by which stage and why.
func TestAskShowsTheFiltersVerdicts(t *testing.T) {
	env := newHome(t)
	ask := func(args ...string) (a asked) {
		t.Helper()
		r := call(t, env, "", append([]string{"ask", "Which is low after metformin? A) Iron B) Vitamin B12", "--query", "question", "--k", "4", "--per-corpus-k", "6", "--json",
			"--llm-url", server(t, 0), "--llm-model", "m", "--cross-encoder", abs(t, tiny), "--filter", abs(t, tinyT5)}, args...)...)
		if r.code != 0 || json.Unmarshal([]byte(r.out), &a) != nil || len(a.Trace.Snippets) != 6 {
			t.Fatalf("%+v", r)
		}
		return a
	}
	low, high := 1.0, 0.0
	for _, s := range ask().Trace.Snippets {
		if s.Verdict != nil {
			low, high = min(low, *s.Verdict.P), max(high, *s.Verdict.P)
		}
	}
	if low >= high {
		t.Fatalf("probabilities from %g to %g", low, high)
	}
	threshold := (low + high) / 2 // some stay and some go
	a := ask("--filter-threshold", fmt.Sprint(threshold))
	kept, filtered, cut := 0, 0, 0
	for i, s := range a.Trace.Snippets {
		if s.ID == "" || s.Rerank == nil {
			t.Errorf("snippet %d: %+v", i, s)
		}
		switch {
		case s.N > 0: // kept snippets come first, numbered as the answer cites them
			if kept++; s.N != i+1 || s.Verdict == nil || !s.Verdict.Helpful || *s.Verdict.P < threshold || s.Dropped != "" {
				t.Errorf("kept: %+v", s)
			}
		case s.Verdict != nil:
			filtered++
			if want := fmt.Sprintf("filter: P(helpful) = %.3f, below %.3g", *s.Verdict.P, threshold); s.Verdict.Helpful || *s.Verdict.P >= threshold || s.Dropped != want {
				t.Errorf("dropped: %+v, want %q", s, want)
			}
		default:
			if cut++; !strings.Contains(s.Dropped, "final_k is 4") {
				t.Errorf("cut: %+v", s)
			}
		}
	}
	if kept == 0 || filtered == 0 || kept+filtered != 4 || cut != 2 || math.Abs(a.Trace.Settings.Threshold-threshold) > 1e-12 {
		t.Errorf("%d kept, %d dropped by the filter, %d by rank; %+v", kept, filtered, cut, a.Trace.Settings)
	}
	if st := a.Trace.Stages[4]; st.Stage != "filter" || st.In != 4 || st.Out != kept {
		t.Errorf("%+v", st)
	}
	// All dropped: the answer goes without evidence and says why.
	if a = ask("--filter-threshold", "1"); a.Trace.Snippets[0].N != 0 || !strings.Contains(strings.Join(a.Notes, "\n"), "filter dropped every snippet") {
		t.Errorf("%+v", a)
	}
}

// --authors is the paper's code's training: 40 epochs of batches of 16, 3e-5 falling
// linearly to nothing from the first step; what is given beside it wins.
func TestAuthorsPreset(t *testing.T) {
	dir := t.TempDir()
	var records []string
	for i := range 33 {
		records = append(records, fmt.Sprintf(`{"id":"%d/0","answer":"[%sHELPFUL]","dataset_name":"d","question":"Given the following evidence, determine whether it helps answer the provided question.\n\nEvidence: It is %d.\n\nQuestion: Which? A) x B) y"}`, i, []string{"", "NOT_"}[i%2], i))
	}
	path := filepath.Join(dir, "records.json")
	if err := os.WriteFile(path, []byte("["+strings.Join(records, ",")+"]"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(out string, args ...string) (rates []float64) {
		t.Helper()
		out = filepath.Join(dir, out)
		r := call(t, []string{"RAG2_ENGINE=native"}, "", append([]string{"filter", "train", "--records", path, "--base", abs(t, tinyT5), "--out", out, "--authors", "--json"}, args...)...)
		var res struct{ Steps int }
		if r.code != 0 || json.Unmarshal([]byte(r.out), &res) != nil {
			t.Fatalf("%+v", r)
		}
		log, err := os.Open(filepath.Join(out, "train.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		for s := bufio.NewScanner(log); s.Scan(); {
			var e struct{ LR, Loss float64 }
			if err := json.Unmarshal(s.Bytes(), &e); err != nil || e.LR < 0 || !(e.Loss > 0) {
				t.Fatalf("%s: %v", s.Bytes(), err)
			}
			rates = append(rates, e.LR)
		}
		if res.Steps != len(rates) {
			t.Errorf("%d steps, %d in the log", res.Steps, len(rates))
		}
		return rates
	}
	perEpoch := 2 // whole batches of 16 among 33 records; the others come in another epoch
	rates := run("authors")
	if len(rates) != 40*perEpoch {
		t.Fatalf("%d steps", len(rates))
	}
	for i, lr := range rates {
		if want := 3e-5 * (1 - float64(i)/float64(len(rates))); math.Abs(lr-want) > 1e-9*3e-5+1e-12 {
			t.Errorf("step %d: learning rate %g, want %g", i+1, lr, want)
		}
	}
	if rates = run("given", "--epochs", "1", "--lr", "1e-3", "--batch", "15"); len(rates) != 2 || rates[0] != 1e-3 {
		t.Errorf("%v", rates)
	}
}
