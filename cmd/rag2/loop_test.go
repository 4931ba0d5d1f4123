package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The loop from judged questions to a reranker and a filter that answer.
func TestTrainingLoop(t *testing.T) {
	env := newHome(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	gold := `{"questions":[`
	for i, q := range []string{"Which vitamin is low after metformin?", "What causes nephrogenic diabetes insipidus?", "How is pre-eclampsia prevented?", "Which drug lowers the pressure in the eye?", "What is hypophysitis?", "Which nerve is hurt at the elbow?"} {
		if i > 0 {
			gold += ","
		}
		gold += `{"id":"q` + string(rune('0'+i)) + `","body":"` + q + `","snippets":[{"text":"A text about it, number ` + string(rune('0'+i)) + `.","document":"http://x/9` + string(rune('0'+i)) + `"}]}`
	}
	if err := os.WriteFile(at("golden.json"), []byte(gold+"]}"), 0o644); err != nil {
		t.Fatal(err)
	}
	cross, filter := at("cross"), at("filter")
	for _, args := range [][]string{
		{"reranker", "bioasq", at("golden.json"), "--out", at("data"), "--dev-share", "0", "--test-share", "0"},
		{"corpus", "add", "bioasq", at("data/corpus.jsonl"), "--format", "medrag"}, {"index", "build"},
		{"reranker", "mine", "--pairs", at("data/train.jsonl"), "--out", at("groups.jsonl"), "--depth", "8", "--keep", "4"},
		{"reranker", "train", "--groups", at("groups.jsonl"), "--base", abs(t, tiny), "--out", cross, "--batch", "2", "--negatives", "2", "--max-tokens", "32", "--lora", "2", "--lr", "1e-3"},
		{"filter", "gold", "--groups", at("groups.jsonl"), "--out", at("gold.json")},
		{"filter", "train", "--records", at("gold.json"), "--base", abs(t, tinyT5), "--out", filter, "--batch", "4", "--epochs", "2"},
		{"models", "verify", cross},
	} {
		if r := call(t, env, "", args...); r.code != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
	}
	r := call(t, env, "", "reranker", "eval", "--pairs", at("data/train.jsonl"), "--cross-encoder", cross, "--depth", "5", "--json")
	var rank struct {
		Questions int
		Gain      struct {
			MRR struct{ Low, High float64 } `json:"mrr"`
		}
	}
	if err := json.Unmarshal([]byte(r.out), &rank); err != nil || rank.Questions != 6 || rank.Gain.MRR.Low > rank.Gain.MRR.High {
		t.Errorf("%+v: %v", r, err)
	}
	r = call(t, env, "", "filter", "eval", "--records", at("gold.json"), "--held-out", at("gold.json"), "--judge", filter, "--judge", "llm", "--judge", "llm-joint", "--llm", abs(t, tinyLLM), "--out", at("judges.html"), "--json")
	var judges []struct {
		Judge    string
		Pairs    int
		Accuracy struct{ Value float64 }
		Majority struct{ Value float64 }
	}
	if err := json.Unmarshal([]byte(r.out), &judges); err != nil || len(judges) != 3 || judges[2].Judge != "llm-joint" || judges[0].Pairs != 12 || judges[0].Majority.Value != 0.5 {
		t.Errorf("%+v: %v", r, err)
	}
	for _, j := range judges { // the threshold is chosen on the same pairs
		if j.Accuracy.Value < j.Majority.Value {
			t.Errorf("%+v", j)
		}
	}
	if page, err := os.ReadFile(at("judges.html")); err != nil || strings.Count(string(page), "<svg") != 3 {
		t.Errorf("page: %v", err)
	}
	// Both in the pipeline; nothing reaches a probability of 1.
	r = call(t, env, "", "search", "Which vitamin?", "--cross-encoder", cross, "--filter", filter, "--filter-threshold", "1", "--k", "3")
	if r.code != 0 || strings.Count(r.out, "filter: P(helpful)") != 3 {
		t.Errorf("%+v", r)
	}
	if r := call(t, env, "", "search", "Which vitamin?", "--filter", "llm"); r.code != exitUsage || !strings.Contains(r.err, "--llm") {
		t.Errorf("%+v", r)
	}
}
