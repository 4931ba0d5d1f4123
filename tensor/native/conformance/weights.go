package conformance

import (
	"fmt"

	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
)

// Weights are cases of products with matrices [out,in] that are large enough to be kept
// as weights: packed, rounded or quantised. Rows and columns meet panels that end early.
func Weights() []Case {
	s := newSource(6)
	var cs []Case
	for _, n := range [][3]int{{1, 100, 64}, {2, 257, 33}, {7, 131, 99}, {40, 70, 192}, {130, 96, 300}} {
		m, out, in := n[0], n[1], n[2]
		add := func(name string, f func(in nodes) nodes, x ...*tensors.Tensor) {
			cs = append(cs, Case{Name: fmt.Sprintf("weight/%s/%v", name, n), Build: f, Inputs: x, Tol: 1e-5, Buffers: true})
		}
		x, w, b := s.f32(m, in), s.f32(out, in), s.f32(out)
		add("product", func(v nodes) nodes {
			return nodes{graph.DotGeneral(v[0], []int{1}, nil, v[1], []int{1}, nil)}
		}, x, w)
		add("linear-gelu", func(v nodes) nodes { return nodes{gelu(linear(v[0], v[1], v[2]))} }, x, w, b)
		add("tied", func(v nodes) nodes { // one table is gathered from and multiplied with
			rows := graph.Gather(v[0], v[1])
			return nodes{linear(rows, v[0], v[2]), rows}
		}, w, s.i32(out, m, 1), b)
		add("and-flat", func(v nodes) nodes { // something else reads the elements
			return nodes{linear(v[0], v[1], v[2]), graph.ReduceSum(v[1], 0)}
		}, x, w, b)
		add("normed", func(v nodes) nodes { return nodes{layerNorm(linear(v[0], v[1], v[2]), v[3], v[2])} }, x, w, b, s.f32(out))
	}
	return cs
}
