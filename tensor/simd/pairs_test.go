package simd

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"rag2/tensor/simd/fmapeak"
)

// pairValue is a float32 of some kind: mostly ordinary, some that are special.
func pairValue(r *rand.Rand, special bool) float32 {
	if !special {
		return float32(r.NormFloat64())
	}
	switch r.IntN(8) {
	case 0:
		return math.Float32frombits(r.Uint32()) // any pattern
	case 1:
		return math.Float32frombits(r.Uint32() & 0x807fffff) // subnormal
	case 2:
		return math.Float32frombits(r.Uint32()&0x807fffff | 0x00800000<<r.IntN(3)) // all but
	case 3:
		return []float32{0, float32(math.Copysign(0, -1)), inf, -inf, nan, 3.4e38, -3.4e38}[r.IntN(7)]
	}
	return float32(r.NormFloat64() * math.Pow(2, float64(r.IntN(80)-40)))
}

// checkPairs compares a product at the level in use with the plain twin, bit by bit (NaN:
// any), and, for ordinary numbers, with float64 sums of the rounded elements.
func checkPairs(t *testing.T, m, n, k int, seed uint64, special bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 77))
	values := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = pairValue(r, special && r.IntN(1+k/8) == 0)
		}
		return out
	}
	a, b, bias := values(m*(k+5)+k*(m+3)), values(n*(k+2)), values(n)
	panels := (n + 15) / 16
	data := make([]byte, BlockBF16Pairs.HalfBytes(n, k))
	PackHalf(BlockBF16Pairs, data, b, k, n, 1, k+2, 0, panels/2)
	PackHalf(BlockBF16Pairs, data, b, k, n, 1, k+2, panels/2, panels)
	for _, across := range []bool{false, true} {
		g := Gemm{M: m, N: n, K: k, A: a, ARow: k + 5, AK: 1, Half: HalfPanels{Format: BlockBF16Pairs, Data: data}, CRow: n + 3, Scratch: make([]float32, GemmScratch)}
		if across {
			g.ARow, g.AK = 1, m+3
		}
		if seed%3 == 0 {
			g.Bias = bias
		}
		g.Add = seed%5 == 1
		start := values(m * g.CRow)
		want := g
		g.C, want.C = append([]float32(nil), start...), append([]float32(nil), start...)
		g.Run(0, m/2, 0, panels)
		g.Run(m/2, m, 0, panels/2)
		g.Run(m/2, m, panels/2, panels)
		want.pairsGo(0, m, 0, panels)
		for i := range g.C {
			got, w := g.C[i], want.C[i]
			if math.Float32bits(got) != math.Float32bits(w) && (got == got || w == w) {
				t.Fatalf("%dx%dx%d across=%v: c[%d,%d] = %g (%08x), want %g (%08x)", m, n, k, across, i/g.CRow, i%g.CRow, got, math.Float32bits(got), w, math.Float32bits(w))
			}
			if i%g.CRow >= n || special {
				continue
			}
			sum, mag := 0.0, 1.0
			if g.Add {
				sum = float64(start[i])
			} else if g.Bias != nil {
				sum = float64(bias[i%g.CRow])
			}
			bf := func(v float32) float64 { return float64(math.Float32frombits(uint32(narrow(BlockBF16, v)) << 16)) }
			for l := range k {
				v := bf(a[i/g.CRow*g.ARow+l*g.AK]) * bf(b[i%g.CRow*(k+2)+l])
				sum, mag = sum+v, mag+math.Abs(v)
			}
			if d := math.Abs(sum - float64(got)); !(d <= 1e-6*mag) {
				t.Fatalf("%dx%dx%d across=%v: c[%d,%d] = %g, want %g", m, n, k, across, i/g.CRow, i%g.CRow, got, sum)
			}
		}
	}
}

