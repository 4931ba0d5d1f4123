package native

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// part is a segment of an attention under test.
type part struct {
	n      int
	panels bool
	shared bool // keys and values are those of all batches
}

// attend builds the pattern; parameters are q [B,T,H,G,D], then keys, values and mask
// [B,T,n] of each part.
func attend(t testing.TB, bl *Builder, fill float32, b, tt, h, g, d int, parts []part) backends.Op {
	ok := must(t)
	f32 := func(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }
	q := ok(bl.Parameter("q", f32(b, tt, h, g, d), nil))
	var ws, vs []backends.Op
	var top backends.Op
	for i, p := range parts {
		kb := b
		if p.shared {
			kb = 1
		}
		wide := func(x backends.Op, dims ...int) backends.Op {
			if !p.shared || b == 1 {
				return x
			}
			axes := make([]int, len(dims))
			for i := range axes {
				axes[i] = i
			}
			return ok(bl.BroadcastInDim(x, f32(dims...), axes))
		}
		var s backends.Op
		var v backends.Op
		if p.panels {
			k := wide(ok(bl.Parameter(fmt.Sprint("k", i), f32(kb, h, p.n/16, d, 16), nil)), b, h, p.n/16, d, 16)
			v = wide(ok(bl.Parameter(fmt.Sprint("v", i), f32(kb, h, p.n, d), nil)), b, h, p.n, d)
			s = ok(bl.Reshape(ok(bl.DotGeneral(q, []int{4}, []int{0, 2}, k, []int{3}, []int{0, 1})), b, h, tt, g, p.n))
		} else {
			k := wide(ok(bl.Parameter(fmt.Sprint("k", i), f32(kb, p.n, h, d), nil)), b, p.n, h, d)
			v = wide(ok(bl.Parameter(fmt.Sprint("v", i), f32(kb, p.n, h, d), nil)), b, p.n, h, d)
			s = ok(bl.DotGeneral(q, []int{4}, []int{0, 2}, k, []int{3}, []int{0, 2}))
		}
		m := ok(bl.Parameter(fmt.Sprint("m", i), shapes.Make(dtypes.Bool, b, tt, p.n), nil))
		dims := []int{b, h, tt, g, p.n}
		c := ok(bl.Constant([]float32{fill}))
		w := ok(bl.Where(ok(bl.BroadcastInDim(m, shapes.Make(dtypes.Bool, dims...), []int{0, 2, 4})), s, ok(bl.BroadcastInDim(c, f32(dims...), nil))))
		ws, vs = append(ws, w), append(vs, v)
		if x := ok(bl.ReduceMax(w, 4)); top == nil {
			top = x
		} else {
			top = ok(bl.Max(top, x))
		}
	}
	var out, sum backends.Op
	for i, p := range parts {
		e := ok(bl.Exp(ok(bl.Sub(ws[i], ok(bl.BroadcastInDim(top, f32(b, h, tt, g, p.n), []int{0, 1, 2, 3}))))))
		var o backends.Op
		if p.panels {
			o = ok(bl.DotGeneral(e, []int{4}, []int{0, 1}, vs[i], []int{2}, []int{0, 1}))
		} else {
			o = ok(bl.DotGeneral(e, []int{4}, []int{0, 1}, vs[i], []int{1}, []int{0, 2}))
		}
		if z := ok(bl.ReduceSum(e, 4)); out == nil {
			out, sum = o, z
		} else {
			out, sum = ok(bl.Add(out, o)), ok(bl.Add(sum, z))
		}
	}
	return ok(bl.Div(out, ok(bl.BroadcastInDim(sum, f32(b, h, tt, g, d), []int{0, 1, 2, 3}))))
}

// fused counts attention steps.
func fused(e backends.Executable) (n int) {
	for _, s := range e.(*Executable).steps {
		if _, ok := s.(*attentionStep); ok {
			n++
		}
	}
	return
}

// attentionInputs are random, with masks whose true elements lie in [from, to) of a
// part, with holes when asked for; the mask of row (0, 0) may be false everywhere.
func attentionInputs(r *rand.Rand, b, tt, h, g, d int, parts []part, span func(p, bi, ti int) (int, int), holes bool) (flat []any, dims [][]int) {
	add := func(v any, d ...int) { flat, dims = append(flat, v), append(dims, d) }
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	add(random(b*tt*h*g*d), b, tt, h, g, d)
	for i, p := range parts {
		kb := b
		if p.shared {
			kb = 1
		}
		if p.panels {
			add(random(kb*h*p.n*d), kb, h, p.n/16, d, 16)
			add(random(kb*h*p.n*d), kb, h, p.n, d)
		} else {
			add(random(kb*h*p.n*d), kb, p.n, h, d)
			add(random(kb*h*p.n*d), kb, p.n, h, d)
		}
		m := make([]bool, b*tt*p.n)
		for row := range b * tt {
			from, to := span(i, row/tt, row%tt)
			for j := from; j < to; j++ {
				m[row*p.n+j] = !holes || r.IntN(3) > 0
			}
		}
		add(m, b, tt, p.n)
	}
	return
}

