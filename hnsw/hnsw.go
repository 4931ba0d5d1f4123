package hnsw

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"rag2/internal/mmapfile"
	"rag2/internal/npy"
	"rag2/tensor/simd"
)

// Errors of queries and files.
var (
	ErrVector  = errors.New("vector is zero, NaN or infinite")
	ErrDim     = errors.New("wrong number of dimensions")
	ErrNotOurs = errors.New("not a rag2 graph file")
	ErrVersion = errors.New("graph file of another version")
)

// ErrCorrupt reports a damaged graph file.
type ErrCorrupt struct {
	File, Section string
	Offset        int64
	Reason        string
}

func (e *ErrCorrupt) Error() string {
	return fmt.Sprintf("%s: %s at byte %d: %s; rebuild the index", e.File, e.Section, e.Offset, e.Reason)
}

// Hit is a row with its inner product with the query.
type Hit struct {
	Row   int
	Score float32
}

// better orders hits: higher score first, then lower row.
func better(a, b Hit) int {
	if a.Score != b.Score {
		if a.Score > b.Score {
			return -1
		}
		return 1
	}
	return a.Row - b.Row
}

// checkVector refuses what has no direction.
func checkVector(v []float32) (norm2 float64, err error) {
	for _, x := range v {
		norm2 += float64(x) * float64(x)
	}
	if norm2 == 0 || math.IsNaN(norm2) || math.IsInf(norm2, 0) {
		return norm2, ErrVector
	}
	return norm2, nil
}

// topK keeps the k best hits seen.
type topK struct {
	k    int
	hits []Hit // a heap, worst at 0
}

func (t *topK) offer(h Hit) {
	if len(t.hits) < t.k {
		t.hits = append(t.hits, h)
		for i := len(t.hits) - 1; i > 0; {
			p := (i - 1) / 2
			if better(t.hits[i], t.hits[p]) <= 0 {
				break
			}
			t.hits[i], t.hits[p] = t.hits[p], t.hits[i]
			i = p
		}
		return
	}
	if better(h, t.hits[0]) >= 0 {
		return
	}
	t.hits[0] = h
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(t.hits) {
			return
		}
		if c+1 < len(t.hits) && better(t.hits[c+1], t.hits[c]) > 0 {
			c++
		}
		if better(t.hits[i], t.hits[c]) >= 0 {
			return
		}
		t.hits[i], t.hits[c] = t.hits[c], t.hits[i]
		i = c
	}
}

func (t *topK) sorted() []Hit {
	slices.SortFunc(t.hits, better)
	return t.hits
}

// Exact scans all rows of a and returns the k with the largest inner product,
// best first, ties by row. keep, if not nil, filters rows.
func Exact(ctx context.Context, a *npy.Array, q []float32, k int, keep func(row int) bool) ([]Hit, error) {
	if len(q) != a.Cols() {
		return nil, fmt.Errorf("query has %d, vectors %d: %w", len(q), a.Cols(), ErrDim)
	}
	if _, err := checkVector(q); err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	if k < 1 {
		return nil, fmt.Errorf("k is %d, at least 1 is needed", k)
	}
	t := topK{k: min(k, a.Rows())}
	if t.k == 0 {
		return nil, nil
	}
	err := mmapfile.Guard(func() error {
		var buf []float32
		for i := range a.Rows() {
			if i%4096 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if keep != nil && !keep(i) {
				continue
			}
			buf = a.Row32(i, buf)
			t.offer(Hit{i, simd.Dot(q, buf)})
		}
		return nil
	})
	return t.sorted(), err
}
