package simd

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"
)

// kquants.bin is written by testdata/kquants.py with the gguf package.
//
//go:embed testdata/kquants.bin
var kquants []byte

// The panels' elements are those of the gguf package, and products are right, at
// every level.
func TestKQuants(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		const n, k = 19, 512
		data := kquants
		for _, kind := range []string{"Q4_K", "Q6_K"} {
			size := n * k / 256 * map[string]int{"Q4_K": 144, "Q6_K": 210}[kind]
			want := make([]float32, n*k)
			for i := range want {
				want[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[size+4*i:]))
			}
			checkBlocks(t, kind, data[:size], want, n, k)
			if _, _, err := ImportBlocks(kind, data[:size-1], n, k, nil); err == nil {
				t.Error("cut blocks: no error")
			}
			if _, _, err := ImportBlocks(kind, data[:size], 2*n, k/2+32, nil); err == nil {
				t.Error("a row that is not whole blocks: no error")
			}
			data = data[size+4*len(want):]
		}
	})
}

// checkBlocks compares rows, expansion and products with the elements.
func checkBlocks(t *testing.T, kind string, raw []byte, want []float32, n, k int) {
	t.Helper()
	f, data, err := ImportBlocks(kind, raw, n, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(uint64(n), uint64(k)))
	x := randomFloats(r, k)
	sums := make([]float32, k/32)
	BlockSums(sums, x)
	row := make([]float32, k)
	panels := (n + 15) / 16
	if len(data) != panels*f.PanelBytes(k) {
		t.Fatalf("%s: %d bytes", kind, len(data))
	}
	for p := range panels {
		panel := data[p*f.PanelBytes(k):][:f.PanelBytes(k)]
		wide, part := make([]float32, k*PanelWidth), make([]float32, k*PanelWidth)
		Expand(f, wide, panel, 0, k)
		for c := 0; c < k; c += 32 {
			Expand(f, part[c*PanelWidth:], panel, c, min(32, k-c))
		}
		var y [PanelWidth]float32
		MatVec(f, &y, x, sums, panel)
		for lane := range min(16, n-16*p) {
			i := 16*p + lane
			BlockRow(f, row, panel, lane)
			dot, mag := 0.0, 0.0
			for j := range k {
				v := want[i*k+j]
				tol := 3e-7 * (math.Abs(float64(v)) + 0.1)
				for _, got := range []float32{row[j], wide[j*16+lane], part[j*16+lane]} {
					if math.Abs(float64(got-v)) > tol {
						t.Fatalf("%s [%d,%d]: element %d,%d is %g, want %g", kind, n, k, i, j, got, v)
					}
				}
				dot += float64(v) * float64(x[j])
				mag += math.Abs(float64(v) * float64(x[j]))
			}
			if d := math.Abs(dot - float64(y[lane])); d > 3e-6*mag+1e-6 {
				t.Fatalf("%s [%d,%d]: row %d gives %g, want %g", kind, n, k, i, y[lane], dot)
			}
		}
	}
}

func halfData(kind string, v []float32) (raw []byte, exact []float32) {
	f := map[string]BlockFormat{"BF16": BlockBF16, "F16": BlockF16}[kind]
	for _, x := range v {
		h := narrow(f, x)
		raw = binary.LittleEndian.AppendUint16(raw, h)
		exact = append(exact, widen(f, binary.LittleEndian.AppendUint16(nil, h)))
	}
	return
}