func TestPairs(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		seed := uint64(0)
		for _, special := range []bool{false, true} {
			for m := 1; m <= 30; m++ { // every number of rows of a tile, packed and not
				for _, nk := range [][2]int{{70 + m, 33}, {33, 9}, {16, 48}, {1, 1}, {31, 2}} {
					checkPairs(t, m, nk[0], nk[1], seed, special)
					seed++
				}
			}
			for _, k := range []int{15, 16, 17, 31, 32, 63, 767, 768, 769, 1541} {
				for _, m := range []int{1, 9, 15, 40} {
					checkPairs(t, m, 40, k, seed, special)
					seed++
				}
			}
		}
		checkPairs(t, 130, 17, 1601, 4, true)
	})
}

func FuzzPairs(f *testing.F) {
	f.Add(uint8(3), uint8(5), uint16(7), uint64(1), true)
	f.Fuzz(func(t *testing.T, m, n uint8, k uint16, seed uint64, special bool) {
		checkPairs(t, int(m)%40+1, int(n)%70+1, int(k)%1700+1, seed, special)
	})
}

// One multiply-add of the twin is exact arithmetic rounded once, also where float64 sums
// are not exact.
func TestPairMulAdd(t *testing.T) {
	bf := func(v float32) uint32 { return uint32(narrow(BlockBF16, v)) }
	for _, x := range []struct {
		sum, a1, b1, a0, b0, want float32
	}{
		{1, 2, 3, 4, 5, 27},
		{1, 0x1p-24, 1, 0, 0, 1},       // a tie goes to even
		{1, 0x1p-24, 1, 0x1p-60, 1, 1}, // rounded in between
		{1, 0x1p-60, 1, 0x1p-24, 1, 1}, // as well
		{1 + 0x1p-23, 0x1p-24, 1, 0, 0, 1 + 0x1p-22},
		{0x1p-126, 0x1p-64, 0x1p-64, 0, 0, 0x1p-126 + 0x1p-128},
		{0x1p-126, 0x1p-64, -0x1p-64, 0, 0, 0}, // subnormal
		{0x1p-127, 1, 1, 0, 0, 1},
		{0, 0x1p-130, 0x1p+100, 0, 0, 0}, // a subnormal operand
		{-1, 0, 0, 0, 0, -1},
	} {
		if got := pairMulAdd(x.sum, bf(x.a1)<<16|bf(x.a0), bf(x.b1)<<16|bf(x.b0)); got != x.want {
			t.Errorf("%g + %g·%g + %g·%g = %g, want %g", x.sum, x.a1, x.b1, x.a0, x.b0, got, x.want)
		}
	}
	// 2^30·(1+2^-7)² + sums near a tie of it: beyond what a float64 holds exactly.
	if got := mulAddOnce(0x1.000002p+24, 0x1p-40, 0x1p-1); got != 0x1.000002p+24 {
		t.Errorf("%g", got)
	}
	if got := mulAddOnce(0x1p-60, 0x1p+0, 0x1.000000p+0); got != 1 {
		t.Errorf("%g", got)
	}
}

