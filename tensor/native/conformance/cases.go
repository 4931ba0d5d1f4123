package conformance

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
)

type (
	node  = graph.Node
	nodes = []*graph.Node
)

func one(f func(in nodes) *node) func(in nodes) nodes {
	return func(in nodes) nodes { return nodes{f(in)} }
}

// sorted ranges over a map in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// Ops are cases of single ops on odd shapes.
func Ops() []Case {
	s := newSource(1)
	var cs []Case
	add := func(name string, f func(in nodes) *node, in ...*tensors.Tensor) {
		cs = append(cs, Case{Name: name, Build: one(f), Inputs: in})
	}
	for name, f := range sorted(map[string]func(x *node) *node{
		"abs": graph.Abs, "neg": graph.Neg, "exp": graph.Exp, "tanh": graph.Tanh, "erf": graph.Erf, "sin": graph.Sin, "cos": graph.Cos,
		"floor": graph.Floor, "ceil": graph.Ceil, "sigmoid": graph.Sigmoid, "expm1": graph.Expm1, "sign": graph.Sign, "isfinite": graph.IsFinite, "round": graph.Round,
	}) {
		add("unary/"+name, func(in nodes) *node { return f(in[0]) }, s.f32(3, 5, 7))
		if name != "sin" && name != "cos" && name != "sign" {
			add("unary-odd/"+name, func(in nodes) *node { return f(in[0]) }, s.odd(3, 5, 7))
		}
	}
	for name, f := range sorted(map[string]func(x *node) *node{"sqrt": graph.Sqrt, "rsqrt": graph.Rsqrt, "log": graph.Log, "log1p": graph.Log1P}) {
		add("unary/"+name, func(in nodes) *node { return f(in[0]) }, s.positive(1, 13))
	}
	for name, f := range sorted(map[string]func(x, y *node) *node{
		"add": graph.Add, "sub": graph.Sub, "mul": graph.Mul, "div": graph.Div, "max": graph.Max, "min": graph.Min,
		"less": graph.LessThan, "lessequal": graph.LessOrEqual, "equal": graph.Equal, "greater": graph.GreaterThan, "notequal": graph.NotEqual, "greaterequal": graph.GreaterOrEqual,
	}) {
		g := func(in nodes) *node { return f(in[0], in[1]) }
		add("binary/"+name, g, s.f32(3, 5, 7), s.f32(3, 5, 7))
		add("binary-row/"+name, g, s.f32(3, 5, 7), s.f32(1, 1, 7))
		add("binary-column/"+name, g, s.f32(3, 1, 1), s.f32(3, 5, 7))
		add("binary-middle/"+name, g, s.f32(3, 5, 7), s.f32(1, 5, 1))
		add("binary-scalar/"+name, g, s.f32(), s.f32(3, 5, 7))
		add("binary-odd/"+name, g, s.odd(31), s.odd(31))
		cs[len(cs)-1].NaN = name == "max" || name == "min"
		add("binary-int/"+name, g, s.signed(9, 3, 5), s.signed(9, 3, 5))
		add("binary-int-row/"+name, g, s.signed(9, 3, 5), s.signed(9, 1, 5))
	}
	add("binary/pow", func(in nodes) *node { return graph.Pow(in[0], in[1]) }, s.positive(17), s.f32(17))
	add("binary/rem", func(in nodes) *node { return graph.Mod(in[0], in[1]) }, s.f32(17), s.positive(17))
	add("logic", func(in nodes) *node {
		a, b := graph.LessThan(in[0], in[1]), graph.GreaterThan(in[0], graph.Neg(in[1]))
		return graph.LogicalXor(graph.LogicalOr(graph.LogicalAnd(a, b), graph.LogicalNot(a)), b)
	}, s.f32(9, 5), s.f32(9, 5))
	add("where", func(in nodes) *node { return graph.Where(graph.LessThan(in[0], in[1]), in[0], in[1]) }, s.f32(4, 3), s.f32(4, 3))
	add("where-scalar", func(in nodes) *node { return graph.Where(graph.LessThan(in[0], in[1]), in[2], in[1]) }, s.f32(4, 3), s.f32(4, 3), s.f32())
	add("where-int", func(in nodes) *node { return graph.Where(graph.LessThan(in[0], in[1]), in[0], in[1]) }, s.i32(9, 4, 3), s.i32(9, 4, 3))
	for _, d := range []dtypes.DType{dtypes.Int32, dtypes.Int64, dtypes.Uint8, dtypes.Bool, dtypes.Float64} {
		add(fmt.Sprintf("convert/f32-%s", d), func(in nodes) *node { return graph.ConvertDType(in[0], d) }, s.positive(11))
		add(fmt.Sprintf("convert/i32-%s", d), func(in nodes) *node { return graph.ConvertDType(in[0], d) }, s.i32(99, 11))
	}
	add("convert/bool-f32", func(in nodes) *node { return graph.ConvertDType(graph.LessThan(in[0], in[1]), dtypes.Float32) }, s.f32(11), s.f32(11))
	add("convert/bool-i32", func(in nodes) *node { return graph.ConvertDType(graph.LessThan(in[0], in[1]), dtypes.Int32) }, s.f32(11), s.f32(11))
	for _, d := range []dtypes.DType{dtypes.Float16, dtypes.BFloat16} {
		add(fmt.Sprintf("convert/%s", d), func(in nodes) *node {
			x, y := graph.ConvertDType(in[0], d), graph.ConvertDType(in[1], d)
			return graph.ConvertDType(graph.Mul(graph.Add(x, y), x), dtypes.Float32)
		}, s.f32(11), s.f32(11))
		cs[len(cs)-1].Half, cs[len(cs)-1].Tol = true, 0.01
	}
	add("iota", func(in nodes) *node {
		return graph.Add(in[0], graph.Iota(in[0].Graph(), shapes.Make(dtypes.Float32, 3, 4, 5), 1))
	}, s.f32(3, 4, 5))
	add("iota-int", func(in nodes) *node { return graph.Iota(in[0].Graph(), shapes.Make(dtypes.Int32, 3, 4), 1) }, s.f32(1))
	add("reshape", func(in nodes) *node { return graph.Reshape(in[0], 10, 6) }, s.f32(3, 4, 5))
	add("transpose", func(in nodes) *node { return graph.TransposeAllDims(in[0], 2, 0, 1) }, s.f32(3, 4, 5))
	add("transpose-reshape", func(in nodes) *node { return graph.Reshape(graph.TransposeAllDims(in[0], 0, 2, 1), 15, 4) }, s.f32(3, 4, 5))
	add("transpose-add", func(in nodes) *node { return graph.Add(graph.TransposeAllDims(in[0], 1, 0), in[1]) }, s.f32(7, 9), s.f32(9, 7))
	add("broadcast", func(in nodes) *node { return graph.BroadcastToDims(graph.Reshape(in[0], 3, 1, 4), 3, 5, 4) }, s.f32(3, 4))
	add("slice", func(in nodes) *node {
		return graph.Slice(in[0], graph.AxisRange(1, 3), graph.AxisRange(), graph.AxisRange(2, 5))
	}, s.f32(3, 4, 5))
	add("slice-stride", func(in nodes) *node {
		return graph.Exp(graph.Slice(in[0], graph.AxisRange(), graph.AxisRange(1, 9).Stride(3)))
	}, s.f32(3, 9))
	add("reverse", func(in nodes) *node { return graph.Reverse(in[0], 0, 2) }, s.f32(3, 4, 5))
	add("concat-0", func(in nodes) *node { return graph.Concatenate(in, 0) }, s.f32(3, 4), s.f32(1, 4), s.f32(2, 4))
	add("concat-last", func(in nodes) *node {
		return graph.Concatenate(nodes{in[0], graph.TransposeAllDims(in[1], 1, 0)}, 1)
	}, s.f32(3, 4), s.f32(2, 3))
	add("concat-int", func(in nodes) *node { return graph.Concatenate(in, 1) }, s.i32(9, 3, 4), s.i32(9, 3, 1))
	for _, axes := range [][]int{{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}} {
		for name, f := range sorted(map[string]func(x *node, a ...int) *node{"sum": graph.ReduceSum, "max": graph.ReduceMax, "min": graph.ReduceMin, "product": graph.ReduceMultiply}) {
			add(fmt.Sprintf("reduce-%s/%v", name, axes), func(in nodes) *node { return f(in[0], axes...) }, s.f32(3, 5, 40))
			add(fmt.Sprintf("reduce-int-%s/%v", name, axes), func(in nodes) *node { return f(in[0], axes...) }, s.signed(3, 2, 3, 2))
		}
	}
	add("reduce-max-nan", func(in nodes) *node { return graph.ReduceMax(in[0], 1) }, s.odd(5, 9))
	cs[len(cs)-1].NaN = true
	add("argmax", func(in nodes) *node { return graph.ArgMax(in[0], 1) }, s.f32(3, 5, 4))
	add("argmin-last", func(in nodes) *node { return graph.ArgMin(in[0], -1) }, s.f32(3, 5, 4))
	add("argmax-int", func(in nodes) *node { return graph.ArgMax(in[0], 0) }, s.i32(4, 7, 2))
	add("gather", func(in nodes) *node { return graph.Gather(in[0], in[1]) }, s.f32(7, 5), s.i32(7, 4, 1))
	add("gather-2", func(in nodes) *node { return graph.Gather(in[0], in[1]) }, s.f32(7, 5, 3), s.i32(5, 2, 4, 2))
	add("gather-outside", func(in nodes) *node { return graph.Gather(in[0], in[1]) }, s.f32(7, 5), s.signed(9, 6, 1))
	add("gather-slices", func(in nodes) *node { return graph.GatherSlices(in[0], []int{1}, in[1], []int{2}, false) }, s.f32(3, 6, 4), s.i32(5, 4, 1))
	add("scatter", func(in nodes) *node { return graph.ScatterSum(in[0], in[1], in[2], false, false) }, s.f32(7, 5), s.i32(7, 9, 1), s.f32(9, 5))
	add("scatter-2", func(in nodes) *node { return graph.ScatterSum(in[0], in[1], in[2], false, false) }, s.f32(7, 5, 3), s.i32(5, 9, 2), s.f32(9, 3))
	add("scatter-int", func(in nodes) *node { return graph.ScatterSum(in[0], in[1], in[2], false, false) }, s.i32(9, 7, 5), s.i32(7, 9, 1), s.i32(9, 9, 5))
	add("pad", func(in nodes) *node {
		return graph.Pad(in[0], in[1], backends.PadAxis{Start: 1, End: 2}, backends.PadAxis{Start: 0, End: 1, Interior: 2})
	}, s.f32(3, 4), s.f32())
	add("pad-negative", func(in nodes) *node {
		return graph.Pad(in[0], in[1], backends.PadAxis{Start: -1, End: 2}, backends.PadAxis{Start: -2, End: -1, Interior: 1})
	}, s.f32(3, 4), s.f32())
	scalar := func(x *node, i int) *node {
		return graph.Reshape(graph.Slice(x, graph.AxisRange(i, i+1)))
	}
	for _, lim := range []int{2, 9} {
		add(fmt.Sprintf("dynamic-slice/%d", lim), func(in nodes) *node {
			return graph.DynamicSlice(in[0], nodes{scalar(in[1], 0), scalar(in[1], 1)}, []int{2, 3})
		}, s.f32(4, 6), s.i32(lim, 2))
		add(fmt.Sprintf("dynamic-update/%d", lim), func(in nodes) *node {
			return graph.DynamicUpdateSlice(in[0], in[2], nodes{scalar(in[1], 0), scalar(in[1], 1)})
		}, s.f32(4, 6), s.i32(lim, 2), s.f32(2, 3))
	}
	add("clamp", func(in nodes) *node { return graph.Clamp(in[0], in[1], in[2]) }, s.f32(), s.f32(5, 3), s.positive())
	add("identity", func(in nodes) *node { return graph.Identity(in[0]) }, s.f32(5, 3))
	cs = append(cs, Case{Name: "outputs-shared", Inputs: []*tensors.Tensor{s.f32(5, 3)}, Build: func(in nodes) nodes {
		y := graph.Exp(in[0])
		return nodes{in[0], y, y, graph.Reshape(y, 15), graph.TransposeAllDims(y, 1, 0), graph.ReduceSum(y, 1), graph.Scalar(in[0].Graph(), dtypes.Float32, 3)}
	}})
	for _, dims := range [][]int{{1}, {3, 5}, {64}} {
		cs = append(cs, Case{Name: fmt.Sprintf("random/%v", dims), Inputs: []*tensors.Tensor{s.i32(1<<30, 3)}, Bits: true, Build: func(in nodes) nodes {
			state := graph.ConvertDType(in[0], dtypes.Uint64)
			state, u := graph.RandomUniform(state, shapes.Make(dtypes.Float32, dims...))
			state, v := graph.RandomUniform(state, shapes.Make(dtypes.Float32, dims...))
			state, w := graph.RandomIntN(state, 1000, shapes.Make(dtypes.Int32, dims...))
			return nodes{u, v, w, graph.ConvertDType(state, dtypes.Int64)}
		}})
	}
	return append(cs, dots(s)...)
}