func TestHalfWeights(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 3))
		for _, kind := range []string{"BF16", "F16"} {
			for _, s := range [][2]int{{1, 1}, {5, 3}, {16, 4}, {17, 7}, {35, 385}} {
				n, k := s[0], s[1]
				v := randomFloats(r, n*k)
				raw, exact := halfData(kind, v)
				checkBlocks(t, kind, raw, exact, n, k)
				f, data, err := ImportBlocks(kind, raw, n, k, nil)
				if err != nil {
					t.Fatal(err)
				}
				packed, panels := make([]byte, f.HalfBytes(n, k)), (n+15)/16
				PackHalf(f, packed, v, k, n, 1, k, 0, panels/2)
				PackHalf(f, packed, v, k, n, 1, k, panels/2, panels)
				if string(packed) != string(data) {
					t.Fatalf("%s %v: packing rounds differently", kind, s)
				}
				for _, m := range []int{1, 3, 13, 40} {
					a := randomFloats(r, m*k)
					c := make([]float32, m*n)
					h := HalfPanels{Format: f, Data: data, Wide: make([]float32, k*PanelWidth)}
					g := Gemm{M: m, N: n, K: k, A: a, ARow: k, AK: 1, Half: h, C: c, CRow: n, Scratch: make([]float32, GemmScratch)}
					g.Run(0, m, 0, (n+15)/16)
					for i := range c {
						want, mag := 0.0, 1.0
						for l := range k {
							x := float64(a[i/n*k+l]) * float64(exact[i%n*k+l])
							want, mag = want+x, mag+math.Abs(x)
						}
						if !(math.Abs(float64(c[i])-want) <= 1e-6*mag) {
							t.Fatalf("%s %v: %d rows: element %d is %g, want %g", kind, s, m, i, c[i], want)
						}
					}
				}
				if _, _, err := ImportBlocks(kind, raw[1:], n, k, nil); err == nil {
					t.Error("cut elements: no error")
				}
			}
		}
	})
}

// Every 16-bit pattern widens as the plain twin says, NaN as some NaN.
func TestHalfPatterns(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, f := range []BlockFormat{BlockBF16, BlockF16} {
			src := make([]byte, 2<<16)
			for i := range 1 << 16 {
				binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
			}
			dst := make([]float32, 1<<16)
			widenPanel(f, dst, src, 0, 1<<12)
			for i, got := range dst {
				want := widen(f, src[2*i:])
				if got != want && !(got != got && want != want) {
					t.Fatalf("format %d: %#04x gives %g, want %g", f, i, got, want)
				}
				if h := narrow(f, want); h != uint16(i) && want == want {
					t.Fatalf("format %d: %g rounds to %#04x, want %#04x", f, want, h, i)
				}
			}
		}
	})
	for _, x := range []struct {
		v    float32
		want uint16
	}{{1.00390625, 0x3f80}, {1.01171875, 0x3f82}, {inf, 0x7f80}, {-inf, 0xff80}, {3.4e38, 0x7f80}, {float32(math.Float32frombits(0x7f800001)), 0x7fc0}} {
		if got := narrow(BlockBF16, x.v); got != x.want {
			t.Errorf("%g as bfloat16 is %#04x, want %#04x", x.v, got, x.want)
		}
	}
	if float16.Fromfloat32(1).Bits() != narrow(BlockF16, 1) {
		t.Error("half")
	}
}

func BenchmarkMatVecOther(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 9))
	const n, k = 1536, 1536
	for _, kind := range []string{"Q4_K", "Q6_K", "BF16", "F16"} {
		size := map[string]int{"Q4_K": 144, "Q6_K": 210, "BF16": 512, "F16": 512}[kind]
		raw := make([]byte, n*k/256*size)
		for i := range raw {
			raw[i] = byte(r.IntN(120))
		}
		f, data, err := ImportBlocks(kind, raw, n, k, nil)
		if err != nil {
			b.Fatal(err)
		}
		x, sums := randomFloats(r, k), make([]float32, k/32)
		b.Run(fmt.Sprint(kind), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				var y [PanelWidth]float32
				for p := range n / 16 {
					MatVec(f, &y, x, sums, data[p*f.PanelBytes(k):][:f.PanelBytes(k)])
				}
			}
		})
	}
}

// Levels with kernels give the same bits.
func TestMatVecLevels(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	defer func(l ISA) { Level = l }(Level)
	for kind, size := range map[string]int{"Q4_K": 144, "Q6_K": 210, "BF16": 512, "F16": 512} {
		const n, k = 16, 768
		raw := make([]byte, n*k/256*size)
		for i := range raw {
			raw[i] = byte(r.IntN(60))
		}
		f, panel, err := ImportBlocks(kind, raw, n, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		x, sums := randomFloats(r, k), make([]float32, k/32)
		BlockSums(sums, x)
		var want *[PanelWidth]float32
		var wide []float32
		for _, Level = range Supported() {
			if Level < AVX2 {
				continue // plain Go rounds products
			}
			var y [PanelWidth]float32
			MatVec(f, &y, x, sums, panel)
			e := make([]float32, k*PanelWidth)
			Expand(f, e, panel, 0, k)
			if want == nil {
				want, wide = &y, e
			}
			if y != *want || !slices.Equal(e, wide) {
				t.Errorf("%s at %s differs", kind, Level)
			}
		}
	}
}
