package conformance

import (
	"fmt"
	"math"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
)

// LayerNorm, Gelu and Attention are written as the models write them.
func layerNorm(x, gain, bias *node) *node {
	mean := graph.ReduceAndKeep(x, graph.ReduceMean, -1)
	d := graph.Sub(x, mean)
	variance := graph.ReduceAndKeep(graph.Mul(d, d), graph.ReduceMean, -1)
	y := graph.Div(d, graph.Sqrt(graph.AddScalar(variance, 1e-12)))
	h := x.Shape().Dimensions[1]
	return graph.Add(graph.Mul(y, graph.Reshape(gain, 1, h)), graph.Reshape(bias, 1, h))
}

func gelu(x *node) *node {
	return graph.Mul(graph.MulScalar(x, 0.5), graph.AddScalar(graph.Erf(graph.MulScalar(x, 1/math.Sqrt2)), 1))
}

func linear(x, w, b *node) *node {
	y := graph.DotGeneral(x, []int{1}, nil, w, []int{1}, nil)
	return graph.Add(y, graph.Reshape(b, 1, b.Shape().Dimensions[0]))
}

func attention(q, k, v, lens *node, b, l, n, d int) *node {
	g := q.Graph()
	idx := graph.Iota(g, shapes.Make(dtypes.Int32, b, l), 1)
	real := graph.LessThan(idx, graph.BroadcastToDims(graph.Reshape(lens, b, 1), b, l))
	mask := graph.BroadcastToDims(graph.Reshape(real, b, 1, 1, l), b, n, l, l)
	minus := graph.BroadcastToDims(graph.Scalar(g, dtypes.Float32, -1e9), b, n, l, l)
	r := func(x *node) *node { return graph.Reshape(x, b, l, n, d) }
	s := graph.MulScalar(graph.Einsum("blnd,bmnd->bnlm", r(q), r(k)), 1/math.Sqrt(float64(d)))
	a := graph.Softmax(graph.Where(mask, s, minus), -1)
	return graph.Reshape(graph.Einsum("bnlm,bmnd->blnd", a, r(v)), b*l, n*d)
}

// Fused are cases of chains that engines fuse, over sizes that meet tails, several
// tiles and several tasks.
func Fused() []Case {
	s := newSource(2)
	var cs []Case
	add := func(name string, f func(in nodes) nodes, in ...*tensors.Tensor) {
		cs = append(cs, Case{Name: name, Build: f, Inputs: in, Tol: 1e-5})
	}
	for _, n := range [][2]int{{1, 8}, {3, 7}, {50, 33}, {300, 96}, {7, 1100}, {2, 5000}} {
		r, w := n[0], n[1]
		name := fmt.Sprintf("%dx%d", r, w)
		add("layernorm/"+name, one(func(in nodes) *node { return layerNorm(graph.Add(in[0], in[1]), in[2], in[3]) }), s.f32(r, w), s.f32(r, w), s.f32(w), s.f32(w))
		add("softmax/"+name, func(in nodes) nodes {
			return nodes{graph.Softmax(in[0], -1), graph.LogSoftmax(in[0], -1), graph.Softmax(in[0], 0)}
		}, s.f32(r, w))
		add("gelu/"+name, one(func(in nodes) *node { return gelu(in[0]) }), s.f32(r, w))
		add("rms/"+name, one(func(in nodes) *node {
			ms := graph.ReduceAndKeep(graph.Mul(in[0], in[0]), graph.ReduceMean, -1)
			return graph.Mul(graph.Div(in[0], graph.Sqrt(graph.AddScalar(ms, 1e-6))), graph.Reshape(in[1], 1, w))
		}), s.f32(r, w), s.f32(w))
		add("linear-gelu/"+name, one(func(in nodes) *node { return gelu(linear(in[0], in[1], in[2])) }), s.f32(r, 24), s.f32(w, 24), s.f32(w))
		add("linear-norm/"+name, one(func(in nodes) *node {
			return layerNorm(graph.Add(linear(in[0], in[1], in[2]), in[3]), in[4], in[5])
		}), s.f32(r, 24), s.f32(w, 24), s.f32(w), s.f32(r, w), s.f32(w), s.f32(w))
		add("gated/"+name, one(func(in nodes) *node {
			g := graph.DotGeneral(in[0], []int{1}, nil, in[1], []int{1}, nil)
			u := graph.DotGeneral(in[0], []int{1}, nil, in[2], []int{1}, nil)
			return graph.Mul(graph.Mul(g, graph.Sigmoid(g)), u)
		}), s.f32(r, 24), s.f32(w, 24), s.f32(w, 24))
		add("diamond/"+name, func(in nodes) nodes { // a chain that leaves the group and returns
			a := graph.Exp(in[0])
			b := graph.ReduceSum(a, 0)
			c := graph.Mul(a, graph.Reshape(b, 1, w))
			d := graph.ReduceMax(c, 1)
			return nodes{c, d, graph.Sub(c, graph.BroadcastToDims(graph.Reshape(d, r, 1), r, w)), graph.Add(a, in[0])}
		}, s.f32(r, w))
		add("mask/"+name, func(in nodes) nodes {
			m := graph.LessThan(in[0], in[1])
			f := graph.ConvertDType(m, dtypes.Float32)
			return nodes{m, f, graph.Where(m, graph.Mul(in[0], f), graph.ZerosLike(in[0])), graph.ReduceSum(f, 1), graph.LogicalNot(m)}
		}, s.f32(r, w), s.f32(r, w))
		add("scalars/"+name, func(in nodes) nodes {
			m := graph.ReduceMean(in[0], 1)
			v := graph.Sqrt(graph.Abs(graph.AddScalar(m, 2)))
			return nodes{m, graph.Mul(v, in[1]), graph.ReduceAllSum(graph.Abs(in[0])), graph.Mul(in[0], graph.Reshape(v, r, 1))}
		}, s.f32(r, w), s.f32(r))
		add("rope/"+name, one(func(in nodes) *node {
			x := graph.Reshape(in[0], r, 2, 2*w)
			a := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(0, w))
			b := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(w, 2*w))
			co := graph.BroadcastToDims(graph.Reshape(in[1], r, 1, w), r, 2, w)
			si := graph.BroadcastToDims(graph.Reshape(in[2], r, 1, w), r, 2, w)
			return graph.Concatenate(nodes{graph.Sub(graph.Mul(a, co), graph.Mul(b, si)), graph.Add(graph.Mul(b, co), graph.Mul(a, si))}, 2)
		}), s.f32(r, 4*w), s.f32(r, w), s.f32(r, w))
	}
	for _, n := range [][4]int{{1, 1, 1, 1}, {2, 5, 3, 4}, {3, 37, 2, 16}, {1, 150, 2, 8}, {2, 300, 1, 32}} {
		b, l, h, d := n[0], n[1], n[2], n[3]
		add(fmt.Sprintf("attention/%v", n), one(func(in nodes) *node { return attention(in[0], in[1], in[2], in[3], b, l, h, d) }),
			s.f32(b*l, h*d), s.f32(b*l, h*d), s.f32(b*l, h*d), lengths(s, b, l))
	}
	add("mean-pool", one(func(in nodes) *node {
		keep := graph.ConvertDType(graph.BroadcastToDims(graph.Reshape(graph.LessThan(graph.Iota(in[0].Graph(), shapes.Make(dtypes.Int32, 3, 5), 1),
			graph.BroadcastToDims(graph.Reshape(in[1], 3, 1), 3, 5)), 3, 5, 1), 3, 5, 40), dtypes.Float32)
		return graph.Div(graph.ReduceSum(graph.Mul(in[0], keep), 1), graph.BroadcastToDims(graph.ConvertDType(graph.Reshape(in[1], 3, 1), dtypes.Float32), 3, 40))
	}), s.f32(3, 5, 40), lengths(s, 3, 5))
	add("gather-dequant", one(func(in nodes) *node { return linear(graph.Gather(in[0], in[1]), in[0], in[2]) }), s.f32(30, 24), s.i32(30, 9, 1), s.f32(30))
	return cs
}

