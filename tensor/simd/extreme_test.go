package simd

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// Random shapes, tails and alignments at every level; the fuzz targets go on from here.
func TestExtremeShapes(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(12, 12))
		for range 25 {
			seed := r.Uint64()
			checkGemm(t, 1+r.IntN(32), 1+r.IntN(120), r.IntN(60), seed)
			checkElementwise(t, seed, 1+r.IntN(200))
			checkDistances(t, seed, r.IntN(300), 1+r.IntN(20), r.IntN(2) == 0)
			checkCodes(t, seed, 1+r.IntN(24), 1+r.IntN(12))
		}
	})
}

// Sums of products of integers at the ends of their ranges are exact at every level:
// 16-bit intermediates of a kernel must not saturate.
func TestExtremeIntegers(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		wmax, amax := int8Limits()
		const m, n, k = 13, 35, 3072
		for _, sign := range []float32{1, -1} {
			b := make([]float32, k*n)
			for i := range b {
				b[i] = sign // the largest weight
			}
			w := QuantizeWeights(b, k, n, n, 1)
			q := int8Rows(m, k)
			for i := range q.Data {
				q.Data[i] = byte(amax)
			}
			for i := range q.Scale {
				q.Scale[i], q.Zero[i] = 1, int32(i%m)
			}
			c := make([]float32, m*n)
			w.Run(q, nil, c, n, 0, m, 0, (n+15)/16)
			for i, got := range c {
				_, _, scale := w.block(i%n/PanelWidth, 0) // all groups have the same
				want := float64(sign*wmax) * float64(k) * float64(amax-float32(i/n)) * float64(scale[i%n%PanelWidth])
				if math.Abs(float64(got)-want) > 1e-6*math.Abs(want) {
					t.Fatalf("row %d: %g, want %g", i/n, got, want)
				}
			}
		}
		for _, dim := range []int{64, 1536} {
			for _, v := range [][2]int8{{127, 127}, {-127, 127}, {127, -127}, {-127, -127}} {
				q := &CodeQuery{Scale: 1, I8: make([]int8, dim), Planes: make([]uint64, dim/16)}
				row8, row4, row1 := make([]byte, CodeHead+dim), make([]byte, CodeHead+dim/2), make([]byte, CodeHead+dim/8)
				for i := range dim {
					q.I8[i] = v[0]
					row8[CodeHead+i] = byte(v[1])
					row4[CodeHead+i/2], row1[CodeHead+i/8] = 0xff, 0xff
				}
				for i := range q.Planes { // 7, or −8
					if (i%4 == 3) == (v[0] < 0) {
						q.Planes[i] = math.MaxUint64
					}
				}
				ids, out := []uint32{0, 0, 0, 0, 0}, make([]float32, 5)
				one := map[bool]int{false: 7, true: -8}[v[0] < 0]
				for _, x := range []struct {
					f    func([]float32, *CodeQuery, []byte, int, []uint32)
					row  []byte
					want int
				}{{Score8, row8, dim * int(v[0]) * int(v[1])}, {Score4, row4, dim * int(v[0]) * 15}, {Score1, row1, dim * one}} {
					binary.LittleEndian.PutUint32(x.row, math.Float32bits(1))
					x.f(out, q, x.row, len(x.row), ids)
					for _, got := range out {
						if got != float32(x.want) {
							t.Fatalf("%d dimensions, %v: %g, want %d", dim, v, got, x.want)
						}
					}
				}
			}
		}
	})
}

// NaN and infinities come through every kernel: to their own results, and no other.
func TestExtremeFloats(t *testing.T) {
	bad := func(v float32) bool { return v-v != 0 }
	eachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(13, 13))
		for _, v := range []float32{nan, inf, -inf} {
			for m := 1; m <= 15; m++ {
				const n, k = 69, 19
				for _, scratch := range []bool{false, true} {
					a, b := randomFloats(r, m*k), randomFloats(r, k*n)
					i, j := r.IntN(m), r.IntN(n)
					a[i*k+r.IntN(k)], b[r.IntN(k)*n+j] = v, v
					g := Gemm{M: m, N: n, K: k, A: a, ARow: k, AK: 1, B: make([]float32, PackedLen(k, n)), C: make([]float32, m*n), CRow: n}
					if scratch {
						g.Scratch = make([]float32, GemmScratch)
					}
					Pack(g.B, b, k, n, n, 1, 0, (n+15)/16)
					g.Run(0, m, 0, (n+15)/16)
					for x, c := range g.C {
						if bad(c) != (x/n == i || x%n == j) {
							t.Fatalf("%g, %d rows: c[%d,%d] = %g", v, m, x/n, x%n, c)
						}
					}
				}
			}
			for _, dim := range []int{1, 7, 8, 9, 16, 24, 31, 40, 65} {
				q, table := randomFloats(r, dim), randomFloats(r, 6*dim)
				half := make([]uint16, len(table))
				at := r.IntN(dim)
				table[3*dim+at] = v
				for i, x := range table {
					half[i] = narrow(BlockF16, x)
				}
				ids := []uint32{0, 1, 2, 3, 4, 5}
				f32, f16 := make([]float32, 6), make([]float32, 6)
				DotRowsF32(f32, q, table, ids)
				DotRowsF16(f16, q, half, ids)
				for i := range ids {
					row := table[i*dim : (i+1)*dim]
					if bad(f32[i]) != (i == 3) || bad(f16[i]) != (i == 3) || bad(L2(q, row)) != (i == 3) || bad(Dot(q, row)) != (i == 3) {
						t.Fatalf("%g, %d dimensions, row %d: %g %g %g", v, dim, i, f32[i], f16[i], L2(q, row))
					}
				}
			}
			for _, kind := range []string{"BF16", "F16"} {
				const n, k = 18, 21
				w := randomFloats(r, n*k)
				w[5*k+7] = v
				raw, _ := halfData(kind, w)
				f, data, err := ImportBlocks(kind, raw, n, k, nil)
				if err != nil {
					t.Fatal(err)
				}
				var y [PanelWidth]float32
				MatVec(f, &y, randomFloats(r, k), nil, data[:f.PanelBytes(k)])
				for i, x := range y {
					if bad(x) != (i == 5) {
						t.Fatalf("%s with %g: row %d is %g", kind, v, i, x)
					}
				}
			}
			for _, kind := range []string{"Q4_K", "Q6_K"} {
				size := map[string]int{"Q4_K": 144, "Q6_K": 210}[kind]
				raw := make([]byte, 16*size)
				for i := range raw {
					raw[i] = 0x11
				}
				at := map[string]int{"Q4_K": 0, "Q6_K": 208}[kind]
				binary.LittleEndian.PutUint16(raw[5*size+at:], narrow(BlockF16, v))
				f, data, err := ImportBlocks(kind, raw, 16, 256, nil)
				if err != nil {
					t.Fatal(err)
				}
				x, sums := randomFloats(r, 256), make([]float32, 8)
				BlockSums(sums, x)
				var y [PanelWidth]float32
				MatVec(f, &y, x, sums, data)
				for i, got := range y {
					if bad(got) != (i == 5) {
						t.Fatalf("%s with scale %g: row %d is %g", kind, v, i, got)
					}
				}
			}
		}
	})
}
