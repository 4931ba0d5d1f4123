package native

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

func cosine(a, b []float32) float64 {
	var dot, x, y float64
	for i := range a {
		dot, x, y = dot+float64(a[i])*float64(b[i]), x+float64(a[i])*float64(a[i]), y+float64(b[i])*float64(b[i])
	}
	return dot / math.Sqrt(x*y)
}

// The 16-bit engines stay within DESIGN.md's tolerance, drop the float32 copy, and
// give a row the same result in every batch up to the order of sums.
func TestHalfBackends(t *testing.T) {
	for _, f := range []simd.BlockFormat{simd.BlockBF16, simd.BlockF16} {
		exact, half := New(2), NewHalf(2, f)
		tol := 1e-5
		if half.half == simd.BlockBF16Pairs { // then all rows take the same kernels
			tol = 0
		}
		defer exact.Finalize()
		defer half.Finalize()
		r := rand.New(rand.NewPCG(8, 8))
		const n, k = 150, 192
		w := make([]float32, n*k)
		for i := range w {
			w[i] = float32(r.NormFloat64())
		}
		var bufs [2]backends.Buffer
		for i, b := range []*Backend{exact, half} {
			var err error
			if bufs[i], err = b.BufferFromFlatData(0, w, shapes.Make(dtypes.Float32, n, k)); err != nil {
				t.Fatal(err)
			}
		}
		var first []float32
		for _, m := range []int{1, 2, 3, 30, 200} {
			ids := make([]int32, m)
			for i := range ids {
				ids[i] = int32(i * 7 % n)
			}
			for _, whole := range []bool{false, true, false} {
				var out [2][][]float32
				for i, b := range []*Backend{exact, half} {
					ix, err := b.BufferFromFlatData(0, ids, shapes.Make(dtypes.Int32, m, 1))
					if err != nil {
						t.Fatal(err)
					}
					out[i] = run(t, b, tied(t, b, n, k, m, whole), bufs[i], ix)
				}
				for i := range out[0] {
					if c := cosine(out[0][i], out[1][i]); c < 0.9995 {
						t.Fatalf("format %d, %d rows, output %d: cosine %g", f, m, i, c)
					}
				}
				if c := cosine(out[0][0], out[1][0]); c > 0.99999999 {
					t.Fatalf("format %d: cosine %g, the weights were not rounded", f, c)
				}
				if !whole && bufs[1].(*Buffer).blocks == nil {
					t.Fatal("the weight is not in 16 bits")
				}
				if first == nil {
					first = out[1][0]
					if bufs[1].(*Buffer).mem != nil {
						t.Error("the float32 copy is still there")
					}
				}
				close32(t, "row 0", out[1][0][:n], first[:n], tol)
			}
		}
	}
}

