package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilterAndRerankerCommands(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	env := []string{"RAG2_ENGINE=native", "RAG2_HOME=" + dir}
	qs := file("q.jsonl", `{"id":"1","question":"Which?","options":{"A":"x","B":"y"},"answer":"A","snippets":[{"id":"s","corpus":"c","text":"It is x."}]}`)
	labels, page := filepath.Join(dir, "l.jsonl"), filepath.Join(dir, "r.html")
	groups := file("g.jsonl", strings.Repeat(`{"id":"q","query":"which vitamin","positive":"metformin lowers vitamin B12","negatives":["a fracture of the hip"]}`+"\n", 8))
	for _, args := range [][]string{
		{"filter", "label", "--file", qs, "--out", labels, "--llm", abs(t, tinyLLM), "--rationale-tokens", "8", "--answer-tokens", "8"},
		{"filter", "relabel", labels, "--tau", "0.5", "--out", labels + "2"},
		{"filter", "report", labels, "--compare", labels + "2", "--out", page},
		{"filter", "export", labels, "--out", dir},
		{"reranker", "train", "--groups", groups, "--base", abs(t, tiny), "--out", filepath.Join(dir, "x"), "--batch", "4", "--negatives", "1", "--max-tokens", "32", "--lr", "1e-3"},
		{"reranker", "train", "--groups", groups, "--held-out", groups, "--base", abs(t, tiny), "--out", filepath.Join(dir, "x2"), "--batch", "4", "--negatives", "1", "--max-tokens", "32", "--lora", "2", "--eval-every", "1"},
		{"filter", "gold", "--groups", groups, "--out", filepath.Join(dir, "gold.json")},
		{"filter", "train", "--records", filepath.Join(dir, "gold.json"), "--held-out", filepath.Join(dir, "gold.json"), "--base", abs(t, tinyT5), "--out", filepath.Join(dir, "f"), "--batch", "4", "--dropout", "0.1", "--storage", "bfloat16", "--class-weight", "balanced"},
		{"filter", "train", "--records", filepath.Join(dir, "gold.json"), "--base", abs(t, tiny), "--out", filepath.Join(dir, "fb"), "--batch", "4", "--max-tokens", "32"},
	} {
		if r := call(t, env, "", args...); r.code != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
	}
	for _, p := range []string{labels, labels + "2", page, filepath.Join(dir, "train.json"), filepath.Join(dir, "dev.json"), filepath.Join(dir, "x", "model.safetensors"), filepath.Join(dir, "x2", "adapter_model.safetensors"), filepath.Join(dir, "x", "loss.svg"), filepath.Join(dir, "f", "model.safetensors")} {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
	for _, args := range [][]string{
		{"filter", "label"}, {"filter", "label", "--file", qs, "--out", labels}, {"filter", "relabel", labels, "--tau", "x"},
		{"filter", "relabel", labels, "--tau-population", "x"}, {"filter", "report", labels}, {"reranker", "train"},
		{"reranker", "train", "--groups", groups, "--base", abs(t, tiny), "--out", dir, "--lr", "-1"},
		{"reranker", "mine"}, {"reranker", "eval"}, {"reranker", "bioasq", "x"}, {"filter", "gold"}, {"filter", "train"},
		{"filter", "train", "--records", groups, "--base", abs(t, tinyT5), "--out", dir, "--weights-dtype", "F8"},
	} {
		if r := call(t, env, "", args...); r.code != exitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
