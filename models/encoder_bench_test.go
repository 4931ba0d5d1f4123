package models

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// benchModels are the encoder directories to measure: the tiny one, and MiniLM
// where RAG2_MODELS_DIR has it.
func benchModels() map[string]string {
	m := map[string]string{"tiny": tinyBERT}
	if d := os.Getenv("RAG2_MODELS_DIR"); d != "" {
		if p := filepath.Join(d, "minilm"); isDirectory(p) {
			m["minilm"] = p
		}
	}
	return m
}

// words makes a text of about n tokens.
func words(n int) string {
	const s = "the patient has a history of heart failure and was given metformin for type two diabetes with good effect "
	return strings.TrimSpace(strings.Repeat(s, n/19+1)[:min(n*11/2, len(s)*(n/19+1))])
}

func BenchmarkEncodeQuery(b *testing.B) {
	for name, e := range engines(b) {
		for model, dir := range benchModels() {
			if name == "go" && model != "tiny" {
				continue // minutes
			}
			enc, err := OpenEncoder(e, EncoderSpec{QueryDir: dir})
			if err != nil {
				b.Fatal(err)
			}
			text := []string{words(24)}
			b.Run(fmt.Sprintf("engine=%s/model=%s/tokens=24", name, model), func(b *testing.B) {
				if _, _, err := enc.EncodeQueries(context.Background(), text); err != nil { // compiles
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := enc.EncodeQueries(context.Background(), text); err != nil {
						b.Fatal(err)
					}
				}
			})
			enc.Close()
		}
	}
}

func BenchmarkEncodeArticles(b *testing.B) {
	for name, e := range engines(b) {
		for model, dir := range benchModels() {
			if name == "go" {
				continue // a reference, not an engine
			}
			enc, err := OpenEncoder(e, EncoderSpec{QueryDir: dir})
			if err != nil {
				b.Fatal(err)
			}
			for _, n := range []int{64, 128, 256, 500} {
				texts := make([]Article, 4096/max(n, 64))
				for i := range texts {
					texts[i] = Article{Body: words(n - i%4)}
				}
				b.Run(fmt.Sprintf("engine=%s/model=%s/tokens=%d", name, model, n), func(b *testing.B) {
					if _, _, err := enc.EncodeArticles(context.Background(), texts); err != nil { // compiles
						b.Fatal(err)
					}
					tokens := 0
					for b.Loop() {
						_, r, err := enc.EncodeArticles(context.Background(), texts)
						if err != nil {
							b.Fatal(err)
						}
						tokens += r.Tokens
					}
					b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
				})
			}
			enc.Close()
		}
	}
}

func BenchmarkRerank(b *testing.B) {
	for name, e := range engines(b) {
		ce, err := OpenCrossEncoder(e, tinyBERT, 0)
		if err != nil {
			b.Fatal(err)
		}
		texts := make([]string, 32)
		for i := range texts {
			texts[i] = words(100 + i)
		}
		b.Run(fmt.Sprintf("engine=%s/model=tiny/pairs=32", name), func(b *testing.B) {
			if _, _, err := ce.Score(context.Background(), words(20), texts); err != nil { // compiles
				b.Fatal(err)
			}
			for b.Loop() {
				if _, _, err := ce.Score(context.Background(), words(20), texts); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(32*b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
		ce.Close()
	}
}

func isDirectory(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}
