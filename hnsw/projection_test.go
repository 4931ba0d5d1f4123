package hnsw

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rag2/internal/npy"
	"rag2/tensor/simd"
)

// decaying writes rows whose variance falls from direction to direction, turned, as
// that of embeddings does.
func decaying(t *testing.T, n, dim int) (string, [][]float32) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 5))
	signs := make([]float32, dim)
	for i := range signs {
		signs[i] = 1 - 2*float32(rng.IntN(2))
	}
	vec := func() []float32 {
		v := make([]float32, dim)
		for i := range v {
			v[i] = signs[i] * float32(rng.NormFloat64()*math.Exp(-8*float64(i)/float64(dim)))
		}
		simd.Hadamard(v)
		v[0] += 3 // a mean
		return v
	}
	p := filepath.Join(t.TempDir(), "v.npy")
	w, err := npy.NewWriter(p, dim, "<f4")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := w.WriteRow(vec()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	qs := make([][]float32, 20)
	for i := range qs {
		qs[i] = vec()
	}
	return p, qs
}

// On rows of falling variance, Principal codes err less than half as much as 1-bit
// codes of the same size, for every metric, and the matrix does not depend on workers.
func TestPrincipalError(t *testing.T) {
	path, qs := decaying(t, 2000, 256)
	for _, m := range []Metric{InnerProduct, L2, Cosine} {
		errors := map[Codes]float64{}
		for _, k := range []Codes{OneBit, Principal} {
			x := open(t, path, BuildOptions{Codes: k, Metric: m, EfConstruction: 30, M: 6})
			if k == Principal && codeStride(k, 256) != codeStride(OneBit, 256) {
				t.Error("not the size of 1-bit codes")
			}
			var s searcher
			ids, est := make([]uint32, 2000), make([]float32, 2000)
			for i := range ids {
				ids[i] = uint32(i)
			}
			sum, sum2 := 0.0, 0.0
			for _, q := range qs {
				x.walkT.prepare(&s.q, q)
				x.walkT.score(&s.q, est, ids)
				hits := make([]Hit, len(ids))
				for i := range hits {
					hits[i].Row = i
				}
				x.prepareFull(&s, q)
				x.trueScores(&s, q, hits)
				for i, h := range hits {
					e := float64(h.Score - est[i])
					sum, sum2 = sum+e, sum2+e*e
				}
			}
			n := float64(len(qs) * len(ids))
			errors[k] = math.Sqrt(sum2/n - sum/n*sum/n)
		}
		t.Logf("%v: %v", m, errors)
		if !(2*errors[Principal] < errors[OneBit]) {
			t.Errorf("%v: errors %v", m, errors)
		}
	}
	v, err := openVectors([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	mean := make([]float32, 256)
	one, err := newProjection(context.Background(), v, InnerProduct, mean, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	four, err := newProjection(context.Background(), v, InnerProduct, mean, 1, 4)
	if err != nil || !slices.Equal(one, four) {
		t.Errorf("four workers make another matrix than one (%v)", err)
	}
	for i := range 64 {
		for j := range i + 1 {
			want := 0.0
			if i == j {
				want = 1
			}
			if d := float64(simd.Dot(one[i*256:(i+1)*256], one[j*256:(j+1)*256])); math.Abs(d-want) > 1e-4 {
				t.Fatalf("rows %d and %d: product %v", i, j, d)
			}
		}
	}
}

// Rows that span fewer directions than a code has, and vectors shorter than a block.
func TestPrincipalOfFewDirections(t *testing.T) {
	for _, dim := range []int{3, 100, 300} {
		rng := rand.New(rand.NewPCG(6, 6))
		p := filepath.Join(t.TempDir(), "v.npy")
		w, err := npy.NewWriter(p, dim, "<f4")
		if err != nil {
			t.Fatal(err)
		}
		base := [3][]float32{make([]float32, dim), make([]float32, dim), make([]float32, dim)}
		for i := range base {
			for j := range base[i] {
				base[i][j] = float32(rng.NormFloat64())
			}
		}
		row := func() []float32 {
			v := make([]float32, dim)
			for i := range base {
				f := float32(rng.NormFloat64())
				for j := range v {
					v[j] += f * base[i][j]
				}
			}
			return v
		}
		for range 500 {
			if err := w.WriteRow(row()); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		qs := [][]float32{row(), row(), row()}
		if r := recall(t, open(t, p, BuildOptions{Codes: Principal}), qs, 60); r < 0.99 {
			t.Errorf("%d dimensions: recall %.3f", dim, r)
		}
	}
	// More dimensions than the matrix of products may have.
	p := filepath.Join(t.TempDir(), "v.npy")
	w, err := npy.NewWriter(p, maxPrincipalDim+1, "<f4")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteRow(append(make([]float32, maxPrincipalDim), 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	g := filepath.Join(t.TempDir(), "g")
	if err := Build(context.Background(), p, g, BuildOptions{Codes: Principal}); err == nil {
		t.Error("built")
	}
	if _, err := os.Stat(g); err == nil {
		t.Error("a refused build left a file")
	}
}

// Codes that cannot be made are refused before the work, not after it, and a stop is
// heard within the iteration.
func TestPrincipalRefusesAndStops(t *testing.T) {
	p, _ := write(t, 40, maxPrincipalDim+1, 1)
	rounds := 0
	err := Build(context.Background(), p, p+".hnsw", BuildOptions{Codes: Principal, Progress: func(int, int) { rounds++ }})
	if err == nil || !strings.Contains(err.Error(), "choose 1bit") || rounds > 0 {
		t.Errorf("build: %v after %d rounds", err, rounds)
	}
	if _, err := Plan(PlanOptions{Rows: 100, Dim: maxPrincipalDim + 1, Codes: Principal}); err == nil {
		t.Error("a plan for it was made")
	}
	if err := Build(context.Background(), p, p+".hnsw", BuildOptions{Codes: OneBit}); err != nil {
		t.Fatal(err)
	}
	if err := Recode(context.Background(), p+".hnsw", p+".pca", Principal); err == nil {
		t.Error("recoded")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	q := []float32{1, 2, 3, 4}
	if err := orthonormal(ctx, q, 2, 1); !errors.Is(err, context.Canceled) || q[0] != 1 {
		t.Errorf("stopped: %v, %v", err, q)
	}
}
