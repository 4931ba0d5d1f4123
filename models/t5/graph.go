package t5

import (
	"fmt"
	"math"

	"rag2/tensor/exec"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// Weights are parameters by Param.Name, float32.
type Weights map[string]*graph.Node

// masked is the score of a position that may not be looked at.
const masked = -1e30

// Encode is the encoder: ids [B, L] int32 and the numbers of real tokens lens [B]
// int32 (1 … L) give the last hidden states [B, L, Hidden] after the final norm. What
// lies behind a row's length does not matter, and comes out as something.
func (c Config) Encode(w Weights, ids, lens *graph.Node) *graph.Node {
	g := ids.Graph()
	B, L := ids.Shape().Dimensions[0], ids.Shape().Dimensions[1]
	x := c.drop(exec.Rows(w["shared"], ids))
	bias := c.bias(g, w["enc.bias"], L, true)
	bias = graph.BroadcastToDims(graph.Reshape(bias, 1, c.Heads, L, L), B, c.Heads, L, L)
	mask := graph.BroadcastToDims(graph.Reshape(inside(lens, L), B, 1, 1, L), B, c.Heads, L, L)
	for i := range c.Layers {
		p := fmt.Sprintf("enc%d.", i)
		h := norm(x, w[p+"attn_norm"], c.Eps)
		q, k, v := c.heads(h, w[p+"attn.q"], B, L), c.heads(h, w[p+"attn.k"], B, L), c.heads(h, w[p+"attn.v"], B, L)
		x = graph.Add(x, c.drop(c.attend(q, k, v, bias, mask, w[p+"attn.o"])))
		x = graph.Add(x, c.drop(c.ff(norm(x, w[p+"ff_norm"], c.Eps), w, p+"ff.")))
	}
	return graph.Reshape(c.drop(norm(x, w["enc.norm"], c.Eps)), B, L, c.Hidden)
}

// Decode is the decoder over whole prefixes (teacher forcing): hidden [B, L, Hidden]
// and lens [B] of the encoder, ids [B, T] int32 beginning with the start token. The
// result [B, T, Hidden] goes into Head.
func (c Config) Decode(w Weights, hidden, lens, ids *graph.Node) *graph.Node {
	g := ids.Graph()
	B, T, L := ids.Shape().Dimensions[0], ids.Shape().Dimensions[1], hidden.Shape().Dimensions[1]
	enc := graph.Reshape(hidden, B*L, c.Hidden)
	x := c.drop(exec.Rows(w["shared"], ids))
	bias := graph.BroadcastToDims(graph.Reshape(c.bias(g, w["dec.bias"], T, false), 1, c.Heads, T, T), B, c.Heads, T, T)
	causal := graph.LessOrEqual(graph.Iota(g, shapes.Make(dtypes.Int32, T, T), 1), graph.Iota(g, shapes.Make(dtypes.Int32, T, T), 0))
	causal = graph.BroadcastToDims(graph.Reshape(causal, 1, 1, T, T), B, c.Heads, T, T)
	cross := graph.BroadcastToDims(graph.Reshape(inside(lens, L), B, 1, 1, L), B, c.Heads, T, L)
	for i := range c.DecLayers {
		p := fmt.Sprintf("dec%d.", i)
		h := norm(x, w[p+"attn_norm"], c.Eps)
		q, k, v := c.heads(h, w[p+"attn.q"], B, T), c.heads(h, w[p+"attn.k"], B, T), c.heads(h, w[p+"attn.v"], B, T)
		x = graph.Add(x, c.drop(c.attend(q, k, v, bias, causal, w[p+"attn.o"])))
		h = norm(x, w[p+"cross_norm"], c.Eps)
		q = c.heads(h, w[p+"cross.q"], B, T)
		k, v = c.heads(enc, w[p+"cross.k"], B, L), c.heads(enc, w[p+"cross.v"], B, L)
		x = graph.Add(x, c.drop(c.attend(q, k, v, nil, cross, w[p+"cross.o"])))
		x = graph.Add(x, c.drop(c.ff(norm(x, w[p+"ff_norm"], c.Eps), w, p+"ff.")))
	}
	return graph.Reshape(c.drop(norm(x, w["dec.norm"], c.Eps)), B, T, c.Hidden)
}

// Head gives logits. hidden is [N, Hidden]; tokens [K] int32 selects rows of the
// vocabulary and the result is [N, K]; with tokens nil it is [N, Vocab].
func (c Config) Head(w Weights, hidden, tokens *graph.Node) *graph.Node {
	head := w["head"]
	if c.Tied {
		head = w["shared"]
	}
	if tokens != nil {
		head = graph.Gather(head, graph.Reshape(tokens, tokens.Shape().Dimensions[0], 1))
	}
	if c.Scaled {
		hidden = graph.MulScalar(hidden, 1/math.Sqrt(float64(c.Hidden)))
	}
	return c.linear(hidden, head)
}

// inside is true at the first lens tokens: [B, n].
func inside(lens *graph.Node, n int) *graph.Node {
	B := lens.Shape().Dimensions[0]
	at := graph.Iota(lens.Graph(), shapes.Make(dtypes.Int32, B, n), 1)
	return graph.LessThan(at, graph.BroadcastToDims(graph.Reshape(lens, B, 1), B, n))
}

// bias is the relative position bias [Heads, n, n] (query, key) of a table
// [Buckets, Heads]. It depends on key minus query alone: the 2n-1 values v are looked up
// once and laid out as rows that are shifted by one each. Rows of 2n values read in
// steps of 2n-1 do that: element (q, c) is v[(c-q) mod 2n], and c = n-1 … 2n-2 is wanted.
func (c Config) bias(g *graph.Graph, table *graph.Node, n int, bidirectional bool) *graph.Node {
	idx := make([]int32, 2*n) // the last one is filler
	for i := range 2*n - 1 {
		idx[i] = c.bucketOf(i-(n-1), bidirectional)
	}
	v := graph.Transpose(graph.Gather(table, graph.Reshape(graph.Const(g, idx), 2*n, 1)), 0, 1) // [H, 2n]
	v = graph.BroadcastToDims(graph.Reshape(v, c.Heads, 1, 2*n), c.Heads, n, 2*n)
	v = graph.Slice(graph.Reshape(v, c.Heads, 2*n*n), graph.AxisRange(), graph.AxisRange(0, n*(2*n-1)))
	v = graph.Reshape(v, c.Heads, n, 2*n-1)
	return graph.Slice(v, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(n-1, 2*n-1))
}

func (c Config) linear(x, w *graph.Node) *graph.Node {
	if c.Linear != nil {
		return c.Linear(x, w)
	}
	return exec.Linear(x, w)
}

// heads projects x [B·n, Hidden] to [B, n, Heads, HeadDim].
func (c Config) heads(x, w *graph.Node, B, n int) *graph.Node {
	return graph.Reshape(c.linear(x, w), B, n, c.Heads, c.HeadDim)
}

// attend is attention without scaling: q [B, T, H, D], k and v [B, S, H, D], bias and
// mask [B, H, T, S]; the result is [B·T, Hidden].
func (c Config) attend(q, k, v, bias, mask, o *graph.Node) *graph.Node {
	s := exec.Product("bthd,bshd->bhts", q, k, o)
	if bias != nil {
		s = graph.Add(s, bias)
	}
	s = graph.Where(mask, s, graph.BroadcastToShape(graph.Scalar(s.Graph(), dtypes.Float32, masked), s.Shape()))
	x := exec.Product("bhts,bshd->bthd", c.drop(graph.Softmax(s, -1)), v, o)
	d := x.Shape().Dimensions
	return c.linear(graph.Reshape(x, d[0]*d[1], c.Heads*c.HeadDim), o)
}

// ff is the feed-forward block on x [N, Hidden].
func (c Config) ff(x *graph.Node, w Weights, p string) *graph.Node {
	h := c.linear(x, w[p+"up"])
	switch {
	case c.Gated:
		h = graph.Mul(c.act(c.linear(x, w[p+"gate"])), h)
	default:
		h = c.act(h)
	}
	return c.linear(c.drop(h), w[p+"down"])
}

func (c Config) act(x *graph.Node) *graph.Node {
	if c.Act == "relu" {
		return graph.Max(x, graph.ZerosLike(x))
	}
	inner := graph.Add(x, graph.MulScalar(graph.Mul(x, graph.Mul(x, x)), 0.044715))
	return graph.Mul(graph.MulScalar(x, 0.5), graph.AddScalar(graph.Tanh(graph.MulScalar(inner, math.Sqrt(2/math.Pi))), 1))
}

// norm is RMSNorm over the last axis of x [N, Hidden]; 1/Sqrt rather than Rsqrt, which
// has no gradient in GoMLX.
func norm(x, gain *graph.Node, eps float64) *graph.Node {
	ms := graph.ReduceAndKeep(graph.Mul(x, x), graph.ReduceMean, -1)
	y := graph.Div(x, graph.Sqrt(graph.AddScalar(ms, eps)))
	return graph.Mul(y, graph.Reshape(gain, 1, gain.Shape().Dimensions[0]))
}
