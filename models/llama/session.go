package llama

import (
	"context"
	"fmt"
	"math"
	"slices"

	"rag2/models/exec"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// chunks are the numbers of tokens that graphs are compiled for.
var chunks = []int{1, 16, 64, 256}

// capacities are the cache sizes that graphs are compiled for; a larger context
// doubles from the last.
var capacities = []int{0, 256, 512, 1024, 2048}

// Session is one sequence with its key-value cache.
type Session struct {
	m        *Model
	tokens   []int32
	capacity int
	bufs     []backends.Buffer // per layer: keys, values
	flat     [][]float32       // the same memory
}

// NewSession starts an empty sequence.
func (m *Model) NewSession() *Session { return &Session{m: m} }

// Tokens is what the cache holds.
func (s *Session) Tokens() []int32 { return s.tokens }

// Rewind keeps the first n tokens of the sequence.
func (s *Session) Rewind(n int) { s.tokens = s.tokens[:min(n, len(s.tokens))] }

// Reuse rewinds to the longest prefix that the sequence shares with want and
// returns its length. At most len(want)-1 tokens are kept, so that feeding the
// rest yields logits.
func (s *Session) Reuse(want []int32) int {
	n := 0
	for n < len(s.tokens) && n < len(want)-1 && s.tokens[n] == want[n] {
		n++
	}
	s.Rewind(n)
	return n
}

// Close frees the cache.
func (s *Session) Close() {
	for _, b := range s.bufs {
		_ = s.m.backend.BufferFinalize(b)
	}
	s.bufs, s.flat, s.tokens, s.capacity = nil, nil, nil, 0
}

// reserve makes room for n tokens, keeping those that are there.
func (s *Session) reserve(n int) error {
	if n <= s.capacity {
		return nil
	}
	c := s.m.Config
	size := capacities[len(capacities)-1]
	for _, k := range capacities {
		if n <= k {
			size = k
			break
		}
	}
	for size < n {
		size *= 2
	}
	shape := shapes.Make(dtypes.Float32, c.KVHeads, size, c.HeadDim)
	old, oldCap := s.flat, s.capacity
	var bufs []backends.Buffer
	var flats [][]float32
	for i := range 2 * c.Layers {
		var b backends.Buffer
		var flat any
		var err error
		if cerr := exec.Catch("allocate cache", func() { b, flat, err = s.m.backend.NewSharedBuffer(0, shape) }); cerr != nil {
			err = cerr
		}
		if err != nil {
			for _, b := range bufs {
				_ = s.m.backend.BufferFinalize(b)
			}
			return fmt.Errorf("llama: cache of %d tokens: %w", size, err)
		}
		f := flat.([]float32)
		clear(f)
		if old != nil {
			for h := range c.KVHeads {
				copy(f[h*size*c.HeadDim:], old[i][h*oldCap*c.HeadDim:(h*oldCap+len(s.tokens))*c.HeadDim])
			}
		}
		bufs, flats = append(bufs, b), append(flats, f)
	}
	for _, b := range s.bufs {
		_ = s.m.backend.BufferFinalize(b)
	}
	s.bufs, s.flat, s.capacity = bufs, flats, size
	return nil
}

// Feed appends tokens and returns the logits that follow the last one [vocab].
func (s *Session) Feed(ctx context.Context, tokens []int32) ([]float32, error) {
	return s.run(ctx, tokens, nil)
}

// Score appends tokens and returns log P(targets[i] | sequence up to tokens[i]),
// natural logarithm, one per token.
func (s *Session) Score(ctx context.Context, tokens, targets []int32) ([]float32, error) {
	if len(tokens) != len(targets) {
		return nil, fmt.Errorf("llama: %d tokens, %d targets", len(tokens), len(targets))
	}
	return s.run(ctx, tokens, targets)
}

func (s *Session) run(ctx context.Context, tokens, targets []int32) ([]float32, error) {
	if len(tokens) == 0 {
		return nil, fmt.Errorf("llama: no tokens to process")
	}
	c := s.m.Config
	if n := len(s.tokens) + len(tokens); n > c.Context {
		return nil, fmt.Errorf("llama: %d tokens, the model's context holds %d", n, c.Context)
	}
	for _, t := range tokens {
		if t < 0 || int(t) >= c.Vocab {
			return nil, fmt.Errorf("llama: token id %d is outside the vocabulary of %d", t, c.Vocab)
		}
	}
	var out []float32
	for len(tokens) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		size := chunks[len(chunks)-1]
		for _, k := range chunks {
			if len(tokens) <= k {
				size = k
				break
			}
		}
		n := min(size, len(tokens))
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
	for _, v := range out {
		if math.IsNaN(float64(v)) {
			return nil, fmt.Errorf("llama: the network returned NaN")
		}
	}
	return out, nil
}

// chunk runs up to size tokens and stores their keys and values.
func (s *Session) chunk(tokens []int32, size int, targets []int32) ([]float32, error) {
	m, c := s.m, s.m.Config
	n, pos := len(tokens), len(s.tokens)
	if err := s.reserve(pos + n); err != nil {
		return nil, err
	}
	b := bucket{tokens: size, capacity: s.capacity, score: targets != nil}
	if pos == 0 {
		b.capacity = 0
	}
	half := c.HeadDim / 2
	ids, pick := make([]int32, size), make([]int32, size)
	copy(ids, tokens)
	copy(pick, targets)
	if targets == nil {
		pick[0] = int32(n - 1)
	}
	cos, sin := make([]float32, size*half), make([]float32, size*half)
	for t := range size {
		for i, f := range c.invFreq {
			sn, cs := math.Sincos(float64(pos+t) * f)
			cos[t*half+i], sin[t*half+i] = float32(cs), float32(sn)
		}
	}
	var out []float32
	err := m.cache.Do(b, func() (*exec.Program, error) {
		return exec.Compile(m.backend, fmt.Sprintf("llama-%d-%d-%v", b.tokens, b.capacity, b.score), func(g *graph.Graph) []*graph.Node { return m.build(g, b) })
	}, func(p *exec.Program) error {
		in := slices.Clone(m.bufs)
		own := len(in)
		end := own
		defer func() {
			for _, b := range in[own:end] {
				_ = m.backend.BufferFinalize(b)
			}
		}()
		for _, x := range []struct {
			flat any
			s    shapes.Shape
		}{{ids, shapes.Make(dtypes.Int32, size)}, {cos, shapes.Make(dtypes.Float32, size, half)}, {sin, shapes.Make(dtypes.Float32, size, half)},
			{[]int32{int32(pos)}, shapes.Make(dtypes.Int32)}, {pick, shapes.Make(dtypes.Int32, size)}} {
			buf, err := exec.Upload(m.backend, x.flat, x.s)
			if err != nil {
				return err
			}
			in = append(in, buf)
			end = len(in)
		}
		if b.capacity > 0 {
			in = append(in, s.bufs...)
		}
		res, err := p.Run(in, nil)
		if err != nil {
			return err
		}
		rows := c.Vocab
		if b.score {
			rows = size
		}
		if out, err = exec.Fetch[float32](m.backend, res[0], rows); err != nil {
			return err
		}
		for j := range 2 {
			kv, err := exec.Fetch[float32](m.backend, res[1+j], c.Layers*size*c.KVHeads*c.HeadDim)
			if err != nil {
				return err
			}
			s.store(kv, j, n, size, pos)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	s.tokens = append(s.tokens, tokens...)
	return out, nil
}

// store copies new keys (j = 0) or values (1), [layers, size, KV, D], into the cache.
func (s *Session) store(kv []float32, j, n, size, pos int) {
	c := s.m.Config
	d := c.HeadDim
	for l := range c.Layers {
		dst := s.flat[2*l+j]
		for t := range n {
			for h := range c.KVHeads {
				src := ((l*size+t)*c.KVHeads + h) * d
				copy(dst[(h*s.capacity+pos+t)*d:(h*s.capacity+pos+t+1)*d], kv[src:src+d])
			}
		}
	}
}
