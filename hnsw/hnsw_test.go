package hnsw

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"rag2/internal/npy"
	"rag2/internal/shared"
)

// write makes an .npy of n vectors of dim d with norms spread over 1…10 in clusters.
func write(t testing.TB, n, d int, seed uint64) (path string, queries [][]float32) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	centres := make([][]float32, 40)
	for i := range centres {
		centres[i] = make([]float32, d)
		for j := range centres[i] {
			centres[i][j] = float32(rng.NormFloat64())
		}
	}
	vec := func(norm float64) []float32 {
		c := centres[rng.IntN(len(centres))]
		v := make([]float32, d)
		s := 0.0
		for j := range v {
			v[j] = c[j] + 0.7*float32(rng.NormFloat64())
			s += float64(v[j] * v[j])
		}
		for j := range v {
			v[j] *= float32(norm / math.Sqrt(s))
		}
		return v
	}
	path = filepath.Join(t.TempDir(), "v.npy")
	w, err := npy.NewWriter(path, d, "<f4")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := w.WriteRow(vec(1 + 9*rng.Float64())); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		queries = append(queries, vec(1))
	}
	return path, queries
}

func open(t testing.TB, vectors string, o BuildOptions) *Index {
	t.Helper()
	g := filepath.Join(t.TempDir(), "g.hnsw")
	if err := Build(context.Background(), vectors, g, o); err != nil {
		t.Fatal(err)
	}
	x, err := Open(g, vectors)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	if err := x.Verify(context.Background()); err != nil {
		t.Fatal(err)
	}
	return x
}

func recall(t testing.TB, x *Index, queries [][]float32, ef int) float64 {
	t.Helper()
	hit, all := 0, 0
	for _, q := range queries {
		want, _, err := x.Search(context.Background(), q, 10, SearchOptions{Exact: true})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := x.Search(context.Background(), q, 10, SearchOptions{Ef: ef})
		if err != nil {
			t.Fatal(err)
		}
		in := map[int]bool{}
		for _, h := range got {
			in[h.Row] = true
		}
		for _, h := range want {
			all++
			if in[h.Row] {
				hit++
			}
		}
	}
	return float64(hit) / float64(all)
}

func TestRecallOnSpreadNorms(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	path, queries := write(t, 3000, 48, 1)
	x := open(t, path, BuildOptions{})
	if r := recall(t, x, queries, 200); r < 0.95 {
		t.Errorf("recall@10 %.3f", r)
	}
}

