package hnsw

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"rag2/internal/npy"
)

// writeRowsAs writes rows, changed by f, in some order.
func writeRowsAs(t *testing.T, dtype string, rows [][]float32, order []int, f func(x []float32) []float32) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "v.npy")
	w, err := npy.NewWriter(p, len(rows[0]), dtype)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range order {
		if err := w.WriteRow(f(slices.Clone(rows[i]))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return p
}

// What is done to the data must be seen in the answers, whatever the right answers are.
func TestMetamorphic(t *testing.T) {
	path, queries := write(t, 2500, 48, 21)
	rows := rowsOf(t, path)
	for i := range rows { // exact in float16, so that dtypes can be compared
		for j, x := range rows[i] {
			rows[i][j] = float32(math.Round(float64(x)*64) / 64)
		}
	}
	same := func(x []float32) []float32 { return x }
	times := func(f float32) func([]float32) []float32 {
		return func(x []float32) []float32 {
			for i := range x {
				x[i] *= f
			}
			return x
		}
	}
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	shuffled := rand.New(rand.NewPCG(3, 3)).Perm(len(rows))
	find := func(x *Index, q []float32, k int, o SearchOptions) []Hit {
		t.Helper()
		h, _, err := x.Search(context.Background(), q, k, o)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	mapped := func(hits []Hit, f func(Hit) Hit) []Hit {
		out := make([]Hit, len(hits))
		for i, h := range hits {
			out[i] = f(h)
		}
		return out
	}
	for _, m := range []Metric{InnerProduct, L2, Cosine} {
		for _, c := range []Codes{NoCodes, Int8, FourBit, OneBit, Principal} {
			o := BuildOptions{Metric: m, Codes: c, M: 8, EfConstruction: 60}
			x := open(t, writeRowsAs(t, "<f4", rows, order, same), o)
			half := open(t, writeRowsAs(t, "<f2", rows, order, same), o)
			large := open(t, writeRowsAs(t, "<f4", rows, order, times(4)), o)
			perm := open(t, writeRowsAs(t, "<f4", rows, shuffled, same), o)
			p1, p2 := writeRowsAs(t, "<f4", rows, order[:900], same), writeRowsAs(t, "<f4", rows, order[900:], same)
			parted := filepath.Join(t.TempDir(), "parted")
			if err := BuildShards(context.Background(), []string{p1, p2}, parted, o); err != nil {
				t.Fatal(err)
			}
			two, err := Open(parted)
			if err != nil {
				t.Fatal(err)
			}
			defer two.Close()
			for qi, q := range queries {
				walk, exact := SearchOptions{Ef: 60}, SearchOptions{Exact: true}
				want := find(x, q, 10, walk)
				check := func(what string, got, want []Hit) {
					t.Helper()
					if !slices.Equal(got, want) {
						t.Fatalf("%v, %v, query %d, %s:\n%v, want\n%v", m, c, qi, what, got, want)
					}
				}
				check("float16 of the same values", find(half, q, 10, walk), want)
				check("rows in two files", find(two, q, 10, walk), want)
				// Powers of two change no rounding: rows and queries four times as long.
				longer := times(4)(slices.Clone(q))
				f := map[Metric]float32{InnerProduct: 16, L2: 16, Cosine: 1}[m]
				check("all four times as long", find(large, longer, 10, walk), mapped(want, func(h Hit) Hit { return Hit{h.Row, h.Score * f} }))
				if m != L2 {
					f := map[Metric]float32{InnerProduct: 4, Cosine: 1}[m]
					check("a longer query", find(x, longer, 10, walk), mapped(want, func(h Hit) Hit { return Hit{h.Row, h.Score * f} }))
				}
				all := find(x, q, 10, exact)
				check("fewer", find(x, q, 4, exact), all[:4])
				check("the best left out", find(x, q, 9, SearchOptions{Exact: true, Deny: NewRowSet(all[0].Row)}), all[1:])
				check("only these", find(x, q, 10, SearchOptions{Allow: NewRowSet(all[1].Row, all[7].Row)}), []Hit{all[1], all[7]})
				back := mapped(find(perm, q, 10, exact), func(h Hit) Hit { return Hit{shuffled[h.Row], h.Score} })
				slices.SortFunc(back, better) // ties are by row
				check("rows in another order", back, all)
				for i, h := range want {
					if h.Score > all[i].Score {
						t.Fatalf("%v, %v: a walk's hit %d is better than the best: %v, %v", m, c, i, h, all[i])
					}
				}
			}
			if a, b := recall(t, x, queries, 60), recall(t, perm, queries, 60); math.Abs(a-b) > 0.05 {
				t.Errorf("%v, %v: recall %.3f, of rows in another order %.3f", m, c, a, b)
			}
		}
	}
}
