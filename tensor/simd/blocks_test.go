package simd

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"
)

// ggufBlocks makes random blocks and their values.
func ggufBlocks(r *rand.Rand, kind string, n, k int) (blocks []byte, values []float32) {
	put := func(v float32) float32 {
		h := float16.Fromfloat32(v)
		blocks = binary.LittleEndian.AppendUint16(blocks, h.Bits())
		return h.Float32()
	}
	for range n * k / 32 {
		d := put(float32(r.NormFloat64()) * 0.01)
		var v [32]float32
		switch kind {
		case "Q8_0":
			for j := range v {
				q := byte(r.IntN(256))
				blocks = append(blocks, q)
				v[j] = float32(int8(q)) * d
			}
		default:
			m := float32(-8) * d
			if kind == "Q4_1" {
				m = put(float32(r.NormFloat64()) * 0.1)
			}
			for j := range 16 {
				q := byte(r.IntN(256))
				blocks = append(blocks, q)
				v[j], v[j+16] = float32(q&15)*d+m, float32(q>>4)*d+m
			}
		}
		values = append(values, v[:]...)
	}
	return
}

func TestBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for _, kind := range []string{"Q4_0", "Q4_1", "Q8_0"} {
		for _, s := range [][2]int{{1, 32}, {16, 64}, {35, 576}} {
			n, k := s[0], s[1]
			raw, want := ggufBlocks(r, kind, n, k)
			f, data, err := ImportBlocks(kind, raw, n, k)
			if err != nil {
				t.Fatal(err)
			}
			x := randomFloats(r, k)
			sums := make([]float32, k/32)
			BlockSums(sums, x)
			row, wide := make([]float32, k), make([]float32, k*PanelWidth)
			for i := range n {
				panel := data[i/16*f.PanelBytes(k):]
				BlockRow(f, row, panel, i%16)
				Expand(f, wide, panel, 0, k)
				Expand(f, wide, panel, k-32, 32)
				Expand(f, wide, panel, 0, k)
				var y [PanelWidth]float32
				MatVec(f, &y, x, sums, panel)
				dot, mag := 0.0, 0.0
				for j := range k {
					w := want[i*k+j]
					if math.Abs(float64(row[j]-w)) > 1e-6 || math.Abs(float64(wide[j*16+i%16]-w)) > 1e-6 {
						t.Fatalf("%s %v: element %d,%d is %g and %g, want %g", kind, s, i, j, row[j], wide[j*16+i%16], w)
					}
					dot += float64(w) * float64(x[j])
					mag += math.Abs(float64(w) * float64(x[j]))
				}
				if d := math.Abs(dot - float64(y[i%16])); d > 3e-6*mag+1e-5 {
					t.Fatalf("%s %v: row %d gives %g, want %g", kind, s, i, y[i%16], dot)
				}
			}
		}
	}
	for _, bad := range []struct {
		kind string
		n, k int
	}{{"Q9", 1, 32}, {"Q4_1", 1, 31}, {"Q4_1", 2, 32}, {"Q4_1", 0, 32}} {
		if _, _, err := ImportBlocks(bad.kind, make([]byte, 20), bad.n, bad.k); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

func BenchmarkMatVec(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 9))
	const n, k = 1536, 576
	for _, kind := range []string{"Q4_1", "Q8_0"} {
		raw, _ := ggufBlocks(r, kind, n, k)
		f, data, err := ImportBlocks(kind, raw, n, k)
		if err != nil {
			b.Fatal(err)
		}
		x, sums := randomFloats(r, k), make([]float32, k/32)
		b.Run(kind, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				var y [PanelWidth]float32
				for p := range n / 16 {
					MatVec(f, &y, x, sums, data[p*f.PanelBytes(k):])
				}
			}
		})
	}
}
