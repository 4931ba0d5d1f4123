package llama

import (
	"fmt"
	"math"

	"rag2/models/exec"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// bucket is a compiled shape: tokens taken at once, cache capacity (0 = the cache
// is empty), and what comes out.
type bucket struct {
	tokens, capacity int
	score            bool // log-probabilities of targets rather than the last logits
}

// build writes the graph of one bucket. Inputs after the weights: tokens [T] int32,
// cos and sin [T, D/2], pos0 [] int32 (tokens in the cache), pick [T] int32 (score:
// the target of every row; otherwise pick[0] is the row whose logits are wanted),
// then per layer the key and value caches [KV, C, D]. Outputs: logits [V] or
// log-probabilities [T], new keys and new values [layers, T, KV, D].
func (m *Model) build(g *graph.Graph, b bucket) []*graph.Node {
	c := m.Config
	m.load()
	w := map[string]*graph.Node{}
	for i := range m.weights.Len() {
		w[m.weights.Name(i)] = graph.Parameter(g, m.weights.Name(i), m.weights.Shape(i))
	}
	T, C, D, KV := b.tokens, b.capacity, c.HeadDim, c.KVHeads
	groups := c.Heads / KV
	i32 := func(name string, dims ...int) *graph.Node {
		return graph.Parameter(g, name, shapes.Make(dtypes.Int32, dims...))
	}
	f32 := func(name string, dims ...int) *graph.Node {
		return graph.Parameter(g, name, shapes.Make(dtypes.Float32, dims...))
	}
	tokens := i32("tokens", T)
	cos, sin := f32("cos", T, D/2), f32("sin", T, D/2)
	pos0 := i32("pos0")
	pick := i32("pick", T)
	kCache, vCache := make([]*graph.Node, c.Layers), make([]*graph.Node, c.Layers)
	if C > 0 {
		for i := range c.Layers {
			kCache[i] = f32(fmt.Sprintf("k%d", i), KV, C, D)
			vCache[i] = f32(fmt.Sprintf("v%d", i), KV, C, D)
		}
	}

	// Masks, true where a row may look: [KV, T·groups, ·] after broadcasting.
	rowsOf := func(mask *graph.Node, n int) *graph.Node {
		return graph.BroadcastToDims(graph.Reshape(mask, 1, T, 1, n), KV, T, groups, n)
	}
	t := graph.Iota(g, shapes.Make(dtypes.Int32, T, T), 0)
	s := graph.Iota(g, shapes.Make(dtypes.Int32, T, T), 1)
	within := graph.LessOrEqual(s, t)
	if c.Window > 0 {
		within = graph.LogicalAnd(within, graph.LessThan(graph.Sub(t, s), graph.Scalar(g, dtypes.Int32, c.Window)))
	}
	maskNew := rowsOf(within, T)
	var maskOld *graph.Node
	if C > 0 {
		at := graph.Iota(g, shapes.Make(dtypes.Int32, T, C), 1)
		n := graph.BroadcastToDims(pos0, T, C)
		old := graph.LessThan(at, n)
		if c.Window > 0 {
			row := graph.Add(graph.Iota(g, shapes.Make(dtypes.Int32, T, C), 0), n)
			old = graph.LogicalAnd(old, graph.LessThan(graph.Sub(row, at), graph.Scalar(g, dtypes.Int32, c.Window)))
		}
		maskOld = rowsOf(old, C)
	}
	masked := func(scores, mask *graph.Node) *graph.Node {
		return graph.Where(mask, scores, graph.BroadcastToShape(graph.Scalar(g, dtypes.Float32, -1e30), scores.Shape()))
	}

	rope := func(x *graph.Node, heads int) *graph.Node { // [T, heads, D]
		a := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(0, D/2))
		b := graph.Slice(x, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(D/2, D))
		co := graph.BroadcastToDims(graph.Reshape(cos, T, 1, D/2), T, heads, D/2)
		si := graph.BroadcastToDims(graph.Reshape(sin, T, 1, D/2), T, heads, D/2)
		return graph.Concatenate([]*graph.Node{graph.Sub(graph.Mul(a, co), graph.Mul(b, si)), graph.Add(graph.Mul(b, co), graph.Mul(a, si))}, 2)
	}

	x := exec.Rows(w["embed"], tokens)
	var newK, newV []*graph.Node
	scale := 1 / math.Sqrt(float64(D))
	for i := range c.Layers {
		p := func(n string) *graph.Node { return w[fmt.Sprintf("layer%d.%s", i, n)] }
		h := rmsNorm(x, p("attn_norm"), c.Eps)
		q := rope(graph.Reshape(exec.Linear(h, p("q")), T, c.Heads, D), c.Heads)
		k := rope(graph.Reshape(exec.Linear(h, p("k")), T, KV, D), KV)
		v := graph.Reshape(exec.Linear(h, p("v")), T, KV, D)
		newK, newV = append(newK, graph.Reshape(k, 1, T, KV, D)), append(newV, graph.Reshape(v, 1, T, KV, D))

		q = graph.MulScalar(graph.Reshape(q, T, KV, groups, D), scale)
		scores := masked(exec.Product("tkgd,skd->ktgs", q, k, p("q")), maskNew)
		if C > 0 {
			scores = graph.Concatenate([]*graph.Node{masked(exec.Product("tkgd,kcd->ktgc", q, kCache[i], p("q")), maskOld), scores}, 3)
		}
		a := graph.Softmax(scores, -1)
		aNew := graph.Slice(a, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(), graph.AxisRange(C, C+T))
		o := exec.Product("ktgs,skd->tkgd", aNew, v, p("q"))
		if C > 0 {
			aOld := graph.Slice(a, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(), graph.AxisRange(0, C))
			o = graph.Add(o, exec.Product("ktgc,kcd->tkgd", aOld, vCache[i], p("q")))
		}
		x = graph.Add(x, exec.Linear(graph.Reshape(o, T, c.Heads*D), p("o")))

		h = rmsNorm(x, p("ffn_norm"), c.Eps)
		gate := exec.Linear(h, p("gate"))
		x = graph.Add(x, exec.Linear(graph.Mul(graph.Mul(gate, graph.Sigmoid(gate)), exec.Linear(h, p("up"))), p("down")))
	}
	head := w["head"]
	if c.Tied {
		head = w["embed"]
	}
	var out *graph.Node
	if b.score {
		logits := exec.Linear(rmsNorm(x, w["final_norm"], c.Eps), head)
		logp := graph.LogSoftmax(logits, -1)
		hit := graph.Equal(graph.Iota(g, shapes.Make(dtypes.Int32, T, c.Vocab), 1), graph.BroadcastToDims(graph.Reshape(pick, T, 1), T, c.Vocab))
		out = graph.ReduceSum(graph.Where(hit, logp, graph.ZerosLike(logp)), 1)
	} else {
		last := x
		if T > 1 {
			last = graph.Gather(x, graph.Reshape(graph.Slice(pick, graph.AxisRange(0, 1)), 1, 1))
		}
		out = graph.Reshape(exec.Linear(rmsNorm(last, w["final_norm"], c.Eps), head), c.Vocab)
	}
	return []*graph.Node{out, graph.Concatenate(newK, 0), graph.Concatenate(newV, 0)}
}

// rmsNorm over the last axis of x [rows, hidden] (Zhang & Sennrich 2019).
func rmsNorm(x, gain *graph.Node, eps float64) *graph.Node {
	ms := graph.ReduceAndKeep(graph.Mul(x, x), graph.ReduceMean, -1)
	y := graph.Div(x, graph.Sqrt(graph.AddScalar(ms, eps)))
	return graph.Mul(y, graph.Reshape(gain, 1, gain.Shape().Dimensions[0]))
}
