package simd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

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
			f, data, err := ImportBlocks(kind, raw, n, k, nil)
			if err != nil {
				t.Fatal(err)
			}
			x := randomFloats(r, k)
			q := Rows16{K: k, Data: make([]byte, Rows16Bytes(k))}
			q.Set(0, x)
			row, wide := make([]float32, k), make([]float32, k*PanelWidth)
			for i := range n {
				panel := data[i/16*f.PanelBytes(k):]
				BlockRow(f, row, panel, i%16)
				Expand(f, wide, panel, 0, k)
				Expand(f, wide, panel, k-32, 32)
				Expand(f, wide, panel, 0, k)
				var y [PanelWidth]float32
				BlockProduct(f, y[:], PanelWidth, &q, 0, 1, panel, nil)
				dot, mag := 0.0, 0.0
				for j := range k {
					w := want[i*k+j]
					if math.Abs(float64(row[j]-w)) > 1e-6 || math.Abs(float64(wide[j*16+i%16]-w)) > 1e-6 {
						t.Fatalf("%s %v: element %d,%d is %g and %g, want %g", kind, s, i, j, row[j], wide[j*16+i%16], w)
					}
					dot += float64(w) * float64(x[j])
					mag += math.Abs(float64(w) * float64(x[j]))
				}
				if d := math.Abs(dot - float64(y[i%16])); d > 2e-5*mag+1e-5 {
					t.Fatalf("%s %v: row %d gives %g, want %g", kind, s, i, y[i%16], dot)
				}
			}
		}
	}
	for _, bad := range []struct {
		kind string
		n, k int
	}{{"Q9", 1, 32}, {"Q4_1", 1, 31}, {"Q4_1", 2, 32}, {"Q4_1", 0, 32}} {
		if _, _, err := ImportBlocks(bad.kind, make([]byte, 20), bad.n, bad.k, nil); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

// A row's products are the same bits beside whatever number of other rows, and at every
// level that has kernels.
func TestBlockProductRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	const k, most = 96, 29
	defer func(l ISA) { Level = l }(Level)
	for _, kind := range []string{"Q4_0", "Q4_1", "Q8_0"} {
		raw, _ := ggufBlocks(r, kind, 16, k)
		f, panel, err := ImportBlocks(kind, raw, 16, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		x := Rows16{K: k, Data: make([]byte, most*Rows16Bytes(k))}
		for i := range most {
			x.Set(i, randomFloats(r, k))
		}
		var want [most][PanelWidth]float32
		for _, Level = range Supported() {
			if Level <= AVX2 { // plain Go rounds sums twice
				for i := range want {
					BlockProduct(f, want[i][:], PanelWidth, &x, i, i+1, panel, nil)
				}
			}
			for m0 := range 2 {
				for rows := 1; m0+rows <= most; rows++ {
					const ld = PanelWidth + 3
					y := make([]float32, rows*ld)
					var next unsafe.Pointer // fetching changes nothing, whatever is there
					if rows%2 == 1 {
						next = unsafe.Pointer(&panel[0])
					}
					BlockProduct(f, y, ld, &x, m0, m0+rows, panel, next)
					for i := range rows {
						if got := [PanelWidth]float32(y[i*ld:]); got != want[m0+i] {
							t.Fatalf("%s at %s: row %d of %d gives %v, want %v", kind, Level, i, rows, got, want[m0+i])
						}
						if gap := y[i*ld+PanelWidth : min(len(y), (i+1)*ld)]; len(gap) > 0 && (gap[0] != 0 || gap[2] != 0) {
							t.Fatalf("%s at %s: written behind row %d of %d", kind, Level, i, rows)
						}
					}
				}
			}
		}
	}
}

// The kernels equal their twins: integers exactly, float sums up to fused rounding.
func TestRows16(t *testing.T) {
	if Level < AVX2 {
		t.Skip("no kernels here to compare with the plain twins")
	}
	r := rand.New(rand.NewPCG(2, 9))
	for range 50 {
		k := 32 * (1 + r.IntN(20))
		x := randomFloats(r, k)
		switch r.IntN(4) {
		case 0:
			clear(x[:32])
		case 1:
			x[r.IntN(k)] = 1e-33
		case 2:
			x[r.IntN(k)] *= 1e20
		}
		fast, plain := Rows16{k, make([]byte, Rows16Bytes(k))}, Rows16{k, make([]byte, Rows16Bytes(k))}
		fast.Set(0, x)
		level := Level
		Level = Generic
		plain.Set(0, x)
		Level = level
		if !bytes.Equal(fast.Data, plain.Data) {
			t.Fatalf("k = %d: quantised differently", k)
		}
		for _, kind := range []string{"Q4_1", "Q8_0"} {
			raw, _ := ggufBlocks(r, kind, 16, k)
			f, panel, err := ImportBlocks(kind, raw, 16, k, nil)
			if err != nil {
				t.Fatal(err)
			}
			var a, b [PanelWidth]float32
			BlockProduct(f, a[:], PanelWidth, &fast, 0, 1, panel, nil)
			blockProductGo(f, b[:], fast.Data, panel, k/32)
			scale := 0.0
			for _, v := range b {
				scale = max(scale, math.Abs(float64(v)))
			}
			for i := range a {
				if math.Abs(float64(a[i]-b[i])) > 1e-5*scale {
					t.Fatalf("%s k = %d: %g, want %g", kind, k, a[i], b[i])
				}
			}
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := Rows16{64, make([]byte, Rows16Bytes(64))}
		row := randomFloats(r, 64)
		row[40] = float32(bad)
		raw, _ := ggufBlocks(r, "Q4_1", 16, 64)
		f, panel, _ := ImportBlocks("Q4_1", raw, 16, 64, nil)
		for _, level := range []ISA{Level, Generic} {
			old := Level
			Level = level
			x.Set(0, row)
			var y [PanelWidth]float32
			BlockProduct(f, y[:], PanelWidth, &x, 0, 1, panel, nil)
			Level = old
			for _, v := range y {
				if d := v - v; d == d {
					t.Errorf("%s: %g in a row gives %g", level, bad, v)
				}
			}
		}
	}
}

// The largest integers do not overflow.
func TestBlockExtremes(t *testing.T) {
	for _, kind := range []string{"Q4_1", "Q8_0"} {
		for _, sign := range []float32{1, -1} {
			raw, want := []byte{0, 0x3c}, float64(15+0.5) // scale 1
			fill := byte(0xff)
			if kind == "Q4_1" {
				raw = append(raw, 0, 0x38) // minimum 0.5
			} else {
				fill, want = 0x80, -128
			}
			for len(raw)%2 == 1 || len(raw) < map[string]int{"Q4_1": 20, "Q8_0": 34}[kind] {
				raw = append(raw, fill)
			}
			f, panel, err := ImportBlocks(kind, raw, 1, 32, nil)
			if err != nil {
				t.Fatal(err)
			}
			x := Rows16{32, make([]byte, Rows16Bytes(32))}
			row := make([]float32, 32)
			for i := range row {
				row[i] = sign
			}
			x.Set(0, row)
			var y [PanelWidth]float32
			BlockProduct(f, y[:], PanelWidth, &x, 0, 1, panel, nil)
			if d := float64(y[0])/(32*want*float64(sign)) - 1; math.Abs(d) > 1e-5 {
				t.Errorf("%s: %g, want %g", kind, y[0], 32*want*float64(sign))
			}
		}
	}
}

func BenchmarkBlockProduct(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 9))
	const n, k = 1536, 576
	for _, kind := range []string{"Q4_1", "Q8_0"} {
		raw, _ := ggufBlocks(r, kind, n, k)
		f, data, err := ImportBlocks(kind, raw, n, k, nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range []int{1, 2, 4, 6, 8, 64} {
			x := Rows16{k, make([]byte, m*Rows16Bytes(k))}
			for i := range m {
				x.Set(i, randomFloats(r, k))
			}
			y := make([]float32, m*n)
			b.Run(fmt.Sprintf("%s/%d", kind, m), func(b *testing.B) {
				for b.Loop() {
					for p := range n / 16 {
						BlockProduct(f, y[16*p:], n, &x, 0, m, data[p*f.PanelBytes(k):], nil)
					}
				}
				b.ReportMetric(2*float64(b.N*m*n*k)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
