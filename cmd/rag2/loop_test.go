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
	// What the judges do to answers. The demo's questions have known answers.
	args := []string{"filter", "eval", "--questions", demo + "/questions.jsonl", "--first", "4", "--judge", filter, "--judge", "llm-joint", "--llm", abs(t, tinyLLM),
		"--corpora", "bioasq", "--query", "question", "--k", "3", "--answer-tokens", "16", "--answer-mode", "logprob"}
	r = call(t, env, "", append(args, "--filter-threshold", "1", "--out", at("answers.html"), "--json")...)
	var answers struct {
		Questions int
		Settings  struct {
			K int `json:"final_k"`
		}
		Arms []struct {
			Arm       string
			Threshold *float64
			Kept      float64
			Accuracy  struct{ Value, Low, High float64 }
			Gain      struct{ Value, Low, High float64 } `json:"gain_over_no_evidence"`
			PGold     *struct{ Value float64 }           `json:"p_gold"`
			Outcomes  []struct {
				Kept   []string
				Option string
			}
		}
	}
	if err := json.Unmarshal([]byte(r.out), &answers); err != nil || answers.Questions != 4 || answers.Settings.K != 3 || len(answers.Arms) != 4 {
		t.Fatalf("%+v: %v", r, err)
	}
	none := answers.Arms[0]
	for i, arm := range answers.Arms {
		if arm.PGold == nil || len(arm.Outcomes) != 4 || arm.Accuracy.Low > arm.Accuracy.Value || arm.Accuracy.Value > arm.Accuracy.High {
			t.Errorf("%+v", arm)
		}
		if (arm.Threshold != nil) != (i >= 2) || (arm.Kept == 3) != (arm.Arm == "no filter") {
			t.Errorf("%+v", arm)
		}
		// Nothing reaches a probability of 1: what a judge drops whole is answered without evidence.
		if i >= 2 && (arm.Kept != 0 || arm.Accuracy != none.Accuracy || arm.Gain.Value != 0 || *arm.PGold != *none.PGold) {
			t.Errorf("%+v, without evidence %+v", arm, none)
		}
		for _, o := range arm.Outcomes {
			if o.Option == "" || o.Kept == nil {
				t.Errorf("%s: %+v", arm.Arm, o)
			}
		}
	}
	if page, err := os.ReadFile(at("answers.html")); err != nil || strings.Count(string(page), "<tr><td>") != 4 {
		t.Errorf("page: %v", err)
	}
	// Answered questions are not answered again, whatever else is asked; other judges are another job.
	kept := append(args, "--answers-journal", at("answers.journal"))
	want := call(t, env, "", append(kept, "--json")...)
	lines, err := os.ReadFile(at("answers.journal"))
	if err != nil || want.code != 0 || strings.Count(string(lines), "\n") != 5 {
		t.Fatalf("%+v: %v, %s", want, err, lines)
	}
	two := strings.Join(strings.SplitAfter(string(lines), "\n")[:3], "")
	changed := strings.Replace(two, `"p_gold":0.`, `"p_gold":0.9`, 1) // a mark by which it is seen that the entry is used
	for text, same := range map[string]bool{two + `{"question":"cut`: true, changed: false} {
		if err := os.WriteFile(at("answers.journal"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := call(t, env, "", append(kept, "--json")...); r.code != 0 || (r.out == want.out) != same {
			t.Errorf("resumed: %+v\nwant %s", r, want.out)
		}
	}
	if r := call(t, env, "", append(kept, "--judge", "llm")...); r.code == 0 || !strings.Contains(r.err, "journal") {
		t.Errorf("%+v", r)
	}
	if r := call(t, env, "", append(args, "--held-out", at("gold.json"))...); r.code != 0 || !strings.Contains(r.out, "no evidence") {
		t.Errorf("%+v", r)
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
