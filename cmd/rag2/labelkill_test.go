package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Labels by a model that runs here, killed with SIGKILL wherever it is and called again,
// are those of a run that was left alone, byte by byte: batches are put together anew
// behind each kill, and a row's numbers do not depend on its batch mates.
func TestLabelKilledAndResumed(t *testing.T) {
	dir := t.TempDir()
	var lines strings.Builder
	for i := range 10 {
		fmt.Fprintf(&lines, `{"id":"q%d","question":"Which vitamin is low in case %d?","options":{"A":"B12","B":"C"},"answer":"A","snippets":[`, i, i)
		for k := range 1 + i%4 {
			if k > 0 {
				lines.WriteByte(',')
			}
			fmt.Fprintf(&lines, `{"id":"s%d","corpus":"c","text":"Metformin, text %d of %d: vitamin B12 %s falls."}`, k, k, i, strings.Repeat("slowly ", 3*k))
		}
		lines.WriteString("]}\n")
	}
	questions := filepath.Join(dir, "q.jsonl")
	if err := os.WriteFile(questions, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"RAG2_ENGINE=native", "RAG2_HOME=" + dir}
	args := func(out string) []string {
		return []string{"filter", "label", "--file", questions, "--out", out, "--llm", abs(t, tinyLLM), "--rationale-tokens", "24", "--answer-tokens", "24"}
	}
	whole, broken := filepath.Join(dir, "whole.jsonl"), filepath.Join(dir, "broken.jsonl")
	start := time.Now()
	if r := call(t, env, "", args(whole)...); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	length := time.Since(start)
	entries := func() int {
		b, _ := os.ReadFile(broken + ".journal")
		return bytes.Count(b, []byte("\n"))
	}
	kills, grown := 0, map[int]bool{}
	for i := 1; ; i++ {
		c := exec.Command(os.Args[0], args(broken)...)
		c.Env = append([]string{"RAG2_TEST_MAIN=1", "HOME=" + dir, "PATH=" + os.Getenv("PATH")}, env...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		before := entries()
		done := make(chan error, 1)
		go func() { done <- c.Wait() }()
		// Killed when a few more pieces of work are in the journal, or after a while.
		var err error
		for limit, ended := time.Now().Add(4*length), false; !ended; {
			select {
			case err = <-done:
				ended = true
			case <-time.After(time.Millisecond):
				if _, e := os.Stat(broken); e != nil && (entries() > before+i%3 || time.Now().After(limit)) {
					_ = c.Process.Kill()
				}
			}
		}
		if err == nil {
			break
		}
		if kills++; entries() > before {
			grown[entries()] = true
		}
		if kills > 200 {
			t.Fatal("it never ends")
		}
	}
	want, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(broken)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: %d bytes after %d kills, %d without", err, len(got), kills, len(want))
	}
	if kills < 3 || len(grown) < 3 {
		t.Errorf("%d kills at %d places: nothing was tried", kills, len(grown))
	}
	t.Logf("%d kills, at %d places", kills, len(grown))
}
