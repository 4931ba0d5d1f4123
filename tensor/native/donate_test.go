package native

import (
	"slices"
	"testing"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// A donated array is updated in place: the output has its memory. Whatever else reads
// the array sees it before the update, and undonated inputs stay as they are.
func TestUpdateInPlace(t *testing.T) {
	b := New(2)
	defer b.Finalize()
	const n = 4096
	// after: the parameter is read by a step that depends on the update.
	build := func(after bool) backends.Executable {
		return compile(t, b, func(bl *Builder) []backends.Op {
			ok := must(t)
			x := ok(bl.Parameter("x", shapes.Make(dtypes.Float32, n), nil))
			u := ok(bl.Parameter("u", shapes.Make(dtypes.Float32, 3), nil))
			at := ok(bl.Parameter("at", shapes.Make(dtypes.Int32), nil))
			z := ok(bl.Neg(x))
			y := ok(bl.DynamicUpdateSlice(x, u, []backends.Op{at}))
			if after {
				z = ok(bl.Add(y, x))
			}
			return []backends.Op{y, z}
		})
	}
	upload := func(flat any, dims ...int) backends.Buffer {
		d := dtypes.Float32
		if _, ok := flat.([]int32); ok {
			d = dtypes.Int32
		}
		v, err := b.BufferFromFlatData(0, flat, shapes.Make(d, dims...))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	base := make([]float32, n)
	for i := range base {
		base[i] = float32(i)
	}
	for _, after := range []bool{false, true} {
		e := build(after)
		for name, c := range map[string]struct {
			donate, place bool
			make          func() backends.Buffer
		}{
			"donated": {true, !after, func() backends.Buffer { return upload(base, n) }},
			"kept":    {false, false, func() backends.Buffer { return upload(base, n) }},
			"shared": {true, false, func() backends.Buffer {
				v, flat, err := b.NewSharedBuffer(0, shapes.Make(dtypes.Float32, n))
				if err != nil {
					t.Fatal(err)
				}
				copy(flat.([]float32), base)
				return v
			}},
			"adopted": {true, false, func() backends.Buffer {
				v, err := b.AdoptFlatData(0, slices.Clone(base), shapes.Make(dtypes.Float32, n))
				if err != nil {
					t.Fatal(err)
				}
				return v
			}},
		} {
			x := c.make()
			was := x.(*Buffer).base()
			x2 := x
			out, err := e.Execute([]backends.Buffer{x, upload([]float32{-1, -2, -3}, 3), upload([]int32{100})}, []bool{c.donate, false, false}, 0)
			if err != nil {
				t.Fatal(name, err)
			}
			if got := out[0].(*Buffer).base() == was; got != c.place {
				t.Errorf("%s, read afterwards %v: in place %v, want %v", name, after, got, c.place)
			}
			got, other, kept := make([]float32, n), make([]float32, n), make([]float32, n)
			for i, v := range [][]float32{got, other} {
				if err := b.BufferToFlatData(out[i], v); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.BufferToFlatData(x2, kept); (err == nil) == c.donate || err == nil && !slices.Equal(kept, base) {
				t.Errorf("%s: the input is %v… (%v)", name, kept[100:103], err)
			}
			for i := range base {
				want := base[i]
				if i >= 100 && i < 103 {
					want = float32(99 - i)
				}
				if w2 := map[bool]float32{false: -base[i], true: want + base[i]}[after]; got[i] != want || other[i] != w2 {
					t.Fatalf("%s, read afterwards %v: element %d is %g and %g, want %g and %g", name, after, i, got[i], other[i], want, w2)
				}
			}
		}
		// The same buffer twice.
		two := compile(t, b, func(bl *Builder) []backends.Op {
			ok := must(t)
			x := ok(bl.Parameter("x", shapes.Make(dtypes.Float32, n), nil))
			z := ok(bl.Parameter("z", shapes.Make(dtypes.Float32, n), nil))
			u := ok(bl.Parameter("u", shapes.Make(dtypes.Float32, 1), nil))
			at := ok(bl.Parameter("at", shapes.Make(dtypes.Int32), nil))
			y := ok(bl.DynamicUpdateSlice(x, u, []backends.Op{at}))
			return []backends.Op{y, ok(bl.Add(y, z))}
		})
		x := upload(base, n)
		out, err := two.Execute([]backends.Buffer{x, x, upload([]float32{5}, 1), upload([]int32{7})}, []bool{true, false, false, false}, 0)
		if err != nil {
			t.Fatal(err)
		}
		v := make([]float32, n)
		if err := b.BufferToFlatData(out[1], v); err != nil || v[7] != 12 || v[8] != 16 {
			t.Errorf("the same buffer twice: %v %v", v[7:9], err)
		}
	}
}
