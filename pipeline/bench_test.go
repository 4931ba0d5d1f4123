package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"rag2/corpusio"
	"rag2/models"
	"rag2/pipeline/home"
)

// listed is a corpus of hits that are there already: what remains is the merge.
type listed struct {
	name string
	hits []home.Hit
}

func (l listed) Name() string { return l.name }
func (l listed) Len() int     { return len(l.hits) }
func (l listed) Close() error { return nil }
func (l listed) Search(_ context.Context, _ []float32, k int, _ SearchOptions) ([]home.Hit, error) {
	return append([]home.Hit(nil), l.hits[:min(k, len(l.hits))]...), nil
}

func hits(n int) []home.Hit {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	out := make([]home.Hit, n)
	for i := range out {
		out[i] = home.Hit{Passage: corpusio.Passage{ID: fmt.Sprintf("c:%d#0", rng.IntN(1<<30))}, Score: rng.Float32()}
	}
	return out
}

// BenchmarkQuota merges four corpora of four shards with 32 hits each.
func BenchmarkQuota(b *testing.B) {
	var rs []Retriever
	for c := range 4 {
		var parts []Retriever
		for s := range 4 {
			parts = append(parts, listed{fmt.Sprint(c, s), hits(32)})
		}
		s, err := NewShards(fmt.Sprint(c), parts...)
		if err != nil {
			b.Fatal(err)
		}
		rs = append(rs, s)
	}
	b.ReportAllocs()
	for b.Loop() {
		if pool, _, err := Balanced(b.Context(), rs, nil, 32, SearchOptions{}); err != nil || len(pool) != 128 {
			b.Fatal(len(pool), err)
		}
	}
}

func BenchmarkTopK(b *testing.B) {
	all := hits(1024)
	buf := make([]home.Hit, len(all))
	b.ReportAllocs()
	for b.Loop() {
		copy(buf, all)
		topHits(buf, 32)
	}
}

func BenchmarkExtract(b *testing.B) {
	text := strings.Repeat("The patient has anaemia because of malabsorption, which makes option A unlikely. ", 20) + "\nThe answer is (B)."
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if k, _ := Extract(text, fourOptions); k != "B" {
			b.Fatal(k)
		}
	}
}

func BenchmarkCite(b *testing.B) {
	text := strings.Repeat("A sentence that rests on two excerpts [1, 3]. ", 20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Cite(text, 8)
	}
}

// BenchmarkAsk is a whole question with a recorded language model and tiny networks:
// what the pipeline itself costs.
func BenchmarkAsk(b *testing.B) {
	enc := encoder(b, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	p := &Pipeline{Encoder: enc, Corpora: openDemo(b, demoHome(b, enc), enc), Generator: recordedLLM(b, 8192, func(string) string { return "Absorption is low [1].\nThe answer is (B)." })}
	b.ReportAllocs()
	for b.Loop() {
		if a, err := p.Ask(b.Context(), metformin, Options{Attribution: -1}, Observer{}); err != nil || a.State != Supported {
			b.Fatal(a, err)
		}
	}
}