func dots(s *source) []Case {
	var cs []Case
	add := func(name string, f func(in nodes) *node, in ...*tensors.Tensor) {
		cs = append(cs, Case{Name: "dot/" + name, Build: one(f), Inputs: in, Tol: 5e-6})
	}
	ein := func(eq string) func(in nodes) *node {
		return func(in nodes) *node { return graph.Einsum(eq, in[0], in[1]) }
	}
	for _, n := range [][3]int{{1, 1, 1}, {1, 17, 5}, {5, 16, 8}, {13, 33, 70}, {130, 20, 3}, {200, 50, 400}, {3, 100, 400}} {
		m, nn, k := n[0], n[1], n[2]
		name := fmt.Sprintf("%dx%dx%d/", m, nn, k)
		add(name+"nn", ein("mk,kn->mn"), s.f32(m, k), s.f32(k, nn))
		add(name+"nt", ein("mk,nk->mn"), s.f32(m, k), s.f32(nn, k))
		add(name+"tn", ein("km,kn->mn"), s.f32(k, m), s.f32(k, nn))
		add(name+"tt", ein("km,nk->mn"), s.f32(k, m), s.f32(nn, k))
		add(name+"nt-out", ein("mk,nk->nm"), s.f32(m, k), s.f32(nn, k))
		add(name+"computed", func(in nodes) *node { return graph.Einsum("mk,nk->mn", graph.Neg(in[0]), graph.Exp(in[1])) }, s.f32(m, k), s.f32(nn, k))
	}
	add("scores", ein("blnd,bmnd->bnlm"), s.f32(2, 9, 3, 8), s.f32(2, 11, 3, 8))
	add("context", ein("bnlm,bmnd->blnd"), s.f32(2, 3, 9, 11), s.f32(2, 11, 3, 8))
	add("context-long", ein("bnlm,bmnd->blnd"), s.f32(2, 3, 20, 40), s.f32(2, 40, 3, 18))
	add("grouped", ein("tkgd,skd->ktgs"), s.f32(5, 2, 3, 8), s.f32(7, 2, 8))
	add("grouped-2", ein("ktgs,skd->tkgd"), s.f32(2, 5, 3, 7), s.f32(7, 2, 8))
	add("cached", ein("tkgd,kcd->ktgc"), s.f32(1, 2, 3, 8), s.f32(2, 20, 8))
	add("contract-2", ein("abc,abd->cd"), s.f32(3, 4, 5), s.f32(3, 4, 6))
	add("contract-all", ein("ab,ab->"), s.f32(3, 4), s.f32(3, 4))
	add("outer", ein("a,b->ab"), s.f32(3), s.f32(4))
	add("batch-only", ein("ab,ab->ab"), s.f32(3, 4), s.f32(3, 4))
	add("broadcast-operand", func(in nodes) *node {
		return graph.Einsum("mk,kn->mn", in[0], graph.BroadcastToDims(in[1], 6, 20))
	}, s.f32(5, 6), s.f32(1, 20))
	add("broadcast-k", func(in nodes) *node {
		return graph.Einsum("mk,kn->mn", graph.BroadcastToDims(in[0], 5, 6), in[1])
	}, s.f32(5, 1), s.f32(6, 20))
	add("int", ein("mk,kn->mn"), s.signed(9, 3, 4), s.signed(9, 4, 5))
	add("dot", func(in nodes) *node { return graph.Dot(in[0], in[1]) }, s.f32(3, 4), s.f32(4))
	add("vectors", func(in nodes) *node { return graph.Dot(in[0], in[1]) }, s.f32(9), s.f32(9))
	return cs
}