func lengths(s *source, b, l int) *tensors.Tensor {
	v := make([]int32, b)
	for i := range v {
		v[i] = int32(1 + s.r.IntN(l))
	}
	return tensors.FromFlatDataAndDimensions(v, b)
}

// Gradients are cases of reverse-mode derivatives.
func Gradients() []Case {
	s := newSource(3)
	var cs []Case
	add := func(name string, f func(in nodes) *node, in ...*tensors.Tensor) {
		cs = append(cs, Case{Name: "gradient/" + name, Inputs: in, Tol: 2e-5, Build: func(x nodes) nodes {
			y := f(x)
			loss := graph.ReduceAllSum(graph.Mul(y, graph.Sin(graph.Iota(y.Graph(), y.Shape(), 0))))
			var floats nodes
			for _, n := range x {
				if n.DType().IsFloat() {
					floats = append(floats, n)
				}
			}
			return append(nodes{loss}, graph.Gradient(loss, floats...)...)
		}})
	}
	add("linear-gelu", func(in nodes) *node { return gelu(linear(in[0], in[1], in[2])) }, s.f32(50, 24), s.f32(33, 24), s.f32(33))
	add("layernorm", func(in nodes) *node { return layerNorm(in[0], in[1], in[2]) }, s.f32(50, 33), s.f32(33), s.f32(33))
	add("attention", func(in nodes) *node { return attention(in[0], in[1], in[2], in[3], 2, 9, 3, 8) }, s.f32(18, 24), s.f32(18, 24), s.f32(18, 24), lengths(s, 2, 9))
	add("embedding", func(in nodes) *node { return graph.Tanh(graph.Gather(in[0], in[1])) }, s.f32(11, 6), s.i32(11, 20, 1))
	add("slice-concat", func(in nodes) *node {
		return graph.Concatenate(nodes{graph.Exp(graph.Slice(in[0], graph.AxisRange(1, 4), graph.AxisRange())), in[1]}, 0)
	}, s.f32(6, 5), s.f32(2, 5))
	add("log-softmax", func(in nodes) *node { return graph.LogSoftmax(in[0], -1) }, s.f32(6, 50))
	add("rms", func(in nodes) *node {
		ms := graph.ReduceAndKeep(graph.Mul(in[0], in[0]), graph.ReduceMean, -1)
		return graph.Mul(graph.Div(in[0], graph.Sqrt(graph.AddScalar(ms, 1e-6))), graph.Reshape(in[1], 1, 20))
	}, s.f32(6, 20), s.f32(20))
	add("max-where", func(in nodes) *node {
		return graph.Where(graph.GreaterThan(in[0], in[1]), graph.Mul(in[0], in[1]), graph.Max(in[0], in[1]))
	}, s.f32(6, 20), s.f32(6, 20))
	add("dots", func(in nodes) *node { return graph.Einsum("bij,bjk->bik", in[0], graph.Tanh(in[1])) }, s.f32(3, 7, 9), s.f32(3, 9, 20))
	return cs
}
