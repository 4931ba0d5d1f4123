package conformance

import (
	"fmt"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
)

// cached is attention of T new tokens of each of B sequences over three segments of
// keys, as generation writes it: a prefix that all sequences share and a cache, both in
// panels of 16 tokens, and the new tokens themselves. in: queries [B,T,H,G,D], prefix
// and cache keys [·,H,n/16,D,16], values [·,H,n,D], the new keys and values [B,T,H,D],
// and the number of rows in use of prefix and cache for each sequence.
func cached(in nodes, b, t, h, g, d, prefix, room int) *node {
	q, gr := in[0], in[0].Graph()
	wide := func(x *node) *node { // the prefix of every sequence
		dims := append([]int{b}, x.Shape().Dimensions[1:]...)
		return graph.BroadcastToDims(x, dims...)
	}
	below := func(n int, used *node) *node {
		return graph.LessThan(graph.Iota(gr, shapes.Make(dtypes.Int32, b, t, n), 2), graph.BroadcastToDims(graph.Reshape(used, b, 1, 1), b, t, n))
	}
	at := graph.Iota(gr, shapes.Make(dtypes.Int32, b, t, t), 2)
	type segment struct {
		k, v, mask *node
		n          int
	}
	segments := []segment{
		{wide(in[1]), wide(in[2]), below(prefix, in[7]), prefix},
		{in[3], in[4], below(room, in[8]), room},
		{in[5], in[6], graph.LessOrEqual(at, graph.Iota(gr, shapes.Make(dtypes.Int32, b, t, t), 1)), t},
	}
	var scores nodes
	var top, sum, out *node
	for _, s := range segments {
		var w *node
		if s.k.Rank() == 5 {
			w = graph.Reshape(graph.DotGeneral(q, []int{4}, []int{0, 2}, s.k, []int{3}, []int{0, 1}), b, h, t, g, s.n)
		} else {
			w = graph.DotGeneral(q, []int{4}, []int{0, 2}, s.k, []int{3}, []int{0, 2})
		}
		mask := graph.BroadcastToDims(graph.Reshape(s.mask, b, 1, t, 1, s.n), b, h, t, g, s.n)
		w = graph.Where(mask, w, graph.BroadcastToShape(graph.Scalar(gr, dtypes.Float32, -1e30), w.Shape()))
		scores = append(scores, w)
		if m := graph.ReduceMax(w, 4); top == nil {
			top = m
		} else {
			top = graph.Max(top, m)
		}
	}
	for i, s := range segments {
		e := graph.Exp(graph.Sub(scores[i], graph.BroadcastToShape(graph.Reshape(top, b, h, t, g, 1), scores[i].Shape())))
		var o *node
		if s.k.Rank() == 5 {
			o = graph.DotGeneral(e, []int{4}, []int{0, 1}, s.v, []int{2}, []int{0, 1})
		} else {
			o = graph.DotGeneral(e, []int{4}, []int{0, 1}, s.v, []int{1}, []int{0, 2})
		}
		if z := graph.ReduceSum(e, 4); out == nil {
			sum, out = z, o
		} else {
			sum, out = graph.Add(sum, z), graph.Add(out, o)
		}
	}
	return graph.Div(out, graph.BroadcastToDims(graph.Reshape(sum, b, h, t, g, 1), b, h, t, g, d))
}

// Caches are cases of attention over caches of keys and values, and of caches that are
// updated in place.
func Caches() []Case {
	s := newSource(5)
	var cs []Case
	used := func(b, n int) *tensors.Tensor { return s.i32(n+1, b) }
	for _, n := range [][7]int{{1, 1, 1, 1, 3, 16, 16}, {2, 1, 3, 2, 8, 16, 48}, {3, 5, 2, 1, 7, 32, 16}, {1, 19, 2, 3, 18, 48, 160}, {5, 1, 3, 3, 64, 16, 80}} {
		b, t, h, g, d, prefix, room := n[0], n[1], n[2], n[3], n[4], n[5], n[6]
		cs = append(cs, Case{Name: fmt.Sprintf("cached-attention/%v", n), Tol: 1e-5, Build: one(func(in nodes) *node { return cached(in, b, t, h, g, d, prefix, room) }),
			Inputs: []*tensors.Tensor{s.f32(b, t, h, g, d), s.f32(1, h, prefix/16, d, 16), s.f32(1, h, prefix, d), s.f32(b, h, room/16, d, 16), s.f32(b, h, room, d),
				s.f32(b, t, h, d), s.f32(b, t, h, d), used(b, prefix), used(b, room)}})
	}
	scalar := func(x *node, i int) *node { return graph.Reshape(graph.Slice(x, graph.AxisRange(i, i+1))) }
	for _, rows := range []int{17, 4096} { // 4096: large enough to be kept as a weight
		update := func(in nodes) nodes {
			y := graph.DynamicUpdateSlice(in[0], in[1], nodes{scalar(in[2], 0), scalar(in[2], 1)})
			return nodes{y, graph.ReduceSum(in[0], 1)}
		}
		late := func(in nodes) nodes { // reads the old cache beside the new one
			y := graph.DynamicUpdateSlice(in[0], in[1], nodes{scalar(in[2], 0), scalar(in[2], 1)})
			return nodes{y, graph.Mul(y, in[0])}
		}
		multiplied := func(in nodes) nodes { // the cache is also the right side of a product
			y := graph.DynamicUpdateSlice(in[0], in[1], nodes{scalar(in[2], 0), scalar(in[2], 1)})
			return nodes{y, graph.Einsum("mk,nk->mn", graph.Slice(in[1], graph.AxisRange(), graph.AxisRange(0, 3)), graph.Slice(y, graph.AxisRange(), graph.AxisRange(0, 3)))}
		}
		for name, f := range sorted(map[string]func(in nodes) nodes{"update": update, "late": late, "product": multiplied}) {
			for _, donate := range []bool{false, true} {
				c := Case{Name: fmt.Sprintf("cache-%s/%d/donated=%v", name, rows, donate), Build: f, Tol: 5e-6, Inputs: []*tensors.Tensor{s.f32(rows, 5), s.f32(2, 3), s.i32(rows+3, 2)}}
				if donate {
					c.Donate = []int{0}
				}
				cs = append(cs, c)
			}
		}
	}
	return cs
}
