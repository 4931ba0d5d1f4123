package pipeline

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"rag2/models"
	"rag2/tensor"
)

// The pool is ordered by the logit and the weighted retrieval score: at 0 by the logit
// alone, with a great weight by retrieval, between by the sum; final_k cuts that order.
func TestRerankWithRetrieval(t *testing.T) {
	enc := encoder(t, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	e, err := tensor.Open("native", tensor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	x, err := models.OpenCrossEncoder(e, tinyDir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	p := &Pipeline{Encoder: enc, Corpora: openDemo(t, demoHome(t, enc), enc), CrossEncoder: x}
	o := Options{K: 5, PerCorpusK: 4, Query: QueryQuestion}
	run := func(w float64) *Trace {
		t.Helper()
		o.RerankRetrieval = w
		tr, err := p.Retrieve(t.Context(), metformin, o, Observer{})
		if err != nil || len(tr.Snippets) != 16 || len(tr.Kept()) != 5 {
			t.Fatalf("%v: %+v", err, tr)
		}
		if tr.Settings.RerankRetrieval != w || strings.Contains(tr.Stages[3].Note, "SCORE") != (w > 0) {
			t.Errorf("weight %g: settings %+v, note %q", w, tr.Settings, tr.Stages[3].Note)
		}
		return tr
	}
	ids := func(ss []Snippet) (out []string) {
		for _, s := range ss {
			out = append(out, s.ID)
		}
		return
	}
	alone, only := run(0), run(1e6)
	// A weight at which both count: the spread of the logits over that of the scores.
	spread := func(f func(s Snippet) float64) float64 {
		lo, hi := f(alone.Snippets[0]), f(alone.Snippets[0])
		for _, s := range alone.Snippets {
			lo, hi = min(lo, f(s)), max(hi, f(s))
		}
		return hi - lo
	}
	w := spread(func(s Snippet) float64 { return float64(*s.Rerank) }) / spread(func(s Snippet) float64 { return float64(s.Retrieval) })
	mixed := run(w)
	for _, c := range []struct {
		tr     *Trace
		weight float64
	}{{alone, 0}, {mixed, w}, {only, 1e6}} {
		want := slices.Clone(alone.Snippets)
		slices.SortStableFunc(want, func(a, b Snippet) int {
			return cmp.Compare(float64(*b.Rerank)+c.weight*float64(b.Retrieval), float64(*a.Rerank)+c.weight*float64(a.Retrieval))
		})
		if got := ids(c.tr.Snippets); !slices.Equal(got, ids(want)) {
			t.Errorf("weight %g: %v, want %v", c.weight, got, ids(want))
		}
	}
	if a, b, c := ids(alone.Snippets), ids(mixed.Snippets), ids(only.Snippets); slices.Equal(a, b) || slices.Equal(b, c) {
		t.Errorf("the weights do not matter: %v, %v, %v", a, b, c)
	}
	if !slices.IsSortedFunc(only.Snippets, func(a, b Snippet) int { return cmp.Compare(b.Retrieval, a.Retrieval) }) {
		t.Errorf("with a weight of 1e6 the order is not retrieval's: %v", ids(only.Snippets))
	}
	for _, bad := range []float64{-1, 2e6} {
		o.RerankRetrieval = bad
		if _, err := p.Retrieve(t.Context(), metformin, o, Observer{}); !errors.Is(err, ErrOptions) {
			t.Errorf("weight %g: %v", bad, err)
		}
	}
	// Without a cross-encoder the weight has nothing to stand beside.
	p.CrossEncoder, o.RerankRetrieval = nil, w
	if tr, err := p.Retrieve(t.Context(), metformin, o, Observer{}); err != nil || !slices.IsSortedFunc(tr.Kept(), func(a, b Snippet) int { return cmp.Compare(b.Retrieval, a.Retrieval) }) {
		t.Errorf("%v: %+v", err, tr)
	}
}
