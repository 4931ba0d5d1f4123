package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

// The commands that turn JSON lines into JSON lines.
func TestLineCommands(t *testing.T) {
	env := []string{"RAG2_HOME=" + t.TempDir(), "RAG2_ENGINE=native"}
	lines := func(r result, n int) (out []map[string]any) {
		t.Helper()
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		for l := range strings.Lines(r.out) {
			var m map[string]any
			if err := json.Unmarshal([]byte(l), &m); err != nil {
				t.Fatal(err)
			}
			out = append(out, m)
		}
		if len(out) != n {
			t.Fatalf("%d lines, want %d: %s", len(out), n, r.out)
		}
		return
	}
	for _, m := range lines(call(t, env, "\ufeff{\"text\":\"the patient\"}\r\n\n{\"text\":\"a\",\"pair\":\"b\"}", "tokenize", "--model", abs(t, tiny), "--tokens"), 2) {
		if len(m["ids"].([]any)) < 3 || len(m["tokens"].([]any)) != len(m["ids"].([]any)) {
			t.Errorf("%v", m)
		}
	}
	v := lines(call(t, env, `{"text":"rare"}`+"\n"+`{"text":"rare"}`, "embed", "--encoder", abs(t, tiny)), 2)
	if len(v[0]["vector"].([]any)) != 32 || v[0]["vector"].([]any)[0] != v[1]["vector"].([]any)[0] {
		t.Errorf("%v", v)
	}
	lines(call(t, env, `{"title":"rare","text":"x"}`, "embed", "--encoder", abs(t, tiny), "--article"), 1)
	if m := lines(call(t, env, `{"query":"rare","texts":["a","b","c"]}`, "rerank", "--cross-encoder", abs(t, tiny)), 1); len(m[0]["order"].([]any)) != 3 {
		t.Errorf("%v", m)
	}
	prompts := ""
	for i := range 20 {
		prompts += fmt.Sprintf("{\"prompt\":\"why %d %s?\"}\n\n", i, strings.Repeat("and ", i%7))
	}
	together := lines(call(t, env, prompts, "generate", "--llm", abs(t, tinyLLM), "--max-new-tokens", "9"), 20)
	for i, line := range strings.Split(strings.TrimSpace(prompts), "\n\n")[:9] {
		if one := lines(call(t, env, line, "generate", "--llm", abs(t, tinyLLM), "--max-new-tokens", "9"), 1)[0]; one["text"] != together[i]["text"] {
			t.Errorf("line %d: %q together, %q alone", i, together[i]["text"], one["text"])
		}
	}
	long := `{"prompt":"a"}` + "\n\n" + `{"prompt":"` + strings.Repeat("haemoglobin ", 4000) + `"}`
	if r := call(t, env, long, "generate", "--llm", abs(t, tinyLLM), "--max-new-tokens", "3"); r.code == 0 || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.err, "line 3:") {
		t.Errorf("a prompt that does not fit: %+v", r)
	}
	m := lines(call(t, env, `{"messages":[{"role":"user","content":"why?"}],"continuation":"the patient"}`, "logprobs", "--llm", abs(t, tinyLLM)), 1)[0]
	if p := m["perplexity"].(float64); p < 1 || math.IsInf(p, 0) || len(m["tokens"].([]any)) != len(m["logprobs"].([]any)) {
		t.Errorf("%v", m)
	}
	for _, args := range [][]string{{"embed", "--encoder", abs(t, tiny)}, {"tokenize", "--model", abs(t, tiny)}} {
		if r := call(t, env, "{\"text\":\"a\"}\n{broken", args...); r.code != 2 || !strings.Contains(r.err, "line 2") {
			t.Errorf("%v: %+v", args, r)
		}
		if r := call(t, env, `{"texts":"a"}`, args...); r.code != 2 {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := call(t, env, "", "rerank"); r.code != 2 {
		t.Errorf("%+v", r)
	}
}

// A corpus embedded in shards gives the index that encoding gives.
func TestEmbedCorpus(t *testing.T) {
	env := newHome(t)
	dir := t.TempDir()
	for _, shard := range []string{"2/2", "1/2"} {
		r := call(t, env, "", "embed", "pubmed", "--out", dir, "--file-rows", "20", "--shard", shard)
		if r.code != 0 || !strings.Contains(r.out, "tokens/s") || strings.Contains(r.out, "complete") != (shard == "1/2") {
			t.Fatalf("%+v", r)
		}
	}
	r := call(t, env, "", "embed", "pubmed", "--out", dir, "--file-rows", "20", "--json")
	var rep struct {
		Present, Rows, Reused int
		Complete              bool
	}
	if r.code != 0 || json.Unmarshal([]byte(r.out), &rep) != nil || !rep.Complete || rep.Present != 62 || rep.Rows != 62 || rep.Reused != 4 {
		t.Fatalf("%+v", r)
	}
	search := func() string { return call(t, env, "", "search", "Which vitamin?", "--json").out }
	before := search()
	if r := call(t, env, "", "index", "build", "pubmed", "--vectors", dir); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	strip := func(s string) string { // times differ
		var m map[string]any
		if err := json.Unmarshal([]byte(s), &m); err != nil {
			t.Fatalf("%v: %s", err, s)
		}
		b, _ := json.Marshal(m["snippets"])
		return string(b)
	}
	if a, b := strip(before), strip(search()); a != b || len(a) < 100 {
		t.Errorf("%s\n%s", a, b)
	}
	// The same in segments, and what is done to indexes.
	for _, c := range []struct{ args, says string }{
		{"build pubmed --vectors " + dir + " --shard 2/2 --codes 4bit", "segment 2 of 2 is built"},
		{"build pubmed --vectors " + dir + " --shards 2 --codes 4bit", "62 vectors"},
		{"inspect pubmed", "segment {N:40"},
		{"verify pubmed", "62 vectors"},
		{"recode pubmed --codes pca", "codes pca"},
		{"repair pubmed", "Reinserted:0"},
		{"inspect pubmed --json", `"segments": [`},
	} {
		if r := call(t, env, "", append([]string{"index"}, strings.Fields(c.args)...)...); r.code != 0 || !strings.Contains(r.out, c.says) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	if a, b := strip(before), strip(search()); a != b {
		t.Errorf("in segments: %s\n%s", a, b)
	}
	for _, args := range []string{"build pubmed --shard 1/2", "build pubmed --shards 2", "build pubmed --vectors x --shard 3/2", "build pubmed --vectors x --shard 1/2 --shards 3"} {
		if r := call(t, env, "", append([]string{"index"}, strings.Fields(args)...)...); r.code != 2 {
			t.Errorf("%s: %+v", args, r)
		}
	}
	for _, args := range [][]string{{"embed", "pubmed"}, {"embed", "--shard", "1/2"}, {"embed", "pubmed", "--out", dir, "--shard", "3/2"}, {"embed", "pubmed", "--out", dir, "--shard", "1"},
		{"embed", "pubmed", "--out", dir, "--dtype", "f8"}, {"embed", "pubmed", "--out", dir, "--shard", "1/2 3"}, {"embed", "pubmed", "--out", dir, "--shard", " 1/2"},
		// an unset variable in a job's script does not start all of the work
		{"embed", "pubmed", "--out", dir, "--shard", ""}, {"index", "build", "pubmed", "--vectors", dir, "--shard="}, {"index", "build", "pubmed", "--vectors="},
		{"set", "import", dir, dir + "-set", "--shard", ""}, {"filter", "eval", "--questions", "x", "--judge", "llm", "--answers-journal="}} {
		if r := call(t, env, "", args...); r.code != 2 {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := call(t, env, "", "embed", "pubmed", "--out", dir, "--file-rows", "21"); r.code != 1 || !strings.Contains(r.err, "file_rows") && !strings.Contains(r.err, "chunk_rows") {
		t.Errorf("%+v", r)
	}
}
