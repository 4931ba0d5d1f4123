package llama

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"rag2/tensor"
	_ "rag2/tensor/native" // the engine that is measured, unless RAG2_ENGINE names another
)

// openSmol opens the Q4_1 file of SmolLM2-135M-Instruct.
func openSmol(b testing.TB) *Model {
	path := filepath.Join(os.Getenv("RAG2_MODELS_DIR"), "smollm2")
	if _, err := os.Stat(path); err != nil {
		b.Skip("RAG2_MODELS_DIR holds no smollm2")
	}
	e, err := tensor.Open(os.Getenv("RAG2_ENGINE"), tensor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	m, w, err := Open(e, path)
	if err != nil {
		b.Fatal(err)
	}
	w.Close()
	b.Cleanup(func() { m.Close(); e.Close() })
	return m
}

// sample is n tokens that mean nothing.
func sample(n, vocab int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*7919 + 13) % vocab)
	}
	return out
}

// BenchmarkPrefill reads prompts.
func BenchmarkPrefill(b *testing.B) {
	m := openSmol(b)
	for _, n := range []int{16, 128, 512} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := m.NewSession()
			defer s.Close()
			ids := sample(n, m.Config.Vocab)
			for b.Loop() {
				s.Rewind(0)
				if _, err := s.Feed(b.Context(), ids); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkDecode generates with 128 tokens in the cache.
func BenchmarkDecode(b *testing.B) {
	m := openSmol(b)
	ids := sample(128, m.Config.Vocab)
	b.Run("1", func(b *testing.B) {
		s := m.NewSession()
		defer s.Close()
		if _, err := s.Feed(b.Context(), ids); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			s.Rewind(128)
			if _, err := s.Feed(b.Context(), ids[:1]); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	})
}
