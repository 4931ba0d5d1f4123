package native

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"golang.org/x/sync/errgroup"
)

// compile builds a computation of the backend's own builder.
func compile(t testing.TB, b *Backend, f func(b *Builder) []backends.Op) backends.Executable {
	t.Helper()
	bl := b.Builder("test").(*Builder)
	e, err := bl.Compile(f(bl), nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func must(t testing.TB) func(backends.Op, error) backends.Op {
	return func(o backends.Op, err error) backends.Op {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
}

// mlp is layers of x·W, each followed by a tanh and a mean over the row.
func mlp(t testing.TB, layers, batch, width int) func(b *Builder) []backends.Op {
	return func(b *Builder) []backends.Op {
		ok := must(t)
		x := ok(b.Parameter("x", shapes.Make(dtypes.Float32, batch, width), nil))
		for range layers {
			w := ok(b.Parameter("w", shapes.Make(dtypes.Float32, width, width), nil))
			x = ok(b.Tanh(ok(b.DotGeneral(x, []int{1}, nil, w, []int{1}, nil))))
			m := ok(b.Reshape(ok(b.ReduceMax(x, 1)), batch, 1))
			x = ok(b.Sub(x, m))
		}
		return []backends.Op{x}
	}
}

func inputs(t testing.TB, b *Backend, e backends.Executable) []backends.Buffer {
	t.Helper()
	_, ss := e.Inputs()
	var in []backends.Buffer
	for i, s := range ss {
		v := make([]float32, s.Size())
		for j := range v {
			v[j] = float32((j*7+i)%13-6) / 40
		}
		x, err := b.BufferFromFlatData(0, v, s)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, x)
	}
	return in
}

// Steady calls allocate the outputs' handles and nothing that grows with the work.
func TestSteadyAllocations(t *testing.T) {
	b := New(2)
	defer b.Finalize()
	var counts []float64
	for _, layers := range []int{1, 12} {
		e := compile(t, b, mlp(t, layers, 40, 96))
		in := inputs(t, b, e)
		counts = append(counts, testing.AllocsPerRun(50, func() {
			out, err := e.Execute(in, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.BufferFinalize(out[0]); err != nil {
				t.Fatal(err)
			}
		}))
	}
	if counts[0] > 8 || counts[1] > 8 {
		t.Errorf("%g allocations for 1 layer, %g for 12", counts[0], counts[1])
	}
}

func TestMisuse(t *testing.T) {
	b := New(1)
	e := compile(t, b, mlp(t, 1, 2, 3))
	in := inputs(t, b, e)
	small, err := b.BufferFromFlatData(0, []float32{1}, shapes.Make(dtypes.Float32, 1))
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]backends.Buffer{"too few": in[:1], "shape": {in[0], small}, "foreign": {in[0], 7}, "nil": {in[0], nil}} {
		if _, err := e.Execute(args, nil, 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := e.Execute(in, []bool{true}, 0); err == nil {
		t.Error("donation marks of the wrong length: no error")
	}
	if _, err := b.BufferFromFlatData(0, []float64{1}, shapes.Make(dtypes.Float32, 1)); err == nil {
		t.Error("wrong Go type: no error")
	}
	if _, err := b.BufferFromFlatData(0, []float32{1}, shapes.Make(dtypes.Float32, 2)); err == nil {
		t.Error("wrong length: no error")
	}
	if _, err := b.BufferFromFlatData(1, []float32{1}, shapes.Make(dtypes.Float32, 1)); err == nil {
		t.Error("wrong device: no error")
	}
	if err := b.BufferFinalize(small); err != nil {
		t.Fatal(err)
	}
	if err := b.BufferToFlatData(small, []float32{1}); err == nil {
		t.Error("finalized buffer: no error")
	}
	// A donated input is gone.
	if _, err := e.Execute(in, []bool{true, false}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Execute(in, nil, 0); err == nil {
		t.Error("donated buffer: no error")
	}
	bl := b.Builder("missing")
	if _, err := bl.(*Builder).BitCount(must(t)(bl.Parameter("x", shapes.Make(dtypes.Int32, 1), nil))); err == nil {
		t.Error("missing op: no error")
	} else {
		t.Log(err)
	}
	e.Finalize()
	if _, err := e.Execute(in, nil, 0); err == nil {
		t.Error("finalized executable: no error")
	}
	b.Finalize()
	b.Finalize()
}

func TestSharedBuffer(t *testing.T) {
	b := New(1)
	defer b.Finalize()
	x, flat, err := b.NewSharedBuffer(0, shapes.Make(dtypes.Float32, 2))
	if err != nil {
		t.Fatal(err)
	}
	e := compile(t, b, func(bl *Builder) []backends.Op {
		ok := must(t)
		return []backends.Op{ok(bl.Neg(ok(bl.Parameter("x", shapes.Make(dtypes.Float32, 2), nil))))}
	})
	for i := range 3 {
		flat.([]float32)[1] = float32(i)
		out, err := e.Execute([]backends.Buffer{x}, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 2)
		if err := b.BufferToFlatData(out[0], got); err != nil || got[1] != float32(-i) {
			t.Fatalf("%v %v", got, err)
		}
	}
}

func BenchmarkCallOverhead(b *testing.B) {
	be := New(2)
	defer be.Finalize()
	e := compile(b, be, func(bl *Builder) []backends.Op {
		ok := must(b)
		var x backends.Op
		for i := range 300 {
			p := ok(bl.Parameter("p", shapes.Make(dtypes.Float32, 4), nil))
			if i == 0 {
				x = p
			} else {
				x = ok(bl.Add(x, p))
			}
		}
		return []backends.Op{x}
	})
	in := inputs(b, be, e)
	b.ReportAllocs()
	for b.Loop() {
		out, err := e.Execute(in, nil, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := be.BufferFinalize(out[0]); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAdopt(t *testing.T) {
	b := New(1)
	defer b.Finalize()
	v := make([]float32, 1<<13)
	v[5] = 7
	s := shapes.Make(dtypes.Float32, len(v))
	x, err := b.AdoptFlatData(0, v, s)
	if err != nil {
		t.Fatal(err)
	}
	if flat, err := b.BufferData(x); err != nil || &flat.([]float32)[0] != &v[0] {
		t.Errorf("copied: %v", err)
	}
	for _, n := range []int{1, 1<<13 - 1} { // small or odd: copied
		y, err := b.AdoptFlatData(0, v[:n], shapes.Make(dtypes.Float32, n))
		if err != nil {
			t.Fatal(err)
		}
		if flat, err := b.BufferData(y); err != nil || &flat.([]float32)[0] == &v[0] {
			t.Errorf("%d floats: not copied: %v", n, err)
		}
	}
	if _, err := b.AdoptFlatData(0, v, shapes.Make(dtypes.Float32, 3)); err == nil {
		t.Error("wrong length: no error")
	}
}

// Executions that run at the same time give the same numbers as one alone.
func TestConcurrentExecutions(t *testing.T) {
	b := New(3)
	defer b.Finalize()
	e := compile(t, b, mlp(t, 3, 150, 96))
	in := inputs(t, b, e)
	want := run(t, b, e, in...)[0]
	var g errgroup.Group
	for range 6 {
		g.Go(func() error {
			for range 10 {
				out, err := e.Execute(in, nil, 0)
				if err != nil {
					return err
				}
				got := make([]float32, len(want))
				if err := b.BufferToFlatData(out[0], got); err != nil {
					return err
				}
				if err := b.BufferFinalize(out[0]); err != nil {
					return err
				}
				if !slices.Equal(got, want) {
					return errors.New("results differ")
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// A fault inside a task is an error of the call, and the backend goes on.
func TestFaultInTask(t *testing.T) {
	p := newPool(3)
	defer p.close()
	for range 20 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			p.run(jobFunc(func(i, _ int) {
				if i == 7 {
					panic("fault")
				}
			}), 50)
		}()
		var n atomic.Int32
		p.run(jobFunc(func(int, int) { n.Add(1) }), 50)
		if n.Load() != 50 {
			t.Fatalf("%d of 50 tasks ran", n.Load())
		}
	}
}

type jobFunc func(i, worker int)

func (f jobFunc) task(i, worker int) { f(i, worker) }
