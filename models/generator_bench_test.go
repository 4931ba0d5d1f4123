package models

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rag2/tensor"
	_ "rag2/tensor/native" // the engine of the static binary
)

// BenchmarkGenerate reads a prompt of some 250 tokens and decodes 32 with
// SmolLM2-135M-Instruct.
func BenchmarkGenerate(b *testing.B) {
	path := filepath.Join(os.Getenv("RAG2_MODELS_DIR"), "smollm2")
	if _, err := os.Stat(path); err != nil {
		b.Skip("RAG2_MODELS_DIR holds no smollm2")
	}
	e, err := tensor.Open(os.Getenv("RAG2_ENGINE"), tensor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	g, err := OpenGenerator(e, path, 1024)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	text := strings.Repeat("Metformin lowers the absorption of vitamin B12 in the terminal ileum. ", 15)
	n := 0
	for b.Loop() {
		n++ // another beginning, so that no cache is reused
		c, err := g.Chat(b.Context(), []Message{{Role: "user", Content: fmt.Sprint(n, ". ", text)}}, GenerateOptions{MaxTokens: 32})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(c.PromptTokens), "prompt-tokens")
		b.ReportMetric(float64(c.NewTokens), "new-tokens")
	}
}
