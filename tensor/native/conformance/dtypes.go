package conformance

import (
	"fmt"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
)

// allDTypes are the dtypes that engines may have, without complex and packed ones.
var allDTypes = []dtypes.DType{dtypes.Bool, dtypes.Int8, dtypes.Int16, dtypes.Int32, dtypes.Int64, dtypes.Uint8, dtypes.Uint16,
	dtypes.Uint32, dtypes.Uint64, dtypes.Float16, dtypes.BFloat16, dtypes.Float32, dtypes.Float64}

// readable converts to a dtype that Equal reads.
func readable(x *node) *node {
	switch d := x.DType(); {
	case d == dtypes.Bool || d == dtypes.Float32 || d == dtypes.Float64 || d == dtypes.Int64:
		return x
	case d.IsFloat():
		return graph.ConvertDType(x, dtypes.Float32)
	}
	return graph.ConvertDType(x, dtypes.Int64)
}

// DTypes are cases of ops on every dtype, on shapes without a power of two. Inputs are
// small integers, which every dtype holds exactly.
func DTypes() []Case {
	s := newSource(4)
	var cs []Case
	for _, d := range allDTypes {
		half, number := d == dtypes.Float16 || d == dtypes.BFloat16, d != dtypes.Bool
		add := func(name string, f func(in nodes) nodes, in ...*tensors.Tensor) {
			c := Case{Name: fmt.Sprintf("dtype/%s/%s", d, name), Inputs: in, Half: half, Build: func(in nodes) nodes {
				x := make(nodes, len(in))
				for i, v := range in {
					if x[i] = v; v.DType() == dtypes.Int32 && v.Shape().Dimensions[0] != 1 {
						x[i] = graph.ConvertDType(v, d)
					}
				}
				var out nodes
				for _, y := range f(x) {
					out = append(out, readable(y))
				}
				return out
			}}
			if half {
				c.Tol = 0.02
			}
			cs = append(cs, c)
		}
		// Values from 0 for what has no sign.
		values := func(dims ...int) *tensors.Tensor {
			if d.IsUnsigned() || !number {
				return s.i32(5, dims...)
			}
			return s.signed(5, dims...)
		}
		add("shape", func(in nodes) nodes {
			x, y := in[0], in[1]
			return nodes{graph.TransposeAllDims(x, 2, 0, 1), graph.Concatenate(nodes{x, y}, 1), graph.Reverse(x, 0, 2), graph.Reshape(graph.TransposeAllDims(x, 0, 2, 1), 5, 21),
				graph.Slice(x, graph.AxisRange(1, 3), graph.AxisRange(), graph.AxisRange(0, 5).Stride(2)), graph.BroadcastToDims(graph.Slice(x, graph.AxisRange(0, 1)), 4, 7, 5), graph.Identity(x)}
		}, values(3, 7, 5), values(3, 2, 5))
		add("where", func(in nodes) nodes { return nodes{graph.Where(graph.NotEqual(in[0], in[1]), in[0], in[2])} }, values(3, 7), values(3, 7), values(3, 7))
		add("compare", func(in nodes) nodes { return nodes{graph.Equal(in[0], in[1]), graph.NotEqual(in[0], in[1])} }, values(3, 7), values(3, 7))
		add("gather", func(in nodes) nodes {
			return nodes{graph.Gather(in[0], graph.Reshape(in[1], 9, 1))}
		}, values(7, 5), s.i32(7, 1, 9))
		for _, to := range allDTypes {
			if toHalf := to == dtypes.Float16 || to == dtypes.BFloat16; toHalf && !half || d == to {
				continue // from the other side
			}
			add(fmt.Sprintf("convert-%s", to), func(in nodes) nodes { return nodes{graph.ConvertDType(in[0], to)} }, s.i32(5, 3, 7))
		}
		if !number {
			add("logic", func(in nodes) nodes {
				x, y := in[0], in[1]
				return nodes{graph.LogicalAnd(x, y), graph.LogicalOr(x, y), graph.LogicalXor(x, y), graph.LogicalNot(x), graph.ReduceLogicalAnd(x, 1), graph.ReduceLogicalOr(x, 0)}
			}, s.i32(2, 3, 7), s.i32(2, 3, 7))
			continue
		}
		add("arithmetic", func(in nodes) nodes {
			x, y := in[0], in[1]
			return nodes{graph.Add(x, y), graph.Sub(x, y), graph.Mul(x, y), graph.Max(x, y), graph.Min(x, y)}
		}, values(3, 7), values(3, 7))
		add("divide", func(in nodes) nodes {
			y := graph.AddScalar(in[1], 1)
			return nodes{graph.Div(in[0], y), graph.Mod(in[0], y)}
		}, values(3, 7), s.i32(4, 3, 7))
		add("order", func(in nodes) nodes {
			x, y := in[0], in[1]
			return nodes{graph.LessThan(x, y), graph.LessOrEqual(x, y), graph.GreaterThan(x, y), graph.GreaterOrEqual(x, y), graph.Clamp(graph.Scalar(x.Graph(), d, 1), x, graph.Scalar(x.Graph(), d, 3))}
		}, values(3, 7), values(3, 7))
		add("reduce", func(in nodes) nodes {
			x := in[0]
			return nodes{graph.ReduceSum(x, 0), graph.ReduceSum(x, 1), graph.ReduceMax(x, 0, 2), graph.ReduceMin(x, 2), graph.ReduceMultiply(x, 0)}
		}, values(3, 7, 5))
		add("dot", func(in nodes) nodes {
			return nodes{graph.Einsum("mk,kn->mn", in[0], in[1]), graph.Einsum("mk,kn->nm", in[0], in[1])}
		}, values(3, 7), values(7, 5))
		add("scatter", func(in nodes) nodes {
			i := graph.Reshape(in[1], 9, 1)
			return nodes{graph.ScatterSum(in[0], i, in[2], false, false), graph.ScatterMax(in[0], i, in[2], false, false), graph.ScatterMin(in[0], i, in[2], false, false)}
		}, values(7, 5), s.i32(7, 1, 9), values(9, 5))
		add("arg", func(in nodes) nodes { return nodes{graph.ArgMax(in[0], 1), graph.ArgMin(in[0], 0)} }, values(6, 7))
		if !d.IsUnsigned() {
			add("signed", func(in nodes) nodes { return nodes{graph.Neg(in[0]), graph.Abs(in[0]), graph.Sign(in[0])} }, values(3, 7))
		}
		if d.IsFloat() {
			add("functions", func(in nodes) nodes {
				x := in[0]
				p := graph.AddScalar(graph.Abs(x), 0.5)
				return nodes{graph.Exp(x), graph.Tanh(x), graph.Logistic(x), graph.Sqrt(p), graph.Rsqrt(p), graph.Log(p), graph.Floor(p), graph.Ceil(p), graph.Round(x), graph.Erf(x),
					graph.Sin(x), graph.Cos(x), graph.Expm1(x), graph.Log1P(p), graph.Pow(p, x), graph.IsNaN(x), graph.IsFinite(x)}
			}, values(3, 7))
		} else {
			add("bits", func(in nodes) nodes {
				return nodes{graph.BitwiseAnd(in[0], in[1]), graph.BitwiseOr(in[0], in[1]), graph.BitwiseXor(in[0], in[1])}
			}, values(3, 7), values(3, 7))
			cs[len(cs)-1].Crash = d.Size() < 4
			add("bits-not", func(in nodes) nodes { return nodes{graph.BitwiseNot(in[0])} }, values(3, 7))
		}
	}
	return cs
}
