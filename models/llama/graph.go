package llama

import (
	"fmt"
	"math"

	"rag2/tensor/exec"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// bucket is a compiled shape: sequences and new tokens of each, capacities of their
// caches and of the cache of a prefix that all share (0 = none), and what comes out.
type bucket struct {
	sequences, tokens, capacity, prefix int
	score                               bool // log-probabilities of targets rather than logits
}

// segment is a part of the keys and values that rows attend to; mask [B, T, n] is
// true where a row may look.
type segment struct{ k, v, mask *graph.Node }

// build writes the graph of one bucket. Inputs after the weights: tokens [B·T] int32,
// cos and sin [B·T, D/2], used [B] float32 (tokens in each cache), shared [] float32
// (tokens in the prefix), pick [B·T] int32 (score: the target of every row; otherwise,
// with T > 1, pick[0] is the row whose logits are wanted), the cache
// [B, layers, 2, KV, C·D] and the prefix's [1, layers, 2, KV, P·D], see kvCache. Outputs:
// log-probabilities [B·T], or logits [V] of the picked row, or [B, V] with T = 1; and new
// keys and values [layers, 2, B·T, KV, D].
//
// Attention is written as package native recognises it.
func (m *Model) build(g *graph.Graph, b bucket) []*graph.Node {
	c := m.Config
	m.load()
	w := map[string]*graph.Node{}
	for i := range m.weights.Len() {
		w[m.weights.Name(i)] = graph.Parameter(g, m.weights.Name(i), m.weights.Shape(i))
	}
	B, T, D, KV := b.sequences, b.tokens, c.HeadDim, c.KVHeads
	R, groups := B*T, c.Heads/KV
	param := func(name string, d dtypes.DType, dims ...int) *graph.Node {
		return graph.Parameter(g, name, shapes.Make(d, dims...))
	}
	tokens := param("tokens", dtypes.Int32, R)
	cos, sin := param("cos", dtypes.Float32, R, D/2), param("sin", dtypes.Float32, R, D/2)
	used, shared := param("used", dtypes.Float32, B), param("shared", dtypes.Float32)
	pick := param("pick", dtypes.Int32, R)
	cache := param("cache", dtypes.Float32, B, c.Layers, 2, KV, b.capacity*D)
	var prefix *graph.Node
	if b.prefix > 0 {
		prefix = param("prefix", dtypes.Float32, 1, c.Layers, 2, KV, b.prefix*D)
	}

	// Masks. count says how many of the n columns are there, ahead how far the first
	// row lies behind the first column.
	iota := func(n, axis int) *graph.Node { return graph.Iota(g, shapes.Make(dtypes.Float32, B, T, n), axis) }
	mask := func(n int, count, ahead *graph.Node) *graph.Node {
		col, row := iota(n, 2), graph.Add(iota(n, 1), graph.BroadcastToDims(ahead, B, T, n))
		ok := graph.LessThan(col, graph.BroadcastToDims(count, B, T, n))
		if c.Window > 0 {
			ok = graph.LogicalAnd(ok, graph.LessThan(graph.Sub(row, col), graph.Scalar(g, dtypes.Float32, c.Window)))
		}
		return ok
	}
	perSequence := func(x *graph.Node) *graph.Node { return graph.Reshape(x, B, 1, 1) }
	maskOld := mask(b.capacity, perSequence(used), perSequence(used))
	maskNew := graph.LessOrEqual(iota(T, 2), iota(T, 1))
	if c.Window > 0 {
		maskNew = graph.LogicalAnd(maskNew, graph.LessThan(graph.Sub(iota(T, 1), iota(T, 2)), graph.Scalar(g, dtypes.Float32, c.Window)))
	}
	var maskPrefix *graph.Node
	if prefix != nil {
		maskPrefix = mask(b.prefix, graph.Reshape(shared, 1, 1, 1), perSequence(graph.Add(used, shared)))
	}
	// cached gives the keys or values (j) of layer i.
	cached := func(x *graph.Node, i, j, capacity int) *graph.Node {
		n := x.Shape().Dimensions[0]
		y := graph.Slice(x, graph.AxisRange(), graph.AxisRange(i, i+1), graph.AxisRange(j, j+1))
		if j == 0 {
			return graph.BroadcastToDims(graph.Reshape(y, n, KV, capacity/panel, D, panel), B, KV, capacity/panel, D, panel)
		}
		return graph.BroadcastToDims(graph.Reshape(y, n, KV, capacity, D), B, KV, capacity, D)
	}

	rope := func(x *graph.Node, heads int, scale float64) *graph.Node { // [R, heads, D]
		a := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(0, D/2))
		b := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(D/2, D))
		co := graph.BroadcastToDims(graph.Reshape(cos, R, 1, D/2), R, heads, D/2)
		si := graph.BroadcastToDims(graph.Reshape(sin, R, 1, D/2), R, heads, D/2)
		u, v := graph.Sub(graph.Mul(a, co), graph.Mul(b, si)), graph.Add(graph.Mul(b, co), graph.Mul(a, si))
		if scale != 1 {
			u, v = graph.MulScalar(u, scale), graph.MulScalar(v, scale)
		}
		return graph.Concatenate([]*graph.Node{u, v}, 2)
	}

	x := exec.Rows(w["embed"], tokens)
	var kv []*graph.Node
	for i := range c.Layers {
		p := func(n string) *graph.Node { return w[fmt.Sprintf("layer%d.%s", i, n)] }
		h := rmsNorm(x, p("attn_norm"), c.Eps)
		project := func(n string) *graph.Node {
			y := exec.Linear(h, p(n))
			if c.Bias {
				y = graph.Add(y, graph.Reshape(p(n+"_bias"), 1, y.Shape().Dimensions[1]))
			}
			return y
		}
		q := rope(graph.Reshape(project("q"), R, c.Heads, D), c.Heads, 1/math.Sqrt(float64(D)))
		k := rope(graph.Reshape(project("k"), R, KV, D), KV, 1)
		v := graph.Reshape(project("v"), R, KV, D)
		kv = append(kv, graph.Reshape(k, 1, R, KV, D), graph.Reshape(v, 1, R, KV, D))

		segments := []segment{{cached(cache, i, 0, b.capacity), cached(cache, i, 1, b.capacity), maskOld},
			{graph.Reshape(k, B, T, KV, D), graph.Reshape(v, B, T, KV, D), maskNew}}
		if prefix != nil {
			segments = append([]segment{{cached(prefix, i, 0, b.prefix), cached(prefix, i, 1, b.prefix), maskPrefix}}, segments...)
		}
		o := attend(graph.Reshape(q, B, T, KV, groups, D), segments)
		x = graph.Add(x, exec.Linear(graph.Reshape(o, R, c.Heads*D), p("o")))

		h = rmsNorm(x, p("ffn_norm"), c.Eps)
		gate := exec.Linear(h, p("gate"))
		x = graph.Add(x, exec.Linear(graph.Mul(graph.Mul(gate, graph.Sigmoid(gate)), exec.Linear(h, p("up"))), p("down")))
	}
	head := w["head"]
	if c.Tied {
		head = w["embed"]
	}
	var out *graph.Node
	switch {
	case b.score:
		logits := exec.Linear(rmsNorm(x, w["final_norm"], c.Eps), head)
		top := graph.ReduceAndKeep(logits, graph.ReduceMax, 1)
		sum := graph.ReduceAndKeep(graph.Exp(graph.Sub(logits, top)), graph.ReduceSum, 1)
		at := graph.Concatenate([]*graph.Node{graph.Iota(g, shapes.Make(dtypes.Int32, R, 1), 0), graph.Reshape(pick, R, 1)}, 1)
		out = graph.Sub(graph.Sub(graph.Gather(logits, at), graph.Reshape(top, R)), graph.Log(graph.Reshape(sum, R)))
	case T > 1:
		last := graph.Gather(x, graph.Reshape(graph.Slice(pick, graph.AxisRange(0, 1)), 1, 1))
		out = graph.Reshape(exec.Linear(rmsNorm(last, w["final_norm"], c.Eps), head), c.Vocab)
	default:
		out = exec.Linear(rmsNorm(x, w["final_norm"], c.Eps), head)
	}
	return []*graph.Node{out, graph.Reshape(graph.Concatenate(kv, 0), c.Layers, 2, R, KV, D)}
}

