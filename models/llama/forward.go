package llama

import (
	"context"
	"fmt"
	"math"
	"slices"

	"rag2/tensor/exec"
	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// chunks are the numbers of new tokens of one sequence that graphs are compiled for.
var chunks = []int{1, 8, 32, 128}

// chunkOf is the graph for n tokens, and how many of them it takes: the longest that
// they fill, or that would be padded by an eighth at most.
func chunkOf(n int) (size, take int) {
	for i := len(chunks) - 1; i > 0; i-- {
		if k := chunks[i]; n >= k-k/8 || i == 1 && n > 1 {
			return k, min(n, k)
		}
	}
	return 1, 1
}

// call is one run of the network: new tokens of some sequences.
type call struct {
	bucket
	cache, prefix *kvCache
	shared        int       // tokens in the prefix
	ids, pick     []int32   // [sequences · tokens], padded
	used          []float32 // [sequences]: tokens in each cache
}

// input is memory of a call's inputs and results, kept by whoever runs calls one after
// another.
type input struct {
	cos, sin []float32
	results  [2]result
}

// result is an output of the last call: the engine's memory where it is shared, and
// otherwise a copy.
type result struct {
	buf  backends.Buffer // nil if the memory is ours
	flat []float32
}

// fetch makes r the contents of buf, n floats; buf belongs to r from here on.
func (r *result) fetch(b backends.Backend, buf backends.Buffer, n int) (err error) {
	r.free(b)
	if !b.HasSharedBuffers() {
		if len(r.flat) != n {
			r.flat = make([]float32, n)
		}
		err = b.BufferToFlatData(buf, r.flat)
		if ferr := b.BufferFinalize(buf); err == nil {
			err = ferr
		}
		return err
	}
	flat, err := b.BufferData(buf)
	if err != nil {
		return err
	}
	r.buf = buf
	var ok bool
	if r.flat, ok = flat.([]float32); !ok || len(r.flat) != n {
		return fmt.Errorf("the engine returned %T of %d where %d floats are due", flat, len(r.flat), n)
	}
	return nil
}

func (r *result) free(b backends.Backend) {
	if r.buf != nil {
		_ = b.BufferFinalize(r.buf)
		r.buf, r.flat = nil, nil
	}
}

// close frees the results.
func (in *input) close(b backends.Backend) {
	for i := range in.results {
		in.results[i].free(b)
	}
}

// run executes a call and returns its outputs (see build), which are valid until the
// next.
func (m *Model) run(in *input, a *call) (out, kv []float32, err error) {
	c := m.Config
	rows, half := a.sequences*a.tokens, c.HeadDim/2
	if n := rows * half; cap(in.cos) < n {
		in.cos, in.sin = make([]float32, n), make([]float32, n)
	}
	cos, sin := in.cos[:rows*half], in.sin[:rows*half]
	for r := range rows {
		at := a.shared + int(a.used[r/a.tokens]) + r%a.tokens
		for i, f := range c.invFreq {
			sn, cs := math.Sincos(float64(at) * f)
			cos[r*half+i], sin[r*half+i] = float32(cs), float32(sn)
		}
	}
	name := fmt.Sprintf("llama-%d-%d-%d-%d-%v", a.sequences, a.tokens, a.capacity, a.bucket.prefix, a.score)
	err = m.cache.Do(a.bucket, func() (*exec.Program, error) {
		return exec.Compile(m.backend, name, func(g *graph.Graph) []*graph.Node { return m.build(g, a.bucket) })
	}, func(p *exec.Program) error {
		bufs := append(make([]backends.Buffer, 0, len(m.bufs)+8), m.bufs...)
		defer func() {
			for _, b := range bufs[len(m.bufs):min(len(bufs), len(m.bufs)+6)] {
				_ = m.backend.BufferFinalize(b)
			}
		}()
		for _, x := range []struct {
			flat any
			s    shapes.Shape
		}{{a.ids, shapes.Make(dtypes.Int32, rows)}, {cos, shapes.Make(dtypes.Float32, rows, half)}, {sin, shapes.Make(dtypes.Float32, rows, half)},
			{a.used, shapes.Make(dtypes.Float32, a.sequences)}, {[]float32{float32(a.shared)}, shapes.Make(dtypes.Float32)}, {a.pick, shapes.Make(dtypes.Int32, rows)}} {
			b, err := exec.Upload(m.backend, x.flat, x.s)
			if err != nil {
				return err
			}
			bufs = append(bufs, b)
		}
		for _, k := range []*kvCache{a.cache, a.prefix} {
			if k == nil {
				continue
			}
			b, err := k.buffer()
			if err != nil {
				return err
			}
			bufs = append(bufs, b)
		}
		res, err := p.Run(bufs, nil)
		if err != nil {
			return err
		}
		n := c.Vocab
		switch {
		case a.score:
			n = rows
		case a.tokens == 1:
			n *= a.sequences
		}
		for i, n := range []int{n, c.Layers * 2 * rows * c.KVHeads * c.HeadDim} {
			if err := in.results[i].fetch(m.backend, res[i], n); err != nil {
				return err
			}
		}
		out, kv = in.results[0].flat, in.results[1].flat
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("llama: %w", err)
	}
	return out, kv, nil
}

// check refuses ids that the vocabulary does not have, and more tokens than the context
// holds.
func (m *Model) check(ids []int32, before int) error {
	if n := before + len(ids); n > m.Config.Context {
		return fmt.Errorf("llama: %d tokens, the model's context holds %d", n, m.Config.Context)
	}
	for _, t := range ids {
		if t < 0 || int(t) >= m.Config.Vocab {
			return fmt.Errorf("llama: token id %d is outside the vocabulary of %d", t, m.Config.Vocab)
		}
	}
	return nil
}

func finite(out []float32) error {
	if top := simd.Maximum(out); top != top {
		return fmt.Errorf("llama: the network returned NaN")
	}
	return nil
}

// feed runs new tokens of a session, chunk by chunk.
func (s *Session) feed(ctx context.Context, tokens, targets []int32) ([]float32, error) {
	if len(tokens) == 0 {
		return nil, fmt.Errorf("llama: no tokens to process")
	}
	if err := s.m.check(tokens, s.shared()+len(s.tokens)); err != nil {
		return nil, err
	}
	var out []float32
	scores := targets != nil
	for len(tokens) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		size, n := chunkOf(len(tokens))
		var pick []int32
		if targets != nil {
			pick, targets = targets[:n], targets[n:]
		}
		res, err := s.chunk(tokens[:n], size, pick)
		if err != nil {
			return nil, err
		}
		if pick != nil {
			out = append(out, res[:n]...)
		} else {
			out = res
		}
		tokens = tokens[n:]
	}
	if !scores { // the engine's memory
		out = slices.Clone(out)
	}
	return out, finite(out)
}

// chunk runs up to size tokens and stores their keys and values. What it returns is valid
// until the next call.
func (s *Session) chunk(tokens []int32, size int, targets []int32) ([]float32, error) {
	n, pos := len(tokens), len(s.tokens)
	if err := s.reserve(pos + n); err != nil {
		return nil, err
	}
	a := &call{bucket: bucket{sequences: 1, tokens: size, capacity: s.cache.capacity, score: targets != nil}, cache: s.cache,
		ids: make([]int32, size), pick: make([]int32, size), used: []float32{float32(pos)}}
	if s.prefix != nil {
		a.prefix, a.shared, a.bucket.prefix = s.prefix.cache, len(s.prefix.tokens), s.prefix.cache.capacity
	}
	copy(a.ids, tokens)
	copy(a.pick, targets)
	if targets == nil {
		a.pick[0] = int32(n - 1)
	}
	out, kv, err := s.m.run(&s.in, a)
	if err != nil {
		return nil, err
	}
	s.cache.store(0, pos, kv, size, 0, n)
	s.tokens = append(s.tokens, tokens...)
	return out, nil
}
