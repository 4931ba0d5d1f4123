package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"rag2/tensor/simd"
)

func TestPCA(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var rows [][]float32
	for range 3000 {
		a, b := float32(3*rng.NormFloat64()), float32(rng.NormFloat64())
		rows = append(rows, []float32{5 + a, 1 + a, b, 0.1 * float32(rng.NormFloat64())})
	}
	mean, basis, spectrum := pca(rows)
	if math.Abs(float64(mean[0])-5) > 0.3 || math.Abs(spectrum[0]-18) > 2 || math.Abs(spectrum[1]-1) > 0.2 || spectrum[3] > 0.02 {
		t.Errorf("mean %v, spectrum %v", mean, spectrum)
	}
	if b := basis[0]; math.Abs(math.Abs(float64(b[0]))-math.Sqrt(0.5)) > 0.02 || b[0]*b[1] < 0 {
		t.Errorf("first direction %v", b)
	}
}

func TestTurnKeepsProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	turn := newTurn(96, rng)
	a, b := make([]float32, 96), make([]float32, 96)
	for i := range a {
		a[i], b[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
	}
	want := simd.Dot(a, b)
	buf := make([]float32, 96)
	turn(a, buf)
	turn(b, buf)
	if got := simd.Dot(a, b); math.Abs(float64(got-want)) > 1e-3 {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAt(t *testing.T) {
	c := curve{{Recall: 0.9, QPS: 4000}, {Recall: 0.96, QPS: 2000}, {Recall: 0.99, QPS: 1000}}
	if q := c.at(0.96); math.Abs(q-2000) > 1 {
		t.Error(q)
	}
	if q := c.at(0.93); q < 2500 || q > 3100 {
		t.Error(q)
	}
	if q := c.at(0.999); q != 0 {
		t.Error(q)
	}
}

func TestFit(t *testing.T) {
	var p []scalePoint
	for _, n := range []int{1000, 2000, 4000, 8000} {
		p = append(p, scalePoint{Rows: n, Codes: 3 * math.Pow(float64(n), 0.5)})
	}
	a, b, w := fit(p)
	if math.Abs(a-math.Log(3)) > 1e-9 || math.Abs(b-0.5) > 1e-9 || w(20) > 1e-6 {
		t.Error(a, b, w(20))
	}
}
