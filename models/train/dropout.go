package train

import (
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// dropper is the dropout of one batch: each call draws its mask from the engine's
// generator (Philox), whose state starts from seed [3], int32, and moves on with every
// mask. The same seed gives the same masks on the same engine, whatever its threads.
func dropper(seed *graph.Node, share float64) func(x *graph.Node) *graph.Node {
	state := graph.ConvertDType(seed, dtypes.Uint32)
	state = graph.ConvertDType(state, dtypes.Uint64)
	return func(x *graph.Node) *graph.Node {
		var u *graph.Node
		state, u = graph.RandomUniform(state, shapes.Make(dtypes.Float32, x.Shape().Dimensions...))
		keep := graph.GreaterOrEqual(u, graph.BroadcastToShape(graph.Scalar(x.Graph(), dtypes.Float32, share), u.Shape()))
		return graph.Where(keep, graph.MulScalar(x, 1/(1-share)), graph.ZerosLike(x))
	}
}
