package hnswtest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"sync"
	"testing"

	"rag2/hnsw"
	"rag2/internal/npy"
)

// Index is what the suite asks of an implementation.
type Index interface {
	// Search returns up to k rows, nearest first, looking at about ef candidates.
	Search(ctx context.Context, q []float32, k, ef int) ([]hnsw.Hit, error)
	Close() error
}

// Maker builds an index of the vectors in an .npy file.
type Maker func(ctx context.Context, npyPath string, metric hnsw.Metric) (Index, error)

// Kind is a data set of the suite.
type Kind struct {
	Name   string
	Metric hnsw.Metric
	Make   func(rng *rand.Rand) (rows, queries [][]float32)
	Ef     int
	Recall float64 // recall@10 that must be reached
}

// vector is a normal vector around a centre, of the given length (0 = as it is).
func vector(rng *rand.Rand, centre []float32, spread, norm float64) []float32 {
	v := make([]float32, len(centre))
	s := 0.0
	for j := range v {
		v[j] = centre[j] + float32(spread*rng.NormFloat64())
		s += float64(v[j]) * float64(v[j])
	}
	if norm > 0 {
		for j := range v {
			v[j] *= float32(norm / math.Sqrt(s))
		}
	}
	return v
}

func centres(rng *rand.Rand, n, dim int) [][]float32 {
	out := make([][]float32, n)
	for i := range out {
		out[i] = vector(rng, make([]float32, dim), 1, 0)
	}
	return out
}

func clusters(n, dim, k int, spread, lo, hi float64) func(*rand.Rand) ([][]float32, [][]float32) {
	return func(rng *rand.Rand) (rows, queries [][]float32) {
		cs := centres(rng, k, dim)
		draw := func() []float32 {
			norm := 0.0
			if hi > 0 {
				norm = lo + (hi-lo)*rng.Float64()
			}
			return vector(rng, cs[rng.IntN(k)], spread, norm)
		}
		for range n {
			rows = append(rows, draw())
		}
		for range 40 {
			queries = append(queries, draw())
		}
		return rows, queries
	}
}

// Kinds are the suite's data sets.
var Kinds = []Kind{
	{"ip, norms 1 to 10", hnsw.InnerProduct, clusters(1500, 48, 20, 0.7, 1, 10), 200, 0.95},
	{"ip, far from the origin", hnsw.InnerProduct, func(rng *rand.Rand) ([][]float32, [][]float32) {
		r, q := clusters(1200, 40, 15, 0.5, 0, 0)(rng)
		for _, v := range r {
			v[0] += 30
		}
		return r, q
	}, 300, 0.95},
	{"l2, clusters", hnsw.L2, clusters(1500, 33, 20, 0.5, 0, 0), 200, 0.97},
	{"cosine, norms 1 to 10", hnsw.Cosine, clusters(1500, 48, 20, 0.7, 1, 10), 200, 0.97},
	{"l2, two dimensions", hnsw.L2, clusters(1200, 2, 5, 1, 0, 0), 100, 0.97},
	{"l2, half are copies", hnsw.L2, func(rng *rand.Rand) ([][]float32, [][]float32) {
		r, q := clusters(700, 24, 10, 0.5, 0, 0)(rng)
		for i := range 700 {
			r = append(r, r[i%37])
		}
		return r, q
	}, 200, 0.97},
}

// WriteNPY puts rows into a file of a test's own folder.
func WriteNPY(t testing.TB, dtype string, rows [][]float32) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "v.npy")
	w, err := npy.NewWriter(p, len(rows[0]), dtype)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := w.WriteRow(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return p
}

// score in float64, independent of the module's kernels.
func score(m hnsw.Metric, q, x []float32) float64 {
	var dot, qq, xx, d float64
	for i := range q {
		a, b := float64(q[i]), float64(x[i])
		dot += a * b
		qq += a * a
		xx += b * b
		d += (a - b) * (a - b)
	}
	switch m {
	case hnsw.L2:
		return -d
	case hnsw.Cosine:
		return dot / math.Sqrt(qq*xx)
	}
	return dot
}

// Failure is what went wrong with one data set.
type Failure struct {
	Kind string
	Err  error
}

// Measure runs the recall part of the suite and returns what failed, so that a peer's
// failure can be recorded instead of failing a test.
func Measure(t testing.TB, mk Maker) []Failure {
	t.Helper()
	var out []Failure
	for i, k := range Kinds {
		r, err := Recall(t, mk, k, uint64(i))
		if err == nil && r < k.Recall {
			err = fmt.Errorf("recall@10 %.3f at ef %d, %.2f is needed", r, k.Ef, k.Recall)
		}
		if err != nil {
			out = append(out, Failure{k.Name, err})
		}
	}
	return out
}