// reference is attention in float64.
func reference(flat []any, b, tt, h, g, d int, parts []part) []float64 {
	out := make([]float64, b*h*tt*g*d)
	q := flat[0].([]float32)
	for bi := range b {
		for hi := range h {
			for ti := range tt {
				for gi := range g {
					var scores []float64
					var rows [][]float32
					for i, p := range parts {
						k, v, m := flat[3*i+1].([]float32), flat[3*i+2].([]float32), flat[3*i+3].([]bool)
						kb := bi
						if p.shared {
							kb = 0
						}
						for j := range p.n {
							s := -1e30
							if m[(bi*tt+ti)*p.n+j] {
								s = 0
								for x := range d {
									at := ((kb*p.n+j)*h+hi)*d + x
									if p.panels {
										at = (((kb*h+hi)*(p.n/16)+j/16)*d+x)*16 + j%16
									}
									s += float64(q[(((bi*tt+ti)*h+hi)*g+gi)*d+x]) * float64(k[at])
								}
							}
							at := ((kb*p.n+j)*h + hi) * d
							if p.panels {
								at = ((kb*h+hi)*p.n + j) * d
							}
							scores, rows = append(scores, s), append(rows, v[at:at+d])
						}
					}
					top, sum := math.Inf(-1), 0.0
					for _, s := range scores {
						top = max(top, s)
					}
					o := out[(((bi*h+hi)*tt+ti)*g+gi)*d:][:d]
					for j, s := range scores {
						e := math.Exp(s - top)
						sum += e
						for x := range o {
							o[x] += e * float64(rows[j][x])
						}
					}
					for x := range o {
						o[x] /= sum
					}
				}
			}
		}
	}
	return out
}

func TestAttention(t *testing.T) {
	b := New(2)
	defer b.Finalize()
	r := rand.New(rand.NewPCG(3, 3))
	for _, c := range []struct {
		b, t, h, g, d int
		parts         []part
	}{
		{1, 1, 1, 1, 8, []part{{16, true, false}}},
		{1, 1, 3, 3, 64, []part{{256, true, false}, {1, false, false}}},
		{4, 1, 2, 2, 16, []part{{64, true, true}, {32, true, false}, {1, false, false}}},
		{2, 7, 2, 1, 20, []part{{48, true, false}, {7, false, false}}},
		{1, 70, 1, 3, 64, []part{{128, true, true}, {256, true, false}, {70, false, false}}},
		{3, 5, 2, 4, 24, []part{{33, false, false}, {9, false, true}}},
		{1, 3, 1, 60, 8, []part{{2048, true, false}}},
	} {
		for _, holes := range []bool{false, true} {
			name := fmt.Sprintf("%+v holes %v", c, holes)
			e := compile(t, b, func(bl *Builder) []backends.Op {
				return []backends.Op{attend(t, bl, -1e30, c.b, c.t, c.h, c.g, c.d, c.parts)}
			})
			if fused(e) != 1 {
				t.Fatalf("%s: not fused", name)
			}
			for try := range 3 {
				flat, dims := attentionInputs(r, c.b, c.t, c.h, c.g, c.d, c.parts, func(p, bi, ti int) (int, int) {
					if try == 2 && bi == 0 && ti == 0 {
						return 0, 0 // nothing in any part
					}
					from := r.IntN(c.parts[p].n + 1)
					if try == 0 {
						from = 0
					}
					return from, from + r.IntN(c.parts[p].n-from+1)
				}, holes)
				got, want := runAttention(t, b, e, flat, dims), reference(flat, c.b, c.t, c.h, c.g, c.d, c.parts)
				for i := range want {
					if math.Abs(float64(got[i])-want[i]) > 2e-5 {
						t.Fatalf("%s try %d: element %d is %g, want %g", name, try, i, got[i], want[i])
					}
				}
			}
		}
	}
	// Masked scores that would count are no masks.
	e := compile(t, b, func(bl *Builder) []backends.Op {
		return []backends.Op{attend(t, bl, -5, 1, 2, 1, 1, 8, []part{{16, true, false}})}
	})
	if fused(e) != 0 {
		t.Error("scores of -5 are taken as masked")
	}
}

