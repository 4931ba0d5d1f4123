package exec

import (
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
)

// Graph parts that follow the type of the weights: with bfloat16 weights, factors of products
// are rounded to it and everything between products is float32. Each has a gradient.

// half tells whether a weight makes its products compute in bfloat16.
func half(w *graph.Node) bool { return w.DType() == dtypes.BFloat16 }

// Linear is x·wᵀ: x [N, in] float32, w [out, in] float32 or bfloat16; the result is float32.
func Linear(x, w *graph.Node) *graph.Node {
	if half(w) {
		x = graph.ConvertDType(x, dtypes.BFloat16)
	}
	y := graph.DotGeneral(x, []int{1}, nil, w, []int{1}, nil)
	if half(w) {
		y = graph.ConvertDType(y, dtypes.Float32)
	}
	return y
}

// Product is graph.Einsum of activations beside the weight w, whose type it follows; the
// result is float32.
func Product(equation string, a, b, w *graph.Node) *graph.Node {
	if !half(w) {
		return graph.Einsum(equation, a, b)
	}
	y := graph.Einsum(equation, graph.ConvertDType(a, dtypes.BFloat16), graph.ConvertDType(b, dtypes.BFloat16))
	return graph.ConvertDType(y, dtypes.Float32)
}

// Rows are rows of a table [V, D] by ids of any shape: [number of ids, D] float32.
func Rows(table, ids *graph.Node) *graph.Node {
	x := graph.Gather(table, graph.Reshape(ids, ids.Shape().Size(), 1))
	if half(table) {
		x = graph.ConvertDType(x, dtypes.Float32)
	}
	return x
}
