package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rag2/hnsw"
	"rag2/pipeline/home"

	"golang.org/x/sync/errgroup"
)

// SearchOptions steer one search of a corpus.
type SearchOptions struct {
	Ef    int
	Exact bool
	Only  home.Filter // which passages may be found
}

// Retriever searches one corpus as a whole. Hits are passages with the inner
// product of the vectors, best first, ties by passage id; fewer than k when the
// corpus has fewer.
type Retriever interface {
	Name() string
	Len() int // passages
	Search(ctx context.Context, vector []float32, k int, o SearchOptions) ([]home.Hit, error)
	Close() error
}

// Local is a corpus on this machine.
type Local struct{ *home.Corpus }

// Len implements Retriever.
func (l Local) Len() int { return l.Store.Len() }

// Content names the passages and their vectors' encoder: it changes when they do.
func (l Local) Content() string { return l.Store.ID() + " " + l.Manifest.Index.Encoder }

// Search implements Retriever.
func (l Local) Search(ctx context.Context, v []float32, k int, o SearchOptions) ([]home.Hit, error) {
	so := hnsw.SearchOptions{Ef: o.Ef, Exact: o.Exact}
	if !o.Only.Empty() {
		var err error
		if so.Allow, err = l.Rows(ctx, o.Only); err != nil || so.Allow.Len() == 0 {
			return nil, err
		}
	}
	hits, err := l.Corpus.Search(ctx, v, k, so)
	sortHits(hits)
	return hits, err
}

// Shards is a corpus in several parts: each is asked for k, and the best k of all by
// score are the corpus's hits. Merging before the quota applies keeps a corpus of
// four shards from getting four quotas.
type Shards struct {
	name  string
	parts []Retriever
}

// NewShards joins parts under one name.
func NewShards(name string, parts ...Retriever) (*Shards, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("corpus %s: no shards", name)
	}
	return &Shards{name, parts}, nil
}

// Content is that of the parts which have one.
func (s *Shards) Content() string {
	var all []string
	for _, p := range s.parts {
		if x, ok := p.(interface{ Content() string }); ok {
			all = append(all, x.Content())
		}
	}
	return strings.Join(all, "+")
}

// Name implements Retriever.
func (s *Shards) Name() string { return s.name }

// Len implements Retriever.
func (s *Shards) Len() (n int) {
	for _, p := range s.parts {
		n += p.Len()
	}
	return n
}

// Search implements Retriever.
func (s *Shards) Search(ctx context.Context, v []float32, k int, o SearchOptions) ([]home.Hit, error) {
	per, err := each(ctx, s.parts, func(ctx context.Context, r Retriever) ([]home.Hit, error) { return r.Search(ctx, v, k, o) })
	if err != nil {
		return nil, err
	}
	return topHits(slices.Concat(per...), k), nil
}

// Close implements Retriever.
func (s *Shards) Close() error {
	var errs []error
	for _, p := range s.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// sortHits orders by score, then id.
func sortHits(h []home.Hit) {
	slices.SortStableFunc(h, func(a, b home.Hit) int {
		if c := cmp.Compare(b.Score, a.Score); c != 0 {
			return c
		}
		return cmp.Compare(a.ID, b.ID)
	})
}

// topHits is the k best, each passage once.
func topHits(h []home.Hit, k int) []home.Hit {
	sortHits(h)
	seen := make(map[string]bool, len(h))
	h = slices.DeleteFunc(h, func(x home.Hit) bool {
		dup := seen[x.ID]
		seen[x.ID] = true
		return dup
	})
	return h[:min(k, len(h))]
}

// Best is the k hits of the highest scores, each passage once.
func Best(h []home.Hit, k int) []home.Hit { return topHits(h, k) }

// maxParallel bounds the searches of one question that run at once.
const maxParallel = 16

// each calls f for every retriever at once; the first error stops the others.
func each[T any](ctx context.Context, rs []Retriever, f func(context.Context, Retriever) (T, error)) ([]T, error) {
	out := make([]T, len(rs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallel)
	for i, r := range rs {
		g.Go(func() (err error) {
			out[i], err = f(ctx, r)
			return err
		})
	}
	return out, g.Wait()
}

// CorpusTrace is what one corpus gave.
type CorpusTrace struct {
	Name     string  `json:"name"`
	Passages int     `json:"passages"`
	Asked    int     `json:"asked"`
	Got      int     `json:"got"`
	Millis   float64 `json:"ms"`
	Note     string  `json:"note,omitempty"` // why Got < Asked
}

// Balanced asks every corpus for the same number of passages at once. The pool is in
// the order of the corpora, best first within each.
func Balanced(ctx context.Context, corpora []Retriever, v []float32, per int, o SearchOptions) ([]home.Hit, []CorpusTrace, error) {
	type result struct {
		hits  []home.Hit
		trace CorpusTrace
	}
	rs, err := each(ctx, corpora, func(ctx context.Context, r Retriever) (result, error) {
		t := startTimer()
		hits, err := r.Search(ctx, v, per, o)
		if err != nil {
			return result{}, fmt.Errorf("retrieval: %w", err)
		}
		for i := range hits {
			hits[i].Corpus = r.Name()
		}
		ct := CorpusTrace{Name: r.Name(), Passages: r.Len(), Asked: per, Got: len(hits), Millis: t.ms()}
		if ct.Got < ct.Asked {
			if ct.Note = fmt.Sprintf("holds %d passages; the rest of its quota stays empty", r.Len()); !o.Only.Empty() {
				ct.Note = "no more passages pass the filter; the rest of its quota stays empty"
			}
		}
		return result{hits, ct}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	var pool []home.Hit
	var traces []CorpusTrace
	for _, r := range rs {
		pool = append(pool, r.hits...)
		traces = append(traces, r.trace)
	}
	return pool, traces, nil
}