// Questions and explanations against a sixth of the real passages; the thresholds
// are a little under what was measured when they were set.
func TestRecallOnRealQuestions(t *testing.T) {
	vectors, questions, explanations := shared.Data(t, "vectors/passages.npy"), shared.Data(t, "vectors/questions.npy"), shared.Data(t, "vectors/explanations.npy")
	if testing.Short() {
		t.Skip("builds graphs of 4,000 × 384")
	}
	all := rowsOf(t, vectors)
	p := filepath.Join(t.TempDir(), "part.npy")
	w, err := npy.NewWriter(p, len(all[0]), "<f2")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(all); i += 6 {
		if err := w.WriteRow(all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	every := func(path string, step int) (out [][]float32) {
		r := rowsOf(t, path)
		for i := 0; i < len(r); i += step {
			out = append(out, r[i])
		}
		return out
	}
	qs, es := every(questions, 10), every(explanations, 10)
	for _, c := range []struct {
		codes Codes
		ef    int
		q, e  float64
	}{{NoCodes, 60, 0.99, 0.993}, {FourBit, 60, 0.99, 0.993}, {OneBit, 120, 0.993, 0.993}, {Principal, 70, 0.99, 0.993}} {
		x := open(t, p, BuildOptions{Codes: c.codes})
		q, e := recall(t, x, qs, c.ef), recall(t, x, es, c.ef)
		t.Logf("%v, ef %d: questions %.4f, explanations %.4f", c.codes, c.ef, q, e)
		if q < c.q || e < c.e {
			t.Errorf("%v, ef %d: questions %.4f, explanations %.4f", c.codes, c.ef, q, e)
		}
	}
}

// 60 near-duplicates, then 20 distant points: all must be reachable.
func TestDuplicatesStayReachable(t *testing.T) {
	p := filepath.Join(t.TempDir(), "v.npy")
	w, err := npy.NewWriter(p, 8, "<f4")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		v := []float32{1, 0, 0, 0, 0, 0, 0, 0}
		if i >= 60 && i < 80 {
			v = []float32{0, float32(i), -3, 0, 1, 0, 0, 5}
		} else if i%3 == 0 {
			v[1] = float32(i) * 1e-6
		}
		if err := w.WriteRow(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	open(t, p, BuildOptions{}) // open verifies reachability
	open(t, p, BuildOptions{M: 2, EfConstruction: 4})
}

func TestSameFileTwice(t *testing.T) {
	path, _ := write(t, 400, 16, 2)
	var files [][]byte
	for range 2 {
		g := filepath.Join(t.TempDir(), "g")
		if err := Build(context.Background(), path, g, BuildOptions{Seed: 9}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(g)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("two builds differ")
	}
}

func TestSearchEdges(t *testing.T) {
	ctx := context.Background()
	path, queries := write(t, 100, 16, 3)
	x := open(t, path, BuildOptions{})
	for _, k := range []int{1, 10, 100, 1000} {
		h, _, err := x.Search(ctx, queries[0], k, SearchOptions{Ef: 1})
		if err != nil || len(h) != min(k, 100) {
			t.Errorf("k %d: %d hits, %v", k, len(h), err)
		}
	}
	h, st, err := x.Search(ctx, queries[0], 5, SearchOptions{Keep: func(r int) bool { return r%50 == 7 }})
	if err != nil || len(h) != 2 || !st.Exact {
		t.Errorf("filter: %v %v", h, err)
	}
	nan := append([]float32(nil), queries[0]...)
	nan[3] = float32(math.NaN())
	for name, q := range map[string][]float32{"zero": make([]float32, 16), "NaN": nan} {
		if _, _, err := x.Search(ctx, q, 5, SearchOptions{}); !errors.Is(err, ErrVector) {
			t.Errorf("%s query: %v", name, err)
		}
	}
	if _, _, err := x.Search(ctx, []float32{1}, 5, SearchOptions{}); !errors.Is(err, ErrDim) {
		t.Error(err)
	}
	if _, _, err := x.Search(ctx, queries[0], 0, SearchOptions{}); err == nil {
		t.Error("k 0")
	}
	empty, _ := write(t, 0, 16, 4)
	e := open(t, empty, BuildOptions{})
	if h, _, err := e.Search(ctx, queries[0], 5, SearchOptions{}); err != nil || len(h) != 0 {
		t.Errorf("empty index: %v %v", h, err)
	}
	p := filepath.Join(t.TempDir(), "z.npy")
	w, _ := npy.NewWriter(p, 4, "<f4")
	_ = w.WriteRow([]float32{1, 2, 3, 4})
	_ = w.WriteRow(make([]float32, 4))
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := Build(ctx, p, filepath.Join(t.TempDir(), "g"), BuildOptions{}); !errors.Is(err, ErrVector) {
		t.Errorf("zero vector: %v", err)
	}
}

func TestManyGoroutines(t *testing.T) {
	path, queries := write(t, 500, 16, 5)
	x := open(t, path, BuildOptions{})
	want, _, err := x.Search(context.Background(), queries[0], 10, SearchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			got, _, err := x.Search(context.Background(), queries[0], 10, SearchOptions{})
			if err != nil || len(got) != len(want) || got[9] != want[9] {
				t.Errorf("%v %v", got, err)
			}
		}()
	}
	wg.Wait()
}

func TestDamagedFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	path, queries := write(t, 300, 16, 6)
	g := filepath.Join(t.TempDir(), "g")
	if err := Build(context.Background(), path, g, BuildOptions{}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(g)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte) {
		if err := os.WriteFile(g, b, 0o644); err != nil {
			t.Fatal(err)
		}
		x, err := Open(g, path)
		if err != nil {
			return
		}
		defer x.Close()
		if err := x.Verify(context.Background()); err == nil {
			t.Errorf("%s was not noticed", what)
		}
		_, _, _ = x.Search(context.Background(), queries[0], 5, SearchOptions{})
	}
	for _, n := range []int{0, 5, 60, 127, 128, 1000, len(good) - 1} {
		check("cut", good[:n])
	}
	for i := 0; i < len(good); i += 1 + len(good)/200 {
		b := bytes.Clone(good)
		b[i] ^= 0xA5
		check("flip", b)
	}
	other, _ := write(t, 299, 16, 6)
	if err := os.WriteFile(g, good, 0o644); err != nil {
		t.Fatal(err)
	}
	var c *ErrCorrupt
	if _, err := Open(g, other); !errors.As(err, &c) {
		t.Errorf("vectors of another index: %v", err)
	}
}

func BenchmarkSearch(b *testing.B) {
	path, queries := write(b, 5000, 384, 7)
	x := open(b, path, BuildOptions{EfConstruction: 64})
	for _, exact := range []bool{false, true} {
		b.Run(map[bool]string{false: "graph", true: "exact"}[exact], func(b *testing.B) {
			i := 0
			for b.Loop() {
				if _, _, err := x.Search(context.Background(), queries[i%50], 10, SearchOptions{Exact: exact}); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
