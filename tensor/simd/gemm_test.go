package simd

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"rag2/tensor/simd/fmapeak"
)

func randomFloats(r *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64())
	}
	return out
}

// checkGemm compares one product with float64 sums.
func checkGemm(t *testing.T, m, n, k int, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	off := int(seed % 3)
	a := randomFloats(r, off+m*(k+5)+k*(m+3)+1)[off:]
	b := randomFloats(r, off+k*(n+7)+n*(k+2)+1)[off:]
	bias := randomFloats(r, n)
	for _, at := range []bool{false, true} {
		for mode := range 3 { // packed from [k,n], packed from [n,k], direct
			g := Gemm{M: m, N: n, K: k, A: a, ARow: k + 5, AK: 1, B: b, CRow: n + 3}
			if at {
				g.ARow, g.AK = 1, m+3
			}
			sk, sn := n+7, 1
			if mode == 1 {
				sk, sn = 1, k+2
			}
			if mode < 2 {
				g.B = make([]float32, PackedLen(k, n))
				for i := range g.B {
					g.B[i] = float32(math.NaN())
				}
				panels := (n + 15) / 16
				Pack(g.B, b, k, n, sk, sn, 0, panels/2)
				Pack(g.B, b, k, n, sk, sn, panels/2, panels)
			} else {
				g.BK = sk
			}
			if seed%2 == 0 {
				g.Bias = bias
			}
			g.Add = seed%5 == 1
			c := randomFloats(r, m*g.CRow)
			g.C = make([]float32, len(c))
			copy(g.C, c)
			panels := (n + 15) / 16
			if seed%3 != 0 {
				g.Scratch = make([]float32, GemmScratch)
			}
			g.Run(0, m/2, 0, panels)
			g.Run(m/2, m, 0, panels/2)
			g.Run(m/2, m, panels/2, panels)
			for i := range m {
				for j := range g.CRow {
					got := g.C[i*g.CRow+j]
					if j >= n {
						if got != c[i*g.CRow+j] {
							t.Fatalf("%dx%dx%d: wrote outside at %d,%d", m, n, k, i, j)
						}
						continue
					}
					want, mag := 0.0, 1.0
					if g.Add {
						want = float64(c[i*g.CRow+j])
					} else if g.Bias != nil {
						want = float64(bias[j])
					}
					for x := range k {
						v := float64(a[i*g.ARow+x*g.AK]) * float64(b[x*sk+j*sn])
						want += v
						mag += math.Abs(v)
					}
					if d := math.Abs(float64(got) - want); !(d <= 1e-6*mag) {
						t.Fatalf("%dx%dx%d at=%v mode %d: c[%d,%d] = %g, want %g", m, n, k, at, mode, i, j, got, want)
					}
				}
			}
		}
	}
}

func TestGemm(t *testing.T) { eachLevel(t, testGemm) }

func testGemm(t *testing.T) {
	seed := uint64(0)
	for _, m := range []int{1, 2, 3, 4, 5, 6, 7, 11, 13, 121} {
		for _, n := range []int{1, 8, 15, 16, 17, 50, 120, 201} {
			for _, k := range []int{0, 1, 3, 4, 8, 31, 64, 385} {
				if k == 0 || m*n*k < 100000 {
					checkGemm(t, m, n, k, seed)
				}
				seed++
			}
		}
	}
	for m := 8; m <= 30; m++ { // every number of rows of a tile, packed and not
		checkGemm(t, m, 70+m, 33, uint64(m))
		checkGemm(t, m, 33, 9, uint64(m))
	}
	checkGemm(t, 130, 40, 800, 4)
	checkGemm(t, 130, 140, 800, 4)
}

// A row's sums are the same bits whatever rows are computed with it, packed
// or not, from float32 or from 16-bit weights, at every depth.
func TestGemmRowsAlone(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		const n = 100
		for _, k := range []int{1, 3, 64, 800} {
			r := rand.New(rand.NewPCG(uint64(k), 9))
			a, b := randomFloats(r, 130*k), randomFloats(r, PackedLen(k, n))
			half := make([]byte, 2*len(b))
			for i, v := range b {
				binary.LittleEndian.PutUint16(half[2*i:], narrow(BlockBF16, v))
			}
			pairs := make([]byte, BlockBF16Pairs.HalfBytes(n, k))
			PackHalf(BlockBF16Pairs, pairs, b, k, n, n, 1, 0, (n+15)/16)
			for _, kind := range []string{"float32", "half", "pairs", "direct"} {
				product := func(from, m int, scratch []float32) []float32 {
					g := Gemm{M: m, N: n, K: k, A: a[from*k:], ARow: k, AK: 1, B: b, C: make([]float32, m*n), CRow: n, Scratch: scratch}
					switch kind {
					case "half":
						g.Half = HalfPanels{Format: BlockBF16, Data: half, Wide: make([]float32, PanelWidth*k)}
					case "pairs":
						g.Half, g.Scratch = HalfPanels{Format: BlockBF16Pairs, Data: pairs}, make([]float32, GemmScratch)
					case "direct":
						g.BK = n
					}
					g.Run(0, m, 0, (n+15)/16)
					return g.C
				}
				all := product(0, 130, make([]float32, GemmScratch))
				for _, m := range []int{1, 3, 8, 14, 15, 29} {
					for _, scratch := range [][]float32{nil, make([]float32, GemmScratch)} {
						for i, got := range product(11, m, scratch) {
							if want := all[11*n+i]; got != want {
								t.Fatalf("%s, k %d, %d rows: element %d is %g, among 130 rows %g", kind, k, m, i, got, want)
							}
						}
					}
				}
			}
		}
	})
}

