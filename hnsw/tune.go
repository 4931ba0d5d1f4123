package hnsw

import (
	"context"
	"errors"
	"fmt"
)

// TuneOptions steer Tune.
type TuneOptions struct {
	K       int     // 0 = 10
	Recall  float64 // 0 = 0.95
	MaxEf   int     // 0 = 4096
	Workers int     // 0 = 1
}

// TunePoint is one setting that was tried.
type TunePoint struct {
	Ef, Rescore  int
	Recall       float64
	Nodes, Codes float64 // per query
	Vectors      float64
}

// TuneResult is the least work that reaches the recall on the queries given.
type TuneResult struct {
	Settings Settings
	Tried    []TunePoint
}

// ErrRecall reports a recall that no breadth reaches.
var ErrRecall = errors.New("recall is not reached")

// Tune finds the smallest Ef, and for it the smallest Rescore, that reach a recall on
// real queries, against an exact search. SaveSettings keeps the result.
func (x *Index) Tune(ctx context.Context, queries [][]float32, o TuneOptions) (*TuneResult, error) {
	o.K, o.MaxEf, o.Workers = or(o.K, 10), or(o.MaxEf, 4096), or(o.Workers, 1)
	if o.Recall == 0 {
		o.Recall = 0.95
	}
	if len(queries) == 0 || o.K < 1 || !(o.Recall > 0 && o.Recall <= 1) || o.MaxEf < o.K {
		return nil, fmt.Errorf("tune: %d queries, k %d, recall %g, largest ef %d", len(queries), o.K, o.Recall, o.MaxEf)
	}
	want, err := x.Exact(ctx, queries, o.K, o.Workers)
	if err != nil {
		return nil, err
	}
	r := &TuneResult{}
	try := func(ef, rescore int) (float64, error) {
		got, st, err := x.SearchBatch(ctx, queries, o.K, SearchOptions{Ef: ef, Rescore: rescore}, o.Workers)
		if err != nil {
			return 0, err
		}
		n := float64(len(queries))
		p := TunePoint{ef, rescore, Recall(got, want), float64(st.NodeReads) / n, float64(st.CodeReads) / n, float64(st.VectorReads) / n}
		r.Tried = append(r.Tried, p)
		return p.Recall, nil
	}
	full := func(ef int) int {
		if x.p.codes == NoCodes {
			return o.K
		}
		return ef
	}
	ef, err := least(o.K, o.MaxEf, o.Recall, func(ef int) (float64, error) { return try(ef, full(ef)) })
	if err != nil {
		return nil, err
	}
	rescore := o.K
	if x.p.codes != NoCodes {
		if rescore, err = least(o.K, ef, o.Recall, func(n int) (float64, error) { return try(ef, n) }); err != nil {
			return nil, err
		}
	}
	got, err := try(ef, rescore)
	if err != nil {
		return nil, err
	}
	r.Settings = Settings{Ef: ef, Rescore: rescore, Recall: got, K: o.K}
	return r, nil
}

// least is the smallest number in [lo, hi] that reaches the recall, found by doubling
// and halving; recall grows with it but for noise.
func least(lo, hi int, recall float64, try func(int) (float64, error)) (int, error) {
	bad, n := lo-1, lo
	for {
		got, err := try(n)
		if err != nil {
			return 0, err
		}
		if got >= recall {
			break
		}
		if bad = n; n >= hi {
			return 0, fmt.Errorf("%w: %.4f at %d, %.4f is wanted; a larger M or efConstruction, or finer codes", ErrRecall, got, n, recall)
		}
		n = min(2*n, hi)
	}
	for n-bad > max(1, n/64) {
		mid := (bad + n) / 2
		got, err := try(mid)
		if err != nil {
			return 0, err
		}
		if got >= recall {
			n = mid
		} else {
			bad = mid
		}
	}
	return n, nil
}

// Recall is the share of wanted rows among the rows got, over all queries. A row got
// with the score of the last wanted one counts for it: ties are equal.
func Recall(got, want [][]Hit) float64 {
	hit, all := 0, 0
	for i, w := range want {
		if len(w) == 0 {
			continue
		}
		all += len(w)
		floor := w[len(w)-1].Score
		n := 0
		for _, g := range got[i] {
			if g.Score >= floor {
				n++
			}
		}
		hit += min(n, len(w))
	}
	if all == 0 {
		return 1
	}
	return float64(hit) / float64(all)
}
