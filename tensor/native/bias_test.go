package native

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// What is added to a product's rows is added once, whatever reads the sum, on every
// engine; and a row's result is that of the row alone.
func TestBias(t *testing.T) {
	const n, k = 70, 96
	forms := map[string]func(ok func(backends.Op, error) backends.Op, bl *Builder, y, bias backends.Op) []backends.Op{
		"alone": func(ok func(backends.Op, error) backends.Op, bl *Builder, y, bias backends.Op) []backends.Op {
			return []backends.Op{ok(bl.Add(y, bias))}
		},
		"function": func(ok func(backends.Op, error) backends.Op, bl *Builder, y, bias backends.Op) []backends.Op {
			return []backends.Op{ok(bl.Tanh(ok(bl.Add(bias, y))))}
		},
		"sum kept": func(ok func(backends.Op, error) backends.Op, bl *Builder, y, bias backends.Op) []backends.Op {
			s := ok(bl.Add(y, bias))
			return []backends.Op{s, ok(bl.Mul(s, s))}
		},
		"product used twice": func(ok func(backends.Op, error) backends.Op, bl *Builder, y, bias backends.Op) []backends.Op {
			return []backends.Op{ok(bl.Mul(ok(bl.Add(y, bias)), y))}
		},
		"bias used twice": func(ok func(backends.Op, error) backends.Op, bl *Builder, y, bias backends.Op) []backends.Op {
			return []backends.Op{ok(bl.Mul(ok(bl.Add(y, bias)), bias))}
		},
	}
	value := map[string]func(y, b float64) []float64{
		"alone": func(y, b float64) []float64 { return []float64{y + b} }, "function": func(y, b float64) []float64 { return []float64{math.Tanh(y + b)} },
		"sum kept":           func(y, b float64) []float64 { return []float64{y + b, (y + b) * (y + b)} },
		"product used twice": func(y, b float64) []float64 { return []float64{(y + b) * y} }, "bias used twice": func(y, b float64) []float64 { return []float64{(y + b) * b} },
	}
	var weight, bias [n * k]float32
	for i := range weight {
		weight[i] = wave(1, i)
	}
	for i := range n {
		bias[i] = wave(2, i)
	}
	for engine, b := range engines(2) {
		defer b.Finalize()
		buffer := func(v []float32, dims ...int) backends.Buffer {
			f, err := b.BufferFromFlatData(0, v, shapes.Make(dtypes.Float32, dims...))
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		for form, build := range forms {
			apply := func(x []float32) [][]float32 {
				m := len(x) / k
				e := compile(t, b, func(bl *Builder) []backends.Op {
					ok := must(t)
					p := ok(bl.Parameter("x", shapes.Make(dtypes.Float32, m, k), nil))
					w := ok(bl.Parameter("w", shapes.Make(dtypes.Float32, n, k), nil))
					c := ok(bl.BroadcastInDim(ok(bl.Parameter("b", shapes.Make(dtypes.Float32, n), nil)), shapes.Make(dtypes.Float32, m, n), []int{1}))
					return build(ok, bl, ok(bl.DotGeneral(p, []int{1}, nil, w, []int{1}, nil)), c)
				})
				return run(t, b, e, buffer(x, m, k), buffer(weight[:], n, k), buffer(bias[:n], n))
			}
			for _, m := range []int{1, 2, 5, 40, 200} {
				x := make([]float32, m*k)
				for i := range x {
					x[i] = wave(3, i)
				}
				got := apply(x)
				for r := range m {
					for j := range n {
						y := 0.0
						for l := range k {
							y += float64(x[r*k+l]) * float64(weight[j*k+l])
						}
						for o, want := range value[form](y, float64(bias[j])) {
							tol := 2e-5
							if engine != "f32" {
								tol = 0.2 // of values up to 100: a bias lost or added twice is more
							}
							if d := math.Abs(float64(got[o][r*n+j]) - want); d > tol*(1+math.Abs(want)) && d > tol*(1+math.Abs(y)) {
								t.Fatalf("%s, %s, %d rows: output %d [%d,%d] is %g, want %g", engine, form, m, o, r, j, got[o][r*n+j], want)
							}
						}
					}
				}
				if engine == "f32" || engine == "int8" {
					alone := apply(x[(m-1)*k:])
					for o := range alone {
						close32(t, fmt.Sprint(engine, form, " alone"), alone[o], got[o][(m-1)*n:], 0)
					}
				}
			}
		}
	}
}
