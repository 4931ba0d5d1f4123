package simd

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func int8Rows(m, k int) *Int8Rows {
	q := &Int8Rows{}
	q.Resize(m, k)
	return q
}

// The product is exact for the quantised integers, also at the extremes that would
// saturate 16 bits if a bit more were used.
func TestInt8Exact(t *testing.T) { eachLevel(t, testInt8Exact) }

func testInt8Exact(t *testing.T) {
	wmax, amax := int8Limits()
	r := rand.New(rand.NewPCG(6, 6))
	for _, s := range [][3]int{{1, 1, 1}, {2, 17, 7}, {3, 16, 8}, {5, 40, 33}, {9, 31, 100}, {23, 33, 64}, {4, 16, 3072}, {14, 50, 129}, {25, 16, 300}} {
		m, n, k := s[0], s[1], s[2]
		for _, extreme := range []bool{false, true} {
			b, a := randomFloats(r, k*n), randomFloats(r, m*k)
			if extreme {
				for i := range b {
					b[i] = float32(1 - i%2*2)
				}
				for i := range a {
					a[i] = 1 // all at the upper end
				}
			}
			w := QuantizeWeights(b, k, n, n, 1)
			q := int8Rows(m, k)
			for i := range m {
				q.Set(i, a[i*k:(i+1)*k])
			}
			c := make([]float32, m*n)
			bias := randomFloats(r, n)
			w.Run(q, bias, c, n, 0, m, 0, (n+15)/16)
			for i := range m {
				for j := range n {
					want := float64(bias[j])
					for l := range k {
						_, ints, scale := w.block(j/16, l/Int8Group)
						v := ints[(l%Int8Group/4*16+j%16)*4+l%4]
						if float32(v) > wmax || float32(v) < -wmax {
							t.Fatalf("weight %d", v)
						}
						x := q.Data[i*RowBytes(k)+l]
						if float32(x) > amax {
							t.Fatalf("activation %d", x)
						}
						g := l / Int8Group
						want += float64(v) * float64(int32(x)-q.Zero[g*m+i]) * float64(scale[j%16]) * float64(q.Scale[g*m+i])
					}
					if d := math.Abs(float64(c[i*n+j]) - want); d > 1e-5*(1+math.Abs(want)) {
						t.Fatalf("%v extreme %v: c[%d,%d] = %g, want %g", s, extreme, i, j, c[i*n+j], want)
					}
				}
			}
		}
	}
}

// Quantisation is close, and a row does not depend on the others.
func TestInt8Accuracy(t *testing.T) { eachLevel(t, testInt8Accuracy) }

func testInt8Accuracy(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	const m, n, k = 29, 64, 776
	b, a := randomFloats(r, k*n), randomFloats(r, m*k)
	w := QuantizeWeights(b, k, n, n, 1)
	q, one := int8Rows(m, k), int8Rows(1, k)
	c, d := make([]float32, m*n), make([]float32, n)
	for i := range m {
		q.Set(i, a[i*k:(i+1)*k])
	}
	w.Run(q, nil, c, n, 0, m, 0, n/16)
	var dot, x2, y2 float64
	for i := range m {
		one.Set(0, a[i*k:(i+1)*k])
		w.Run(one, nil, d, n, 0, 1, 0, n/16)
		for j := range n {
			if d[j] != c[i*n+j] {
				t.Fatalf("row %d alone differs", i)
			}
			want := 0.0
			for l := range k {
				want += float64(a[i*k+l]) * float64(b[l*n+j])
			}
			dot += want * float64(d[j])
			x2 += want * want
			y2 += float64(d[j]) * float64(d[j])
		}
	}
	if cos := dot / math.Sqrt(x2*y2); cos < 0.9995 {
		t.Errorf("cosine %g", cos)
	}
}

