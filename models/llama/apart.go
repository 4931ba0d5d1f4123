package llama

import (
	"fmt"

	"rag2/tensor/exec"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// An engine that shares no memory with the host (a GPU) holds a copy of a cache. Whole chunks of
// tokens are written on the host and the copy is made again; a single token, which is what
// decoding adds, is written on the device: the transfer is one token's keys and values.

// append writes one token's keys and values, row row of kv [layers, 2, rows, KV, D], into the
// device's copy; where that fails the copy is dropped, and made again from the host's.
func (k *kvCache) append(slot, pos int, kv []float32, rows, row int) {
	c := k.m.Config
	d := c.HeadDim
	token := make([]float32, 0, c.Layers*2*c.KVHeads*d)
	for l := range 2 * c.Layers {
		token = append(token, kv[(l*rows+row)*c.KVHeads*d:][:c.KVHeads*d]...)
	}
	next, err := k.update(slot, pos, token)
	if err != nil {
		k.changed()
		return
	}
	_ = k.m.backend.BufferFinalize(k.buf)
	k.buf = next
}

// update makes the copy with a token [layers, 2, KV, D] at pos of a slot.
func (k *kvCache) update(slot, pos int, token []float32) (out backends.Buffer, err error) {
	m, c := k.m, k.m.Config
	key := [2]int{k.slots, k.capacity}
	err = m.updates.Do(key, func() (*exec.Program, error) {
		return exec.Compile(m.backend, fmt.Sprintf("llama-append-%d-%d", k.slots, k.capacity), func(g *graph.Graph) []*graph.Node {
			D := c.HeadDim
			x := graph.Parameter(g, "cache", k.shape())
			t := graph.Parameter(g, "token", shapes.Make(dtypes.Float32, c.Layers, 2, c.KVHeads, D))
			i32 := func(name string) *graph.Node { return graph.Parameter(g, name, shapes.Make(dtypes.Int32)) }
			slot, at, panelAt, inPanel := i32("slot"), i32("pos"), i32("panel"), i32("in")
			zero, one := graph.Scalar(g, dtypes.Int32, 0), graph.Scalar(g, dtypes.Int32, 1)
			half := func(i int, dims ...int) *graph.Node { // the token's keys or values
				return graph.Reshape(graph.Slice(t, graph.AxisRange(), graph.AxisRange(i, i+1)), dims...)
			}
			x = graph.Reshape(x, k.slots, c.Layers, 2, c.KVHeads, k.capacity/panel, D, panel)
			x = graph.DynamicUpdateSlice(x, half(0, 1, c.Layers, 1, c.KVHeads, 1, D, 1), []*graph.Node{slot, zero, zero, zero, panelAt, zero, inPanel})
			x = graph.Reshape(x, k.slots, c.Layers, 2, c.KVHeads, k.capacity, D)
			x = graph.DynamicUpdateSlice(x, half(1, 1, c.Layers, 1, c.KVHeads, 1, D), []*graph.Node{slot, zero, one, zero, at, zero})
			return []*graph.Node{graph.Reshape(x, k.shape().Dimensions...)}
		})
	}, func(p *exec.Program) error {
		in := []backends.Buffer{k.buf}
		defer func() {
			for _, b := range in[1:] {
				_ = m.backend.BufferFinalize(b)
			}
		}()
		up := func(flat any, s shapes.Shape) error {
			b, err := exec.Upload(m.backend, flat, s)
			if err == nil {
				in = append(in, b)
			}
			return err
		}
		if err := up(token, shapes.Make(dtypes.Float32, c.Layers, 2, c.KVHeads, c.HeadDim)); err != nil {
			return err
		}
		for _, v := range []int{slot, pos, pos / panel, pos % panel} {
			if err := up([]int32{int32(v)}, shapes.Make(dtypes.Int32)); err != nil {
				return err
			}
		}
		res, err := p.Run(in, nil)
		if err == nil {
			out = res[0]
		}
		return err
	})
	return out, err
}