// attend is softmax(q·Kᵀ)·V over all segments together; q [B, T, KV, G, D] is scaled,
// the result [B, T, KV, G, D].
func attend(q *graph.Node, segments []segment) *graph.Node {
	d := q.Shape().Dimensions
	B, T, KV, G, D := d[0], d[1], d[2], d[3], d[4]
	g := q.Graph()
	var scores []*graph.Node
	var top *graph.Node
	for _, s := range segments {
		n := s.mask.Shape().Dimensions[2]
		var w *graph.Node
		if s.k.Rank() == 5 { // panels
			w = graph.Reshape(graph.DotGeneral(q, []int{4}, []int{0, 2}, s.k, []int{3}, []int{0, 1}), B, KV, T, G, n)
		} else {
			w = graph.DotGeneral(q, []int{4}, []int{0, 2}, s.k, []int{3}, []int{0, 2})
		}
		mask := graph.BroadcastToDims(graph.Reshape(s.mask, B, 1, T, 1, n), B, KV, T, G, n)
		w = graph.Where(mask, w, graph.BroadcastToShape(graph.Scalar(g, dtypes.Float32, -1e30), w.Shape()))
		scores = append(scores, w)
		if t := graph.ReduceMax(w, 4); top == nil {
			top = t
		} else {
			top = graph.Max(top, t)
		}
	}
	var sum, out *graph.Node
	for i, s := range segments {
		e := graph.Exp(graph.Sub(scores[i], graph.BroadcastToShape(graph.Reshape(top, B, KV, T, G, 1), scores[i].Shape())))
		var o *graph.Node
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
	out = graph.Div(out, graph.BroadcastToDims(graph.Reshape(sum, B, KV, T, G, 1), B, KV, T, G, D))
	return graph.TransposeAllDims(out, 0, 2, 1, 3, 4)
}

// rmsNorm over the last axis of x [rows, hidden] (Zhang & Sennrich 2019).
func rmsNorm(x, gain *graph.Node, eps float64) *graph.Node {
	ms := graph.ReduceAndKeep(graph.Mul(x, x), graph.ReduceMean, -1)
	y := graph.Div(x, graph.Sqrt(graph.AddScalar(ms, eps)))
	return graph.Mul(y, graph.Reshape(gain, 1, gain.Shape().Dimensions[0]))
}