// Where the CPU multiplies bfloat16, "native:bf16" rounds activations as well, those of a
// bfloat16 checkpoint's products too; "native" does not. Calls do not allocate more.
func TestBF16Activations(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	const n, k, m = 50, 71, 20
	w, x := make([]byte, 2*n*k), make([]float32, m*k)
	bf := func(v float32) float32 {
		u := math.Float32bits(v)
		return math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
	}
	for i := 0; i < len(w); i += 2 {
		binary.LittleEndian.PutUint16(w[i:], uint16(math.Float32bits(bf(float32(r.NormFloat64())))>>16))
	}
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	product := func(b *Backend, kind string, x []float32) []float32 {
		m := len(x) / k
		e := compile(t, b, func(bl *Builder) []backends.Op {
			ok := must(t)
			p := ok(bl.Parameter("x", shapes.Make(dtypes.Float32, m, k), nil))
			q := ok(bl.Parameter("w", shapes.Make(dtypes.Float32, n, k), nil))
			return []backends.Op{ok(bl.DotGeneral(p, []int{1}, nil, q, []int{1}, nil))}
		})
		in, err := b.BufferFromFlatData(0, x, shapes.Make(dtypes.Float32, m, k))
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := b.BlockBuffer("BF16", w, shapes.Make(dtypes.Float32, n, k))
		if err != nil {
			t.Fatal(err)
		}
		if kind == "float32" {
			flat := make([]float32, n*k)
			if err := b.BufferToFlatData(blocks, flat); err != nil {
				t.Fatal(err)
			}
			if blocks, err = b.BufferFromFlatData(0, flat, shapes.Make(dtypes.Float32, n, k)); err != nil {
				t.Fatal(err)
			}
			blocks.(*Buffer).host = true // as larger ones are
		}
		out := run(t, b, e, in, blocks)[0]
		if a := testing.AllocsPerRun(20, func() {
			y, err := e.Execute([]backends.Buffer{in, blocks}, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.BufferFinalize(y[0]); err != nil {
				t.Fatal(err)
			}
		}); a > 8 {
			t.Errorf("%g allocations a call", a)
		}
		return out
	}
	exact, half := New(2), NewHalf(2, simd.BlockBF16)
	defer exact.Finalize()
	defer half.Finalize()
	rounded := make([]float32, len(x))
	for i, v := range x {
		rounded[i] = bf(v)
	}
	want := product(exact, "checkpoint", x)
	if simd.Level >= simd.BF16 {
		want = product(exact, "checkpoint", rounded)
		close32(t, "a checkpoint on native", product(exact, "checkpoint", x)[:1], want[:1], 0.05)
		if c := cosine(product(exact, "checkpoint", x), want); c > 0.9999999 {
			t.Errorf("cosine %g: native rounds activations", c)
		}
	}
	for _, kind := range []string{"checkpoint", "float32"} {
		all := product(half, kind, x)
		close32(t, kind, all, want, 2e-6)
		if simd.Level >= simd.BF16 {
			for i := range m {
				close32(t, kind+", a row alone", product(half, kind, x[i*k:(i+1)*k]), all[i*n:(i+1)*n], 0)
			}
		}
	}
}

// K-quants and 16-bit checkpoints give the numbers of their elements, in every use.
func TestFloatBlockBuffers(t *testing.T) {
	b := New(2)
	defer b.Finalize()
	r := rand.New(rand.NewPCG(5, 5))
	const n, k = 70, 512
	for kind, size := range map[string]int{"Q4_K": 144, "Q6_K": 210, "BF16": 512, "F16": 512} {
		data := make([]byte, n*k/256*size)
		for i := range data {
			data[i] = byte(r.IntN(256))
		}
		for i := 0; i < len(data); i += size {
			switch kind {
			case "Q4_K":
				binary.LittleEndian.PutUint32(data[i:], 0x1c001e00) // halves of some 0.005
			case "Q6_K":
				binary.LittleEndian.PutUint16(data[i+208:], 0x1200)
			default:
				for j := i; j < i+size; j += 2 {
					data[j+1] = data[j+1]&0x83 | 0x38 // not large
				}
			}
		}
		s := shapes.Make(dtypes.Float32, n, k)
		quant, err := b.BlockBuffer(kind, data, s)
		if err != nil {
			t.Fatal(err)
		}
		w := make([]float32, n*k)
		if err := b.BufferToFlatData(quant, w); err != nil {
			t.Fatal(err)
		}
		flat, err := b.BufferFromFlatData(0, w, s)
		if err != nil {
			t.Fatal(err)
		}
		if quant, err = b.BlockBuffer(kind, data, s); err != nil {
			t.Fatal(err)
		}
		for _, m := range []int{1, 2, 3, 30, 200} {
			ids := make([]int32, m)
			for i := range ids {
				ids[i] = int32(r.IntN(n))
			}
			ix, err := b.BufferFromFlatData(0, ids, shapes.Make(dtypes.Int32, m, 1))
			if err != nil {
				t.Fatal(err)
			}
			for _, whole := range []bool{false, true} {
				e := tied(t, b, n, k, m, whole)
				got, want := run(t, b, e, quant, ix), run(t, b, e, flat, ix)
				for i := range want {
					close32(t, kind, got[i], want[i], 3e-6)
				}
			}
		}
		if _, err := b.BlockBuffer(kind, data[1:], s); err == nil {
			t.Errorf("%s: cut data: no error", kind)
		}
	}
}