// A packed once for several calls gives the bits of a product by itself.
func TestGemmShared(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		const n = 70
		for m := range 60 {
			for i, k := range []int{1, 7, 64, 384, 385, 900, 1, 7, 64, 385, 900, 1601} {
				var f BlockFormat
				if i >= 6 {
					f = BlockBF16Pairs
				}
				floats, tasks := SharedRows(f, m, k)
				if floats == 0 {
					if Level >= AVX512 && (f == 0 || Level >= BF16) && m >= 8 && m <= 14 {
						t.Fatalf("%d rows are not shared", m)
					}
					continue
				}
				r := rand.New(rand.NewPCG(uint64(m), uint64(k)))
				a, b := randomFloats(r, m*(k+3)), randomFloats(r, PackedLen(k, n))
				g := Gemm{M: m, N: n, K: k, A: a, ARow: k + 3, AK: 1, B: b, C: make([]float32, m*n), CRow: n, Scratch: make([]float32, GemmScratch)}
				if f != 0 {
					g.Half = HalfPanels{Format: f, Data: make([]byte, f.HalfBytes(n, k))}
					PackHalf(f, g.Half.Data, b, k, n, n, 1, 0, (n+15)/16)
				}
				g.Run(0, m, 0, (n+15)/16)
				want := g.C
				g.C, g.Shared = make([]float32, m*n), make([]float32, floats)
				for i := range tasks {
					PackShared(f, g.Shared, a, k+3, m, k, tasks-1-i)
				}
				clear(a[:m*(k+3)/2]) // it is not read again
				g.Run(0, m, 0, 2)
				g.Run(0, m, 2, (n+15)/16)
				for i := range want {
					if g.C[i] != want[i] {
						t.Fatalf("%d × %d: element %d is %g, want %g", m, k, i, g.C[i], want[i])
					}
				}
			}
		}
	})
}

func FuzzGemm(f *testing.F) {
	f.Add(uint8(3), uint8(5), uint8(7), uint64(1))
	f.Fuzz(func(t *testing.T, m, n, k uint8, seed uint64) {
		checkGemm(t, int(m)%40+1, int(n)%200+1, int(k), seed)
	})
}

// A NaN or an infinity reaches its own rows and columns only.
func TestGemmNonFinite(t *testing.T) { eachLevel(t, testGemmNonFinite) }

func testGemmNonFinite(t *testing.T) {
	const m, n, k = 7, 20, 9
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		r := rand.New(rand.NewPCG(1, 2))
		a, b := randomFloats(r, m*k), randomFloats(r, k*n)
		a[2*k+3], b[4*n+17] = v, v
		g := Gemm{M: m, N: n, K: k, A: a, ARow: k, AK: 1, B: make([]float32, PackedLen(k, n)), C: make([]float32, m*n), CRow: n}
		Pack(g.B, b, k, n, n, 1, 0, 2)
		g.Run(0, m, 0, 2)
		for i := range m {
			for j := range n {
				x := float64(g.C[i*n+j])
				if bad := math.IsNaN(x) || math.IsInf(x, 0); bad != (i == 2 || j == 17) {
					t.Fatalf("%g: c[%d,%d] = %g", v, i, j, x)
				}
			}
		}
	}
}

func TestUnpackColumn(t *testing.T) {
	const k, n = 5, 37
	b := randomFloats(rand.New(rand.NewPCG(1, 1)), k*n)
	p := make([]float32, PackedLen(k, n))
	Pack(p, b, k, n, 1, k, 0, 3)
	row := make([]float32, k)
	for j := range n {
		UnpackColumn(row, p, k, j)
		for i := range row {
			if row[i] != b[j*k+i] {
				t.Fatalf("column %d", j)
			}
		}
	}
}

// BenchmarkGemm: products of one core at the shapes of models, rows × columns × depth,
// beside what its multiply-adds give at most.
func BenchmarkGemm(b *testing.B) {
	bits := 256
	if Level >= AVX512 {
		bits = 512
	}
	peak := 0.0
	if Level >= AVX2 {
		peak = fmapeak.GFLOPs(bits)
	}
	for _, s := range []struct {
		name string
		m    int
		nk   [][2]int
	}{
		{"bert-base", 1024, [][2]int{{768, 768}, {3072, 768}, {768, 3072}}},
		{"bert-base", 32, [][2]int{{768, 768}, {3072, 768}, {768, 3072}}},
		{"bert-large", 1024, [][2]int{{1024, 1024}, {4096, 1024}, {1024, 4096}}},
		{"t5-large", 4096, [][2]int{{1024, 1024}, {2816, 1024}, {1024, 2816}}},
		{"minilm", 1024, [][2]int{{384, 384}, {1536, 384}, {384, 1536}}},
		{"smollm2", 8, [][2]int{{576, 576}, {1536, 576}, {576, 1536}}},
		{"smollm2", 1, [][2]int{{576, 576}, {1536, 576}}},
		{"attention", 128, [][2]int{{128, 64}, {64, 128}}},
	} {
		for _, nk := range s.nk {
			m, n, k := s.m, nk[0], nk[1]
			b.Run(fmt.Sprintf("%s/%dx%dx%d", s.name, m, n, k), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				g := Gemm{M: m, N: n, K: k, A: randomFloats(r, m*k), ARow: k, AK: 1, B: randomFloats(r, PackedLen(k, n)), C: make([]float32, m*n), CRow: n, Scratch: make([]float32, GemmScratch)}
				for b.Loop() {
					g.Run(0, m, 0, (n+15)/16)
				}
				rate := 2 * float64(m) * float64(n) * float64(k) * float64(b.N) / b.Elapsed().Seconds() / 1e9
				b.ReportMetric(rate, "GFLOP/s")
				if peak > 0 {
					b.ReportMetric(100*rate/peak, "%peak")
				}
			})
		}
	}
}
