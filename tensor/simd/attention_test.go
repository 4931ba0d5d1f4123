package simd

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// Products of four rows with a cache are those of Gemm, bit for bit, and nothing outside
// is read into them or written.
func TestFourRows(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 9))
	if a := randomFloats(r, 64); !Scores4(make([]float32, 4), 1, a, 16, make([]float32, 16*16), 1, nil) {
		if Level >= AVX512 {
			t.Fatal("no kernel")
		}
		t.Skip("no kernel at this level: Gemm is used")
	}
	same := func(a, b []float32) bool {
		for i := range a {
			if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
				return false
			}
		}
		return true
	}
	for _, d := range []int{8, 64, 80, 128, 192} {
		for _, n := range []int{1, 15, 16, 17, 31, 32, 33, 48, 129, 400} {
			for _, odd := range []float32{0, float32(math.NaN()), float32(math.Inf(1))} {
				panels := (n + 15) / 16
				q, k, w, v := randomFloats(r, 4*d), randomFloats(r, panels*16*d), randomFloats(r, 4*n), randomFloats(r, n*(d+3))
				if odd != 0 {
					q[d+1], v[d/2] = odd, odd
				}
				for i := range k { // columns that are not there play no part
					if i/(16*d)*16+i%16 >= n {
						k[i] = float32(math.NaN())
					}
				}
				ld := n + 5
				got, want := make([]float32, 4*ld), make([]float32, 4*ld)
				g := Gemm{M: 4, N: n, K: d, A: q, ARow: d, AK: 1, B: k, C: want, CRow: ld}
				g.Run(0, 4, 0, panels)
				if !Scores4(got, ld, q, d, k, n, unsafe.Pointer(&v[0])) || !same(got, want) {
					t.Fatalf("scores of d = %d, n = %d differ", d, n)
				}
				for _, add := range []bool{false, true} {
					got, want := randomFloats(r, 4*d+1), make([]float32, 4*d+1)
					copy(want, got)
					g := Gemm{M: 4, N: d, K: n, A: w, ARow: n, AK: 1, B: v, BK: d + 3, Add: add, C: want, CRow: d}
					g.Run(0, 4, 0, (d+15)/16)
					if ok := Values4(got, d, w, n, v, d+3, n, add, nil); ok != (d%64 == 0) || ok && !same(got, want) {
						t.Fatalf("values of d = %d, n = %d (added: %v) differ", d, n, add)
					}
				}
			}
		}
	}
}

// The kernels round as plain Go does.
func TestRotate(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9))
	defer func(l ISA) { Level = l }(Level)
	for _, half := range []int{1, 7, 8, 16, 24, 32, 64} {
		for heads := 1; heads < 4; heads++ {
			stride := 2*half + heads - 1
			x, cos, sin := randomFloats(r, heads*stride), randomFloats(r, half), randomFloats(r, half)
			x[half/2] = float32(math.Inf(-1))
			var want []float32
			for _, Level = range Supported() {
				got := make([]float32, 2*half*heads+1)
				Rotate(got, x, stride, heads, cos, sin, 0.125)
				if got[2*half*heads] != 0 {
					t.Fatalf("%s: written behind the end", Level)
				}
				if want == nil {
					want = got
					for h := range heads {
						for j := range half {
							a, b := float64(x[h*stride+j]), float64(x[h*stride+half+j])
							y, z := (a*float64(cos[j])-b*float64(sin[j]))/8, (b*float64(cos[j])+a*float64(sin[j]))/8
							if d := math.Abs(float64(got[2*half*h+j]) - y); d > 1e-6 {
								t.Fatalf("half %d: %g, want %g", half, got[2*half*h+j], y)
							}
							if d := math.Abs(float64(got[2*half*h+half+j]) - z); d > 1e-6 {
								t.Fatalf("half %d: %g, want %g", half, got[2*half*h+half+j], z)
							}
						}
					}
				}
				for i, v := range got {
					if v != want[i] && (v == v || want[i] == want[i]) {
						t.Fatalf("%s, half %d, heads %d: element %d is %g, want %g", Level, half, heads, i, v, want[i])
					}
				}
			}
		}
	}
}
