package hnsw

import (
	"context"
	"errors"
	"fmt"

	"rag2/internal/npy"
	"rag2/tensor/simd"
)

// Errors of queries and files.
var (
	ErrVector  = errors.New("vector is zero, NaN or infinite, or too long for float32")
	ErrDim     = errors.New("wrong number of dimensions")
	ErrNotOurs = errors.New("not a rag2 index file")
	ErrVersion = errors.New("index file of another version")
)

// ErrCorrupt reports a damaged file, or one that does not belong to its vectors.
type ErrCorrupt struct {
	File, Section string
	Offset        int64
	Reason        string
}

func (e *ErrCorrupt) Error() string {
	return fmt.Sprintf("%s: %s at byte %d: %s; rebuild the index", e.File, e.Section, e.Offset, e.Reason)
}

func checkQuery(q []float32, dim, k int) error {
	if len(q) != dim {
		return fmt.Errorf("query has %d, vectors %d: %w", len(q), dim, ErrDim)
	}
	if _, err := checkVector(q); err != nil {
		return fmt.Errorf("query: %w", err)
	}
	if k < 1 {
		return fmt.Errorf("k is %d, at least 1 is needed", k)
	}
	return nil
}

// Exact scans all rows of a and returns the k with the largest inner product,
// best first, ties by row. keep, if not nil, filters rows.
func Exact(ctx context.Context, a *npy.Array, q []float32, k int, keep func(row int) bool) ([]Hit, error) {
	v := &vectors{n: a.Rows(), dim: a.Cols(), shards: []shard{{a: a, rows: a.Rows()}}}
	v.tables()
	h, err := v.exact(ctx, InnerProduct, nil, [][]float32{q}, k, keep, 1)
	if err != nil {
		return nil, err
	}
	return h[0], nil
}

// exactBlock is the rows scored for all queries of a batch before the next ones.
const exactBlock = 48

// exact scans all rows for each query. Scores are those of single queries, bit for
// bit. norms is needed for Cosine: 1/|x|.
func (v *vectors) exact(ctx context.Context, metric Metric, norms []float32, qs [][]float32, k int, keep func(int) bool, workers int) ([][]Hit, error) {
	for _, q := range qs {
		if err := checkQuery(q, v.dim, k); err != nil {
			return nil, err
		}
	}
	if k = min(k, v.n); k == 0 {
		return make([][]Hit, len(qs)), nil
	}
	qs = scaled(qs, metric)
	// Rows are dealt to workers in runs; each worker has its own heaps.
	workers = max(min(workers, v.n/1024), 1)
	tops := make([][]topK, workers)
	err := parallel(ctx, workers, workers, func(ctx context.Context, w int) error {
		tops[w] = make([]topK, len(qs))
		for i := range tops[w] {
			tops[w][i].k = k
		}
		return v.scanRows(ctx, metric, norms, qs, tops[w], w*v.n/workers, (w+1)*v.n/workers, keep)
	})
	if err != nil {
		return nil, err
	}
	out := make([][]Hit, len(qs))
	for i := range qs {
		t := &tops[0][i]
		for w := 1; w < workers; w++ {
			for _, h := range tops[w][i].hits {
				t.offer(h)
			}
		}
		out[i] = t.sorted()
	}
	return out, nil
}

// scaled is the queries as the metric's scores use them.
func scaled(qs [][]float32, metric Metric) [][]float32 {
	if metric != Cosine {
		return qs
	}
	out := make([][]float32, len(qs))
	t := table{metric: Cosine}
	for i, q := range qs {
		var x query
		t.prepare(&x, q)
		out[i] = x.vec
	}
	return out
}

func (v *vectors) scanRows(ctx context.Context, metric Metric, norms []float32, qs [][]float32, tops []topK, from, to int, keep func(int) bool) error {
	if len(qs) >= gemmQueries && metric != L2 {
		return v.scanMany(ctx, metric, norms, qs, tops, from, to, keep)
	}
	d := v.dim
	store := make([]float32, exactBlock*d)
	var rows [exactBlock][]float32
	var ids [exactBlock]int
	var tile [6]float32
	offer := func(qi, id int, s float32) {
		if metric == Cosine {
			s *= norms[id]
		}
		if t := &tops[qi]; len(t.hits) < t.k || s >= t.hits[0].Score {
			t.offer(Hit{id, s})
		}
	}
	asked := from
	if keep != nil { // few rows may be read
		asked = to
	}
	for i := from; i < to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		asked = v.readAhead(i, asked, to)
		n := 0
		for scanned := 0; i < to && n < exactBlock && scanned < 1<<16; i++ {
			scanned++
			if keep == nil || keep(i) {
				rows[n], ids[n] = v.row(i, store[n*d:(n+1)*d]), i
				n++
			}
		}
		r := 0
		if metric != L2 {
			for ; r+3 <= n; r += 3 {
				qi := 0
				for ; qi+2 <= len(qs); qi += 2 {
					simd.DotTile(&tile, qs[qi], qs[qi+1], rows[r], rows[r+1], rows[r+2])
					for j := range 3 {
						offer(qi, ids[r+j], tile[j])
						offer(qi+1, ids[r+j], tile[3+j])
					}
				}
				for ; qi < len(qs); qi++ {
					for j := range 3 {
						offer(qi, ids[r+j], simd.Dot(qs[qi], rows[r+j]))
					}
				}
			}
		}
		for ; r < n; r++ {
			for qi, q := range qs {
				if metric == L2 {
					offer(qi, ids[r], -simd.L2(q, rows[r]))
				} else {
					offer(qi, ids[r], simd.Dot(q, rows[r]))
				}
			}
		}
	}
	return nil
}
