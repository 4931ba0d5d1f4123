package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestArgMax(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 9))
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	if ArgMax(nil) != 0 || ArgMax([]float32{nan, nan}) != 0 || ArgMax([]float32{nan, -inf, nan}) != 1 {
		t.Fatal("of nothing, or of NaN")
	}
	for range 300 {
		x := randomFloats(r, 1+r.IntN(5000))
		for range r.IntN(4) {
			x[r.IntN(len(x))] = []float32{nan, inf, -inf, 9}[r.IntN(4)]
		}
		want := -1
		for i, v := range x {
			if v == v && (want < 0 || v > x[want]) {
				want = i
			}
		}
		if got := ArgMax(x); got != max(want, 0) {
			t.Fatalf("%d of %d, want %d", got, len(x), want)
		}
	}
}
