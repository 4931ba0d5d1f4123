package native

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/x448/float16"
)

// tied is rows of a table times the table, and a form that needs flat memory.
func tied(t testing.TB, b *Backend, n, k, m int, whole bool) backends.Executable {
	return compile(t, b, func(bl *Builder) []backends.Op {
		ok := must(t)
		w := ok(bl.Parameter("w", shapes.Make(dtypes.Float32, n, k), nil))
		ix := ok(bl.Parameter("i", shapes.Make(dtypes.Int32, m, 1), nil))
		x := ok(bl.Gather(w, ix, 1, []int{1}, []int{0}, []int{0}, []int{1, k}, false))
		y := ok(bl.DotGeneral(x, []int{1}, nil, w, []int{1}, nil))
		out := []backends.Op{y, x}
		if whole {
			out = append(out, ok(bl.Neg(w)))
		}
		return out
	})
}

func run(t testing.TB, b *Backend, e backends.Executable, in ...backends.Buffer) (out [][]float32) {
	t.Helper()
	bufs, err := e.Execute(in, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range bufs {
		v := make([]float32, e.Outputs()[i].Size())
		if err := b.BufferToFlatData(o, v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return
}

func close32(t *testing.T, what string, got, want []float32, tol float64) {
	t.Helper()
	scale := 1.0
	for _, w := range want {
		scale = max(scale, math.Abs(float64(w)))
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > tol*scale {
			t.Fatalf("%s: element %d is %g, want %g", what, i, got[i], want[i])
		}
	}
}

// A weight that was packed loses its flat copy and still serves everything.
func TestPackedOnlyWeight(t *testing.T) {
	b := New(2)
	defer b.Finalize()
	r := rand.New(rand.NewPCG(4, 4))
	const n, k = 150, 64
	w := make([]float32, n*k)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	buf, err := b.BufferFromFlatData(0, w, shapes.Make(dtypes.Float32, n, k))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []int{1, 5} {
		ids := make([]int32, m)
		for i := range ids {
			ids[i] = int32(r.IntN(n))
		}
		ix, err := b.BufferFromFlatData(0, ids, shapes.Make(dtypes.Int32, m, 1))
		if err != nil {
			t.Fatal(err)
		}
		for _, whole := range []bool{false, true, false} {
			out := run(t, b, tied(t, b, n, k, m, whole), buf, ix)
			for i, id := range ids {
				close32(t, "row", out[1][i*k:(i+1)*k], w[int(id)*k:int(id+1)*k], 0)
				for j := range n {
					dot := 0.0
					for l := range k {
						dot += float64(w[int(id)*k+l]) * float64(w[j*k+l])
					}
					close32(t, "product", out[0][i*n+j:i*n+j+1], []float32{float32(dot)}, 1e-5)
				}
			}
			if whole {
				for i := range w {
					if out[2][i] != -w[i] {
						t.Fatal("the weight's elements changed")
					}
				}
			}
		}
	}
	got := make([]float32, n*k)
	if err := b.BufferToFlatData(buf, got); err != nil {
		t.Fatal(err)
	}
	close32(t, "fetched", got, w, 0)
}

func TestDropsFlatCopy(t *testing.T) {
	b := New(1)
	defer b.Finalize()
	const n, k = 128, 64
	buf, err := b.BufferFromFlatData(0, make([]float32, n*k), shapes.Make(dtypes.Float32, n, k))
	if err != nil {
		t.Fatal(err)
	}
	ix, err := b.BufferFromFlatData(0, []int32{3}, shapes.Make(dtypes.Int32, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	run(t, b, tied(t, b, n, k, 1, false), buf, ix)
	if buf.(*Buffer).mem != nil {
		t.Error("the flat copy is still there")
	}
}

// Blocks give the same numbers as their dequantised elements, in every use.
func TestBlockBuffer(t *testing.T) {
	b := New(2)
	defer b.Finalize()
	r := rand.New(rand.NewPCG(5, 5))
	const n, k = 70, 96
	var data []byte
	var w []float32
	for range n * k / 32 {
		d := float16.Fromfloat32(float32(r.Float64()) * 0.02)
		m := float16.Fromfloat32(float32(r.NormFloat64()) * 0.1)
		data = binary.LittleEndian.AppendUint16(data, d.Bits())
		data = binary.LittleEndian.AppendUint16(data, m.Bits())
		var v [32]float32
		for j := range 16 {
			q := byte(r.IntN(256))
			data = append(data, q)
			v[j], v[j+16] = float32(q&15)*d.Float32()+m.Float32(), float32(q>>4)*d.Float32()+m.Float32()
		}
		w = append(w, v[:]...)
	}
	s := shapes.Make(dtypes.Float32, n, k)
	quant, err := b.BlockBuffer("Q4_1", data, s)
	if err != nil {
		t.Fatal(err)
	}
	flat, err := b.BufferFromFlatData(0, w, s)
	if err != nil {
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
				close32(t, "output", got[i], want[i], 3e-5) // activations have 16 bits
			}
		}
	}
	if _, err := b.BlockBuffer("Q4_1", data[1:], s); err == nil {
		t.Error("cut blocks: no error")
	}
	if _, err := b.BlockBuffer("Q4_1", data, shapes.Make(dtypes.Float32, n*k)); err == nil {
		t.Error("a vector: no error")
	}
}

// Integers are close to float32, and a row does not depend on its batch.
func TestInt8Backend(t *testing.T) {
	exact, quant := New(2), NewInt8(2)
	defer exact.Finalize()
	defer quant.Finalize()
	r := rand.New(rand.NewPCG(6, 5))
	const n, k, m = 100, 192, 37
	w, x := make([]float32, n*k), make([]float32, m*k)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	product := func(b *Backend, x []float32) []float32 {
		m := len(x) / k
		e := compile(t, b, func(bl *Builder) []backends.Op {
			ok := must(t)
			p := ok(bl.Parameter("x", shapes.Make(dtypes.Float32, m, k), nil))
			q := ok(bl.Parameter("w", shapes.Make(dtypes.Float32, n, k), nil))
			return []backends.Op{ok(bl.DotGeneral(p, []int{1}, nil, q, []int{1}, nil))}
		})
		var in []backends.Buffer
		for _, a := range []struct {
			v []float32
			d int
		}{{x, m}, {w, n}} {
			f, err := b.BufferFromFlatData(0, a.v, shapes.Make(dtypes.Float32, a.d, k))
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, f)
		}
		return run(t, b, e, in...)[0]
	}
	want, got := product(exact, x), product(quant, x)
	var dot, a2, b2 float64
	for i := range want {
		dot, a2, b2 = dot+float64(want[i])*float64(got[i]), a2+float64(want[i])*float64(want[i]), b2+float64(got[i])*float64(got[i])
	}
	if cos := dot / math.Sqrt(a2*b2); cos < 0.999 || cos > 0.9999999 {
		t.Errorf("cosine %g", cos)
	}
	alone := product(quant, x[5*k:6*k])
	close32(t, "alone", alone, got[5*n:6*n], 0)
}
