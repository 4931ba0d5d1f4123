package t5

import (
	"context"
	"errors"
	"fmt"

	"rag2/tensor/exec"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// Capacities of the self-attention cache that graphs are compiled for, and padded
// lengths of the encoder's input.
var (
	capacities = []int{16, 64, 256, 1024}
	lengths    = []int{16, 32, 64, 128, 256, 512, 1024, 2048, 4096}
)

func bucketUp(n int, buckets []int) int {
	for _, b := range buckets {
		if n <= b {
			return b
		}
	}
	return n
}

// Generate decodes greedily: at most maxTokens tokens follow the start token; the
// end-of-sequence token ends the output and is not part of it, and then ended is true.
// ids is one encoded input. The context is checked at each step.
func (m *Model) Generate(ctx context.Context, ids []int32, maxTokens int) (out []int32, ended bool, err error) {
	if len(ids) == 0 || len(ids) > lengths[len(lengths)-1] {
		return nil, false, fmt.Errorf("t5: an input of %d tokens, 1 … %d are possible", len(ids), lengths[len(lengths)-1])
	}
	if maxTokens < 1 || maxTokens > capacities[len(capacities)-1] {
		return nil, false, fmt.Errorf("t5: %d tokens to generate, 1 … %d are possible", maxTokens, capacities[len(capacities)-1])
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, false, fmt.Errorf("t5: %w", ErrClosed)
	}
	length := bucketUp(len(ids), lengths)
	padded := make([]int32, length)
	copy(padded, ids)
	lens := []int32{int32(len(ids))}
	if err := m.check(padded, lens, nil, 1, length); err != nil {
		return nil, false, err
	}
	cross, err := m.crossCache(padded, lens, length)
	defer func() { m.free(cross) }()
	if err != nil {
		return nil, false, fmt.Errorf("t5: %w", err)
	}
	capacity := bucketUp(maxTokens, capacities)
	self, err := m.selfCache(capacity)
	defer func() { m.free(self) }()
	if err != nil {
		return nil, false, fmt.Errorf("t5: %w", err)
	}
	token := m.Config.Start
	for pos := range maxTokens {
		if err := ctx.Err(); err != nil {
			return out, false, err
		}
		var logits []float32
		if logits, self, err = m.step(token, pos, length, capacity, lens, cross, self); err != nil {
			return out, false, err
		}
		token = 0
		for i, v := range logits {
			if v > logits[token] {
				token = int32(i)
			}
		}
		if token == m.Config.EOS {
			return out, true, nil
		}
		out = append(out, token)
	}
	return out, false, nil
}

func (m *Model) free(bufs []backends.Buffer) {
	for _, b := range bufs {
		_ = m.backend.BufferFinalize(b)
	}
}

// crossCache runs the encoder and returns the keys and values of every decoder layer's
// cross-attention, [1, length, Heads, HeadDim] each, which stay on the device.
func (m *Model) crossCache(ids, lens []int32, length int) (out []backends.Buffer, err error) {
	c := m.Config
	err = m.run(bucket{encode, 1, length, 0}, func(g *graph.Graph) []*graph.Node {
		w := m.parameters(g, encode)
		ids := graph.Parameter(g, "ids", shapes.Make(dtypes.Int32, 1, length))
		lens := graph.Parameter(g, "lens", shapes.Make(dtypes.Int32, 1))
		enc := graph.Reshape(c.Encode(w, ids, lens), length, c.Hidden)
		var kv []*graph.Node
		for i := range c.DecLayers {
			p := fmt.Sprintf("dec%d.cross.", i)
			kv = append(kv, c.heads(enc, w[p+"k"], 1, length), c.heads(enc, w[p+"v"], 1, length))
		}
		return kv
	}, []input{{ids, []int{1, length}}, {lens, []int{1}}}, nil, func(res []backends.Buffer) error {
		out = res
		return nil
	})
	return out, err
}

// selfCache makes empty caches, keys and values of every decoder layer,
// [1, capacity, Heads, HeadDim] each.
func (m *Model) selfCache(capacity int) (out []backends.Buffer, err error) {
	c := m.Config
	zero := make([]float32, capacity*c.Heads*c.HeadDim)
	for range 2 * c.DecLayers {
		b, err := exec.Upload(m.backend, zero, shapes.Make(dtypes.Float32, 1, capacity, c.Heads, c.HeadDim))
		if err != nil {
			return out, err
		}
		out = append(out, b)
	}
	return out, nil
}

// step decodes one token at position pos and returns the logits [Vocab] that follow it
// and the new caches; the old ones are freed.
func (m *Model) step(token int32, pos, length, capacity int, lens []int32, cross, self []backends.Buffer) (logits []float32, next []backends.Buffer, err error) {
	// The bias of each cached position relative to this one depends on pos alone.
	buckets := make([]int32, capacity)
	for k := range buckets {
		buckets[k] = m.Config.bucketOf(k-pos, false)
	}
	next = self
	err = m.run(bucket{step, 1, length, capacity}, func(g *graph.Graph) []*graph.Node { return m.buildStep(g, length, capacity) },
		[]input{{[]int32{token}, []int{1, 1}}, {[]int32{int32(pos)}, nil}, {buckets, []int{capacity, 1}}, {lens, []int{1}}},
		append(append([]backends.Buffer(nil), cross...), self...), func(res []backends.Buffer) error {
			m.free(self)
			next = res[1:]
			logits, err = exec.Fetch[float32](m.backend, res[0], m.Config.Vocab)
			return err
		})
	if err == nil {
		err = finite(logits)
	}
	if err != nil && !errors.Is(err, ErrNotFinite) {
		err = fmt.Errorf("t5: %w", err)
	}
	return logits, next, err
}

// buildStep writes the graph of step: logits [Vocab], then per layer new keys, values.
func (m *Model) buildStep(g *graph.Graph, length, capacity int) []*graph.Node {
	c := m.Config
	w := m.parameters(g, step)
	i32 := func(name string, dims ...int) *graph.Node {
		return graph.Parameter(g, name, shapes.Make(dtypes.Int32, dims...))
	}
	token, pos, buckets, lens := i32("token", 1, 1), i32("pos"), i32("buckets", capacity, 1), i32("lens", 1)
	kv := func(name string, n int) (out []*graph.Node) {
		for i := range 2 * c.DecLayers {
			out = append(out, graph.Parameter(g, fmt.Sprintf("%s%d", name, i), shapes.Make(dtypes.Float32, 1, n, c.Heads, c.HeadDim)))
		}
		return
	}
	cross, self := kv("cross", length), kv("self", capacity)

	at := graph.Iota(g, shapes.Make(dtypes.Int32, 1, capacity, c.Heads, c.HeadDim), 1)
	here := graph.Equal(at, graph.BroadcastToShape(pos, at.Shape()))
	past := graph.LessOrEqual(graph.Iota(g, shapes.Make(dtypes.Int32, 1, c.Heads, 1, capacity), 3), graph.BroadcastToDims(pos, 1, c.Heads, 1, capacity))
	bias := graph.Reshape(graph.Transpose(graph.Gather(w["dec.bias"], buckets), 0, 1), 1, c.Heads, 1, capacity)
	seen := graph.BroadcastToDims(graph.Reshape(inside(lens, length), 1, 1, 1, length), 1, c.Heads, 1, length)
	var out []*graph.Node
	x := exec.Rows(w["shared"], token)
	for i := range c.DecLayers {
		p := fmt.Sprintf("dec%d.", i)
		h := norm(x, w[p+"attn_norm"], c.Eps)
		put := func(new, cache *graph.Node) *graph.Node {
			return graph.Where(here, graph.BroadcastToShape(new, cache.Shape()), cache)
		}
		k := put(c.heads(h, w[p+"attn.k"], 1, 1), self[2*i])
		v := put(c.heads(h, w[p+"attn.v"], 1, 1), self[2*i+1])
		out = append(out, k, v)
		x = graph.Add(x, c.attend(c.heads(h, w[p+"attn.q"], 1, 1), k, v, bias, past, w[p+"attn.o"]))
		h = norm(x, w[p+"cross_norm"], c.Eps)
		x = graph.Add(x, c.attend(c.heads(h, w[p+"cross.q"], 1, 1), cross[2*i], cross[2*i+1], nil, seen, w[p+"cross.o"]))
		x = graph.Add(x, c.ff(norm(x, w[p+"ff_norm"], c.Eps), w, p+"ff."))
	}
	logits := c.Head(w, norm(x, w["dec.norm"], c.Eps), nil)
	return append([]*graph.Node{graph.Reshape(logits, c.Vocab)}, out...)
}