func runAttention(t *testing.T, b *Backend, e backends.Executable, flat []any, dims [][]int) []float32 {
	t.Helper()
	var in []backends.Buffer
	for i, f := range flat {
		d := dtypes.Float32
		if _, ok := f.([]bool); ok {
			d = dtypes.Bool
		}
		x, err := b.BufferFromFlatData(0, f, shapes.Make(d, dims[i]...))
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, x)
	}
	return run(t, b, e, in...)[0]
}

// Rows of a cache that no mask shows are not read: NaN in them does not reach the
// result, which is the same, bit by bit, whatever the capacity. So a step costs the same.
func TestAttentionReadsWhatIsUsed(t *testing.T) {
	b := New(2)
	defer b.Finalize()
	const used, h, g, d = 100, 2, 3, 32
	small := []part{{128, true, false}, {1, false, false}}
	span := func(p, _, _ int) (int, int) {
		if p == 0 {
			return 0, used
		}
		return 0, 1
	}
	flat, dims := attentionInputs(rand.New(rand.NewPCG(1, 2)), 1, 1, h, g, d, small, span, false)
	var want []float32
	for _, capacity := range []int{128, 512, 8192} {
		parts := []part{{capacity, true, false}, {1, false, false}}
		k, v, m := make([]float32, h*capacity*d), make([]float32, h*capacity*d), make([]bool, capacity)
		nan := float32(math.NaN())
		for i := range k {
			k[i], v[i] = nan, nan
		}
		for i := range h {
			copy(k[i*capacity*d:], flat[1].([]float32)[i*128*d:(i+1)*128*d])
			copy(v[i*capacity*d:], flat[2].([]float32)[i*128*d:][:used*d])
		}
		for j := range used {
			m[j] = true
		}
		e := compile(t, b, func(bl *Builder) []backends.Op { return []backends.Op{attend(t, bl, -1e30, 1, 1, h, g, d, parts)} })
		got := runAttention(t, b, e, []any{flat[0], k, v, m, flat[4], flat[5], flat[6]}, [][]int{dims[0], {1, h, capacity / 16, d, 16}, {1, h, capacity, d}, {1, 1, capacity}, dims[4], dims[5], dims[6]})
		if want == nil {
			want = got
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("capacity %d: element %d is %g, with 128 %g", capacity, i, got[i], want[i])
			}
		}
	}
}

// Steady calls of attention and of products with blocks allocate the outputs' handles.
func TestDecodeAllocations(t *testing.T) {
	b := New(2)
	defer b.Finalize()
	const h, g, d, k = 2, 3, 32, 192
	raw, parts := make([]byte, k*k/32*20), []part{{256, true, false}, {1, false, false}}
	for _, layers := range []int{1, 6} {
		e := compile(t, b, func(bl *Builder) []backends.Op {
			ok := must(t)
			w := ok(bl.Parameter("w", shapes.Make(dtypes.Float32, k, k), nil))
			x := attend(t, bl, -1e30, 1, 1, h, g, d, parts)
			for range layers {
				x = ok(bl.Tanh(ok(bl.DotGeneral(ok(bl.Reshape(x, 1, k)), []int{1}, nil, w, []int{1}, nil))))
			}
			return []backends.Op{x}
		})
		flat, dims := attentionInputs(rand.New(rand.NewPCG(1, 2)), 1, 1, h, g, d, parts, func(p, _, _ int) (int, int) { return 0, min(100, parts[p].n) }, false)
		w, err := b.BlockBuffer("Q4_1", raw, shapes.Make(dtypes.Float32, k, k))
		if err != nil {
			t.Fatal(err)
		}
		in := []backends.Buffer{w}
		for i, f := range flat {
			s := shapes.Make(dtypes.Float32, dims[i]...)
			if _, ok := f.([]bool); ok {
				s.DType = dtypes.Bool
			}
			x, err := b.BufferFromFlatData(0, f, s)
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, x)
		}
		call := func() {
			out, err := e.Execute(in, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.BufferFinalize(out[0]); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(50, call); n > 8 {
			t.Errorf("%d layers: %g allocations", layers, n)
		}
		var before, after runtime.MemStats
		const calls = 100
		runtime.ReadMemStats(&before)
		for range calls {
			call()
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) / calls; n > 2<<10 {
			t.Errorf("%d layers: %d bytes a call", layers, n)
		}
	}
}