// Recall is the recall@10 of one data set against float64 arithmetic; rows that tie
// with the last right one count.
func Recall(t testing.TB, mk Maker, k Kind, seed uint64) (float64, error) {
	t.Helper()
	rows, queries := k.Make(rand.New(rand.NewPCG(seed, 99)))
	x, err := mk(context.Background(), WriteNPY(t, "<f4", rows), k.Metric)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	hits := 0
	for _, q := range queries {
		all := make([]float64, len(rows))
		for i, r := range rows {
			all[i] = score(k.Metric, q, r)
		}
		sorted := append([]float64(nil), all...)
		sort.Sort(sort.Reverse(sort.Float64Slice(sorted)))
		floor := sorted[9] - 1e-5*(1+math.Abs(sorted[9]))
		got, err := x.Search(context.Background(), q, 10, k.Ef)
		if err != nil {
			return 0, err
		}
		seen := map[int]bool{}
		for _, h := range got {
			if h.Row < 0 || h.Row >= len(rows) || seen[h.Row] {
				return 0, fmt.Errorf("row %d is returned twice or does not exist", h.Row)
			}
			seen[h.Row] = true
			if s := all[h.Row]; math.Abs(s-float64(h.Score)) > 1e-3*(1+math.Abs(s)) {
				return 0, fmt.Errorf("row %d has score %g, not %g", h.Row, h.Score, s)
			}
			if all[h.Row] >= floor {
				hits++
			}
		}
	}
	return float64(hits) / float64(10*len(queries)), nil
}

// Run is the whole suite.
func Run(t *testing.T, mk Maker) {
	for i, k := range Kinds {
		t.Run(k.Name, func(t *testing.T) {
			r, err := Recall(t, mk, k, uint64(i))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("recall@10 %.3f", r)
			if r < k.Recall {
				t.Errorf("recall@10 %.3f at ef %d, %.2f is needed", r, k.Ef, k.Recall)
			}
		})
	}
	t.Run("every row is found", func(t *testing.T) { everyRow(t, mk) })
	t.Run("edges", func(t *testing.T) { edges(t, mk) })
	t.Run("goroutines", func(t *testing.T) { goroutines(t, mk) })
}

// everyRow: 60 near-duplicates, then 20 distant points; each row is its own nearest.
func everyRow(t *testing.T, mk Maker) {
	rng := rand.New(rand.NewPCG(3, 3))
	var rows [][]float32
	base := vector(rng, make([]float32, 8), 1, 1)
	for range 60 {
		rows = append(rows, vector(rng, base, 1e-3, 0))
	}
	for i := range 20 {
		rows = append(rows, vector(rng, make([]float32, 8), 10+float64(i), 0))
	}
	x, err := mk(context.Background(), WriteNPY(t, "<f4", rows), hnsw.L2)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for i, r := range rows {
		h, err := x.Search(context.Background(), r, 1, 80)
		if err != nil || len(h) != 1 || h[0].Row != i {
			t.Errorf("row %d: %v %v", i, h, err)
		}
	}
}

func edges(t *testing.T, mk Maker) {
	ctx := context.Background()
	rows, queries := clusters(120, 16, 5, 0.5, 0, 0)(rand.New(rand.NewPCG(4, 4)))
	x, err := mk(ctx, WriteNPY(t, "<f4", rows), hnsw.InnerProduct)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for _, k := range []int{1, 10, 119, 120, 500} {
		h, err := x.Search(ctx, queries[0], k, 1)
		if err != nil || len(h) != min(k, 120) {
			t.Errorf("k %d: %d hits, %v", k, len(h), err)
		}
		for i := 1; i < len(h); i++ {
			if h[i].Score > h[i-1].Score || h[i].Score == h[i-1].Score && h[i].Row < h[i-1].Row {
				t.Errorf("k %d: hits %d and %d are out of order", k, i-1, i)
			}
		}
	}
	nan, inf := append([]float32(nil), queries[0]...), append([]float32(nil), queries[0]...)
	nan[3], inf[0] = float32(math.NaN()), float32(math.Inf(1))
	for name, q := range map[string][]float32{"zero": make([]float32, 16), "NaN": nan, "Inf": inf, "short": {1}, "none": nil} {
		if _, err := x.Search(ctx, q, 5, 50); err == nil {
			t.Errorf("%s query accepted", name)
		}
	}
	if _, err := x.Search(ctx, queries[0], 0, 50); err == nil {
		t.Error("k 0 accepted")
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := x.Search(done, queries[0], 5, 50); err == nil {
		t.Error("a cancelled search succeeded")
	}
	one, err := mk(ctx, WriteNPY(t, "<f4", rows[:1]), hnsw.Cosine)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if h, err := one.Search(ctx, queries[0], 3, 3); err != nil || len(h) != 1 {
		t.Errorf("one row: %v %v", h, err)
	}
}

func goroutines(t *testing.T, mk Maker) {
	rows, queries := clusters(800, 16, 5, 0.5, 0, 0)(rand.New(rand.NewPCG(5, 5)))
	x, err := mk(context.Background(), WriteNPY(t, "<f2", rows), hnsw.InnerProduct)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	want := make([][]hnsw.Hit, len(queries))
	for i, q := range queries {
		if want[i], err = x.Search(context.Background(), q, 10, 60); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range queries {
				i = (i + g) % len(queries)
				got, err := x.Search(context.Background(), queries[i], 10, 60)
				if err != nil || fmt.Sprint(got) != fmt.Sprint(want[i]) {
					t.Errorf("query %d in goroutine %d: %v %v", i, g, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