func TestPairPanels(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, s := range [][2]int{{1, 1}, {5, 3}, {16, 4}, {17, 7}, {35, 385}} {
		n, k := s[0], s[1]
		v := randomFloats(r, n*k)
		raw, exact := halfData("BF16", v)
		data, err := ImportHalf(BlockBF16Pairs, raw, n, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		packed := make([]byte, BlockBF16Pairs.HalfBytes(n, k))
		PackHalf(BlockBF16Pairs, packed, v, k, n, 1, k, 0, (n+15)/16)
		if !bytes.Equal(packed, data) {
			t.Fatalf("%v: packing rounds differently", s)
		}
		row, wide := make([]float32, k), make([]float32, k*PanelWidth)
		for j := range n {
			panel := data[j/16*BlockBF16Pairs.PanelBytes(k):]
			BlockRow(BlockBF16Pairs, row, panel, j%16)
			Expand(BlockBF16Pairs, wide, panel, 0, k/2)
			Expand(BlockBF16Pairs, wide[k/2*PanelWidth:], panel, k/2, k-k/2)
			for i := range k {
				if want := exact[j*k+i]; row[i] != want || wide[i*PanelWidth+j%16] != want {
					t.Fatalf("%v: element %d,%d is %g and %g, want %g", s, j, i, row[i], wide[i*PanelWidth+j%16], want)
				}
			}
		}
		if _, err := ImportHalf(BlockBF16Pairs, raw[1:], n, k, nil); err == nil {
			t.Error("cut elements: no error")
		}
	}
}

// The bytes of avx512_amd64.s are the instructions that stand beside them, as GNU as
// encodes these.
func TestBF16Bytes(t *testing.T) {
	as, err := exec.LookPath("as")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("GNU as for amd64 (Debian: binutils) is missing: the encodings were not compared")
	}
	src, err := os.ReadFile("avx512_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	code := map[string]string{}
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^\t((?:BYTE \$0x[0-9a-f]{2}; )+)// (.*)$`).FindAllSubmatch(src, -1) {
		c, text := strings.NewReplacer("BYTE $0x", "", "; ", "").Replace(string(m[1])), string(m[2])
		if old, ok := code[text]; ok && old != c {
			t.Fatalf("%s is both %s and %s", text, old, c)
		} else if !ok {
			code[text], list = c, append(list, text)
		}
	}
	if len(list) < 100 {
		t.Fatalf("%d instructions found", len(list))
	}
	in, out := filepath.Join(t.TempDir(), "a.s"), filepath.Join(t.TempDir(), "a.o")
	if err := os.WriteFile(in, []byte(strings.Join(list, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	listing, err := exec.Command(as, "-aln", "--listing-lhs-width=4", "-o", out, in).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, listing)
	}
	got := map[int]string{} // by line; the bytes may go on in the next, without the text
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+) (?:[0-9a-f]{4}|    ) ([0-9A-F ]+?)\s*(?:\t.*)?$`).FindAllSubmatch(listing, -1) {
		var line int
		fmt.Sscan(string(m[1]), &line)
		got[line] += strings.ToLower(strings.ReplaceAll(string(m[2]), " ", ""))
	}
	for i, l := range list {
		if _, err := hex.DecodeString(got[i+1]); err != nil || got[i+1] != code[l] {
			t.Errorf("%s is %q, the generator writes %s", l, got[i+1], code[l])
		}
	}
}

// BenchmarkPairs: products of bfloat16 pairs on one core beside twice what float32
// multiply-adds give at most.
func BenchmarkPairs(b *testing.B) {
	if Level < BF16 {
		b.Skip("this level has no products of pairs")
	}
	peak := 2 * fmapeak.GFLOPs(512)
	for _, s := range []struct {
		name string
		m    int
		nk   [][2]int
	}{
		{"bert-base", 1024, [][2]int{{768, 768}, {3072, 768}, {768, 3072}}},
		{"bert-base", 32, [][2]int{{768, 768}, {3072, 768}, {768, 3072}}},
		{"t5-large", 4096, [][2]int{{1024, 1024}, {2816, 1024}, {1024, 2816}}},
		{"smollm2", 8, [][2]int{{576, 576}, {1536, 576}, {576, 1536}}},
		{"smollm2", 1, [][2]int{{576, 576}, {1536, 576}, {49152, 576}}},
	} {
		for _, nk := range s.nk {
			m, n, k := s.m, nk[0], nk[1]
			b.Run(fmt.Sprintf("%s/%dx%dx%d", s.name, m, n, k), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				data := make([]byte, BlockBF16Pairs.HalfBytes(n, k))
				for i := 0; i < len(data); i += 2 {
					binary.LittleEndian.PutUint16(data[i:], narrow(BlockBF16, float32(r.NormFloat64())))
				}
				g := Gemm{M: m, N: n, K: k, A: randomFloats(r, m*k), ARow: k, AK: 1, Half: HalfPanels{Format: BlockBF16Pairs, Data: data}, C: make([]float32, m*n), CRow: n, Scratch: make([]float32, GemmScratch)}
				for b.Loop() {
					g.Run(0, m, 0, (n+15)/16)
				}
				rate := 2 * float64(m) * float64(n) * float64(k) * float64(b.N) / b.Elapsed().Seconds() / 1e9
				b.ReportMetric(rate, "GFLOP/s")
				b.ReportMetric(100*rate/peak, "%peak")
				b.ReportMetric(float64(len(data))*float64(b.N)/b.Elapsed().Seconds()/1e9, "weights-GB/s")
			})
		}
	}
}
