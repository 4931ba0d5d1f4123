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
			if _, err := s.Feed(b.Context(), ids); err != nil { // compiles
				b.Fatal(err)
			}
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

// BenchmarkDecode generates with 128 tokens in the cache of each stream.
func BenchmarkDecode(b *testing.B) {
	m := openSmol(b)
	ids := sample(128, m.Config.Vocab)
	for _, n := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			batch := m.NewBatch(nil)
			defer batch.Close()
			s := m.NewSession()
			defer s.Close()
			if _, err := s.Feed(b.Context(), ids); err != nil {
				b.Fatal(err)
			}
			var streams []*Stream
			for range n {
				st, err := batch.Join(s)
				if err != nil {
					b.Fatal(err)
				}
				streams = append(streams, st)
			}
			step := func() {
				for _, st := range streams {
					st.n = 128
				}
				if _, err := batch.Step(b.Context(), streams, ids[:n]); err != nil {
					b.Fatal(err)
				}
			}
			step() // compiles
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkCapacity decodes behind 300 tokens in a model for short and for long contexts
// and, on the native engine, in a cache with much room.
func BenchmarkCapacity(b *testing.B) {
	m := openSmol(b)
	ids := sample(300, m.Config.Vocab)
	for _, c := range []struct{ context, room int }{{512, 0}, {8192, 0}, {8192, 8192}} {
		if c.room > 0 && m.backend.Name() != "native" {
			continue
		}
		b.Run(fmt.Sprintf("context%d-room%d", c.context, c.room), func(b *testing.B) {
			m.Config.Context = c.context
			s := m.NewSession()
			defer s.Close()
			if c.room > 0 {
				var err error
				if s.cache, err = m.newCache(1, c.room); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := s.Feed(b.Context(), ids); err != nil {
				b.Fatal(err)
			}
			step := func() {
				s.Rewind(300)
				if _, err := s.Feed(b.Context(), ids[:1]); err != nil {
					b.Fatal(err)
				}
			}
			step() // compiles
			for b.Loop() {
				step()
			}
		})
	}
}