func TestInt8Awkward(t *testing.T) {
	for _, x := range [][]float32{make([]float32, 40), {1e-45, 0}, {3e38, -3e38}, {inf, 1}, {nan, 1}, {5, 5, 5}, {-5, -5}} {
		q := int8Rows(1, len(x))
		q.Set(0, x)
		for i, v := range x {
			got := q.Scale[0] * float32(int32(q.Data[i])-q.Zero[0])
			finite := v-v == 0 && x[0]-x[0] == 0 && float64(x[0])-float64(x[1]) < 3.4e38
			if finite && math.Abs(float64(got-v)) > 0.01*math.Abs(float64(v))+1e-30 {
				t.Errorf("%v: %g became %g", x, v, got)
			}
			if !finite && x[0] != 3e38 && got == got {
				t.Errorf("%v: not a number became %g", x, got)
			}
		}
	}
}

// A row quantised whole is what its groups are one by one, whatever is in them.
func TestInt8Groups(t *testing.T) { eachLevel(t, testInt8Groups) }

func testInt8Groups(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 8))
	group := func(kind int) []float32 {
		x := randomFloats(r, Int8Group)
		at := r.IntN(Int8Group)
		for i := range x {
			switch kind {
			case 1:
				x[i] = 0
			case 2:
				x[i] = float32(math.Abs(float64(x[i])))
			case 3:
				x[i] = -float32(math.Abs(float64(x[i])))
			case 4:
				x[i] *= 1e-43
			case 5:
				x[i] *= 1e-38
			case 6:
				x[i] *= 1e38
			case 7:
				x[i] = 3
			}
		}
		switch kind {
		case 8:
			x[at] = nan
		case 9:
			x[at] = inf
		case 10:
			x[at] = -inf
		case 11:
			x[at], x[(at+1)%Int8Group] = 3.4e38, -3.4e38
		case 12:
			x[at] = 3.4e38
		case 13:
			x[at] = float32(math.Copysign(0, -1))
		}
		return x
	}
	for range 300 {
		n := 1 + r.IntN(9)
		var x []float32
		for range n {
			x = append(x, group(r.IntN(28))...)
		}
		x = x[:len(x)-r.IntN(2)*r.IntN(Int8Group)]
		q := int8Rows(3, len(x))
		q.Set(1, x)
		for g := range int8Groups(len(x)) {
			part := x[g*Int8Group : min(len(x), (g+1)*Int8Group)]
			want := make([]byte, len(part))
			scale, zero := quantizeGroup(want, part)
			got := q.Data[RowBytes(len(x))+g*Int8Group:][:len(part)]
			if s, z := q.Scale[g*3+1], q.Zero[g*3+1]; math.Float32bits(s) != math.Float32bits(scale) && (s == s || scale == scale) || z != zero || !bytes.Equal(got, want) {
				t.Fatalf("group %d of %d: scale %g zero %d, want %g and %d; %v, want %v", g, n, s, z, scale, zero, got, want)
			}
		}
	}
}

func BenchmarkInt8Rows(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	x := randomFloats(r, 3072)
	q := int8Rows(1, len(x))
	for b.Loop() {
		q.Set(0, x)
	}
	b.SetBytes(int64(4 * len(x)))
}

func BenchmarkInt8(b *testing.B) {
	for _, s := range [][3]int{{1024, 768, 768}, {1024, 768, 3072}, {32, 768, 768}} {
		b.Run(fmt.Sprintf("%dx%dx%d", s[0], s[1], s[2]), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			m, n, k := s[0], s[1], s[2]
			w := QuantizeWeights(randomFloats(r, k*n), k, n, n, 1)
			q, c := int8Rows(m, k), make([]float32, m*n)
			a := randomFloats(r, k)
			for i := range m {
				q.Set(i, a)
			}
			for b.Loop() {
				for i := 0; i < m; i += 64 {
					w.Run(q, nil, c[i*n:], n, i, min(m, i+64), 0, (n+15)/16)
				}
			}
			b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
		})
	}
}
