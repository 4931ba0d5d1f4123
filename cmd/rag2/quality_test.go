package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What fewer bits cost: the reference with itself costs nothing, 8 bits something. The products of
// the tiny encoder are too small to be rounded at all; MiniLM's, where it is, are not.
func TestBenchQuality(t *testing.T) {
	env := newHome(t)
	most := 1.0
	if dir := os.Getenv("RAG2_MODELS_DIR"); dir != "" {
		env = append(env, "RAG2_ENCODER="+filepath.Join(dir, "minilm"))
		most = 0.99999
	}
	texts := demo + "/questions.jsonl"
	var rows []struct {
		Engine  string
		Vectors struct {
			Min    float64 `json:"min_cosine"`
			Recall float64
			Depth  int
		}
		Scores struct {
			Tokens int
			Max    float64 `json:"max_diff"`
		}
	}
	r := call(t, env, "", "bench", "quality", "--passages", texts, "--queries", texts, "--top", "3", "--engines", "native:int8", "--json")
	if r.code != 0 || json.Unmarshal([]byte(r.out), &rows) != nil || len(rows) != 2 {
		t.Fatalf("%+v", r)
	}
	if v := rows[0].Vectors; v.Min < 0.999999 || v.Recall < 0.999999 || v.Depth != 3 {
		t.Errorf("reference: %+v", v)
	}
	if v := rows[1].Vectors; v.Min < 0.98 || v.Min > most || v.Recall < 0.8 {
		t.Errorf("int8: %+v", v)
	}
	r = call(t, env, "", "bench", "quality", "--passages", texts, "--llm", abs(t, tinyLLM), "--passages-first", "3", "--engines", "native:f16", "--json")
	if rows = nil; r.code != 0 || json.Unmarshal([]byte(r.out), &rows) != nil || len(rows) != 2 {
		t.Fatalf("%+v", r)
	}
	if s := rows[0].Scores; s.Tokens == 0 || s.Max != 0 {
		t.Errorf("reference: %+v", s)
	}
	if s := rows[1].Scores; s.Tokens != rows[0].Scores.Tokens || s.Max > 0.1 {
		t.Errorf("f16: %+v", s)
	}
	if r := call(t, env, "", "bench", "quality", "--passages", texts, "--queries", texts, "--engines", "native:int8"); r.code != 0 || !strings.Contains(r.out, "RECALL@10") {
		t.Errorf("%+v", r)
	}
}
