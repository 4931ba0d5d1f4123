package bert

import (
	"fmt"
	"math"

	"rag2/tensor/exec"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// build writes the network for one bucket.
func (m *Model) build(g *graph.Graph, batch, length int) *graph.Node {
	w := map[string]*graph.Node{}
	for i := range m.weights.Len() {
		w[m.weights.Name(i)] = graph.Parameter(g, m.weights.Name(i), m.weights.Shape(i))
	}
	ids := graph.Parameter(g, "ids", shapes.Make(dtypes.Int32, batch, length))
	types := graph.Parameter(g, "types", shapes.Make(dtypes.Int32, batch, length))
	lens := graph.Parameter(g, "lens", shapes.Make(dtypes.Int32, batch))
	return m.Config.Build(w, m.head, ids, types, lens)
}

// Build writes the network on parameters that the caller owns, by the names of
// Config.Params: ids and types are int32 [batch, length], lens int32 [batch]. The result
// is float32 [batch, hidden], or [batch, labels] for the head Classifier. Every operation
// has a gradient.
func (c Config) Build(w map[string]*graph.Node, head Head, ids, types, lens *graph.Node) *graph.Node {
	g := ids.Graph()
	batch, length := ids.Shape().Dimensions[0], ids.Shape().Dimensions[1]
	rows := batch * length
	h := c.Hidden

	x := graph.Add(exec.Rows(w["embeddings.word_embeddings.weight"], ids), exec.Rows(w["embeddings.token_type_embeddings.weight"], types))
	pos := graph.ConvertDType(graph.Slice(w["embeddings.position_embeddings.weight"], graph.AxisRange(0, length), graph.AxisRange()), dtypes.Float32)
	x = graph.Add(graph.Reshape(x, batch, length, h), graph.Reshape(pos, 1, length, h))
	x = graph.Reshape(x, rows, h)
	multiply := c.Linear
	if multiply == nil {
		multiply = exec.Linear
	}
	norm := func(x *graph.Node, n string) *graph.Node { return layerNorm(x, w[n+".weight"], w[n+".bias"], c.Eps) }
	linear := func(x *graph.Node, n string) *graph.Node {
		y := multiply(x, w[n+".weight"])
		return graph.Add(y, graph.Reshape(w[n+".bias"], 1, y.Shape().Dimensions[1]))
	}
	drop := c.Drop
	if drop == nil {
		drop = func(x *graph.Node) *graph.Node { return x }
	}
	x = drop(norm(x, "embeddings.LayerNorm"))

	// mask is true at real tokens: [batch, 1, 1, length]
	idx := graph.Iota(g, shapes.Make(dtypes.Int32, batch, length), 1)
	real := graph.LessThan(idx, graph.BroadcastToDims(graph.Reshape(lens, batch, 1), batch, length))
	mask := graph.BroadcastToDims(graph.Reshape(real, batch, 1, 1, length), batch, c.Heads, length, length)
	d := h / c.Heads
	minus := graph.BroadcastToDims(graph.Scalar(g, dtypes.Float32, -1e9), batch, c.Heads, length, length)
	for i := range c.Layers {
		p := fmt.Sprintf("encoder.layer.%d.", i)
		heads := func(n string) *graph.Node { return graph.Reshape(linear(x, p+n), batch, length, c.Heads, d) }
		q, k, v := heads("attention.self.query"), heads("attention.self.key"), heads("attention.self.value")
		s := exec.Product("blnd,bmnd->bnlm", q, k, w[p+"attention.self.query.weight"])
		s = graph.MulScalar(s, 1/math.Sqrt(float64(d)))
		a := drop(graph.Softmax(graph.Where(mask, s, minus), -1))
		ctx := exec.Product("bnlm,bmnd->blnd", a, v, w[p+"attention.self.query.weight"])
		y := drop(linear(graph.Reshape(ctx, rows, h), p+"attention.output.dense"))
		x = norm(graph.Add(x, y), p+"attention.output.LayerNorm")
		y = drop(linear(gelu(linear(x, p+"intermediate.dense")), p+"output.dense"))
		x = norm(graph.Add(x, y), p+"output.LayerNorm")
	}
	x = graph.Reshape(x, batch, length, h)
	if head == Mean {
		keep := graph.ConvertDType(graph.BroadcastToDims(graph.Reshape(real, batch, length, 1), batch, length, h), dtypes.Float32)
		sum := graph.ReduceSum(graph.Mul(x, keep), 1)
		n := graph.ConvertDType(graph.Reshape(lens, batch, 1), dtypes.Float32)
		return graph.Div(sum, graph.BroadcastToDims(n, batch, h))
	}
	cls := graph.Reshape(graph.Slice(x, graph.AxisRange(), graph.AxisRange(0, 1), graph.AxisRange()), batch, h)
	if head == Classifier {
		cls = linear(drop(graph.Tanh(linear(cls, "pooler.dense"))), "classifier")
	}
	return cls
}

// layerNorm over the last axis of x [rows, hidden]; 1/Sqrt rather than Rsqrt,
// which has no gradient in GoMLX.
func layerNorm(x, gain, bias *graph.Node, eps float64) *graph.Node {
	h := x.Shape().Dimensions[1]
	mean := graph.ReduceAndKeep(x, graph.ReduceMean, -1)
	d := graph.Sub(x, mean)
	variance := graph.ReduceAndKeep(graph.Mul(d, d), graph.ReduceMean, -1)
	y := graph.Div(d, graph.Sqrt(graph.AddScalar(variance, eps)))
	return graph.Add(graph.Mul(y, graph.Reshape(gain, 1, h)), graph.Reshape(bias, 1, h))
}

// gelu is x·Φ(x) with the exact error function.
func gelu(x *graph.Node) *graph.Node {
	return graph.Mul(graph.MulScalar(x, 0.5), graph.AddScalar(graph.Erf(graph.MulScalar(x, 1/math.Sqrt2)), 1))
}
