package t5

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"rag2/tensor"
	"rag2/tensor/exec"
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// ErrClosed reports the use of a model that was closed.
var ErrClosed = errors.New("model is closed")

// ErrNotFinite reports logits that are NaN or infinite: weights or arithmetic are
// broken, and no label may be read from them.
var ErrNotFinite = errors.New("the network returned a value that is not finite")

// kind is a kind of graph.
type kind uint8

const (
	firstStep kind = iota // encoder and first decoder step
	encode                // encoder and the keys and values of cross-attention
	step                  // one decoder step with caches
	hidden                // encoder alone
)

// bucket is a compiled shape.
type bucket struct {
	kind          kind
	batch, length int // of the encoder
	n             int // firstStep: tokens scored; step: capacity of the self-attention cache
}

// maxPrograms bounds the compiled graphs of a model.
const maxPrograms = 64

// Model is a loaded network on an engine.
type Model struct {
	Config  Config
	backend backends.Backend
	weights *exec.Weights
	cache   *exec.Cache[bucket]

	mu     sync.RWMutex // held for reading while the network runs
	closed bool
}

// Open opens a Hugging Face directory or a GGUF file for the engine's first device. Weights are
// loaded at the first use, see exec.Weights, and stay until Close.
func Open(e *tensor.Engine, path string) (*Model, error) {
	w, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	gguf := w.Format() == "gguf"
	var c Config
	if gguf {
		c, err = readGGUF(w)
	} else {
		c, err = readHF(path, w.Has("lm_head.weight"))
	}
	if err != nil {
		return nil, err
	}
	m := &Model{Config: c, backend: e.Backend(), cache: exec.NewCache[bucket](maxPrograms)}
	var list []exec.Tensor
	for _, p := range c.Params() {
		// The head's logits are compared: it is not rounded, nor are its tables of biases.
		t := exec.Tensor{Name: p.Name, File: p.HF, Dims: p.Dims, Exact: p.Name == "head" || p.Name == "shared" && c.Tied || strings.HasSuffix(p.Name, ".bias"),
			Product: p.Name != "shared" && !strings.HasSuffix(p.Name, ".bias")}
		if gguf {
			t.File = p.GGUF
		}
		// Checkpoints may hold the word embeddings under the encoder's or decoder's name.
		for _, other := range []string{"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} {
			if p.Name == "shared" && !w.Has(t.File) && w.Has(other) {
				t.File = other
			}
		}
		list = append(list, t)
	}
	if m.weights, err = exec.OpenWeights(e, w, list); err != nil {
		return nil, fmt.Errorf("t5: %w", err)
	}
	return m, nil
}

// Close waits for running calls and frees the weights and compiled graphs; later calls
// return ErrClosed. Closing again does nothing.
func (m *Model) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.cache.Close()
	m.weights.Close()
}

// Bytes is what the weights take on a device.
func (m *Model) Bytes() int64 { return m.weights.Bytes() }

// Compilations counts the graphs compiled so far.
func (m *Model) Compilations() int { return m.cache.Compilations() }

// uses says whether a kind of graph needs a parameter: XLA wants no others.
func (k kind) uses(name string) bool {
	switch k {
	case hidden:
		return name == "shared" || strings.HasPrefix(name, "enc")
	case encode:
		return name == "shared" || strings.HasPrefix(name, "enc") || strings.HasSuffix(name, ".cross.k") || strings.HasSuffix(name, ".cross.v")
	case step:
		return !strings.HasPrefix(name, "enc") && !strings.HasSuffix(name, ".cross.k") && !strings.HasSuffix(name, ".cross.v")
	}
	return true
}

// parameters makes the graph's parameters of a kind.
func (m *Model) parameters(g *graph.Graph, k kind) Weights {
	w := Weights{}
	for i := range m.weights.Len() {
		if n := m.weights.Name(i); k.uses(n) {
			w[n] = graph.Parameter(g, n, m.weights.Shape(i))
		}
	}
	return w
}

// input is one int32 input.
type input struct {
	flat []int32
	dims []int
}

// run compiles the bucket's graph if need be and runs it on weights, inputs and more.
func (m *Model) run(b bucket, build func(g *graph.Graph) []*graph.Node, inputs []input, more []backends.Buffer, use func([]backends.Buffer) error) error {
	return m.cache.Do(b, func() (*exec.Program, error) {
		return exec.Compile(m.backend, fmt.Sprintf("t5-%d-%dx%d-%d", b.kind, b.batch, b.length, b.n), build)
	}, func(p *exec.Program) error {
		in, err := m.weights.Buffers(0, b.kind.uses)
		if err != nil {
			return err
		}
		own := len(in)
		end := own
		defer func() {
			for _, b := range in[own:end] {
				_ = m.backend.BufferFinalize(b)
			}
		}()
		for _, x := range inputs {
			buf, err := exec.Upload(m.backend, x.flat, shapes.Make(dtypes.Int32, x.dims...))
			if err != nil {
				return err
			}
			in = append(in, buf)
			end = len(in)
		}
		res, err := p.Run(append(in, more...), nil)
		if err != nil {
			return err
		}
		return use(res)
	})
}

// check refuses indices outside the tables: XLA would clamp them in silence.
func (m *Model) check(ids, lens, tokens []int32, batch, length int) error {
	if batch < 1 || length < 1 || len(ids) != batch*length || len(lens) != batch {
		return fmt.Errorf("t5: %d ids and %d lengths for a batch of %d × %d", len(ids), len(lens), batch, length)
	}
	for _, v := range [][]int32{ids, tokens} {
		for i, id := range v {
			if uint32(id) >= uint32(m.Config.Vocab) {
				return fmt.Errorf("t5: token id %d at %d is outside the vocabulary of %d", id, i, m.Config.Vocab)
			}
		}
	}
	for i, v := range lens {
		if v < 1 || int(v) > length {
			return fmt.Errorf("t5: row %d has %d tokens, 1 … %d are possible", i, v, length)
		}
	}
	return nil
}

// finite reports the first value that is none.
func finite(v []float32) error {
	for i, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("t5: %w: %v at %d", ErrNotFinite, x, i)
		}
	}
	return nil
}

// Hidden runs the encoder on a padded batch, ids [batch × length] row-major and lens the
// number of real tokens per row; the result is [batch × length × Config.Hidden], of which
// rows behind a text's end are arbitrary. One graph is compiled per batch and length.
func (m *Model) Hidden(ids, lens []int32, batch, length int) ([]float32, error) {
	if err := m.check(ids, lens, nil, batch, length); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, fmt.Errorf("t5: %w", ErrClosed)
	}
	var out []float32
	err := m.run(bucket{kind: hidden, batch: batch, length: length}, func(g *graph.Graph) []*graph.Node {
		w := m.parameters(g, hidden)
		ids := graph.Parameter(g, "ids", shapes.Make(dtypes.Int32, batch, length))
		return []*graph.Node{m.Config.Encode(w, ids, graph.Parameter(g, "lens", shapes.Make(dtypes.Int32, batch)))}
	}, []input{{ids, []int{batch, length}}, {lens, []int{batch}}}, nil, func(res []backends.Buffer) (err error) {
		out, err = exec.Fetch[float32](m.backend, res[0], batch*length*m.Config.Hidden)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("t5: %w", err)
	}
	return out, nil
}

// FirstStep runs a padded batch: ids [batch × length] row-major, lens the number of
// real tokens per row (1 … length). The result is [batch × len(tokens)], row-major:
// the logits of the given tokens at the first decoder step, which begins with the
// start token (pad). One graph is compiled per batch, length and number of tokens.
// Rows are not checked to be finite; callers name the row that is not.
func (m *Model) FirstStep(ids, lens, tokens []int32, batch, length int) ([]float32, error) {
	if err := m.check(ids, lens, tokens, batch, length); err != nil {
		return nil, err
	}
	if len(tokens) == 0 {
		return nil, errors.New("t5: no tokens to score")
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, fmt.Errorf("t5: %w", ErrClosed)
	}
	start := make([]int32, batch)
	for i := range start {
		start[i] = m.Config.Start
	}
	var out []float32
	err := m.run(bucket{firstStep, batch, length, len(tokens)}, func(g *graph.Graph) []*graph.Node {
		w := m.parameters(g, firstStep)
		i32 := func(name string, dims ...int) *graph.Node {
			return graph.Parameter(g, name, shapes.Make(dtypes.Int32, dims...))
		}
		ids, lens := i32("ids", batch, length), i32("lens", batch)
		start, want := i32("start", batch, 1), i32("tokens", len(tokens))
		h := m.Config.Decode(w, m.Config.Encode(w, ids, lens), lens, start)
		return []*graph.Node{m.Config.Head(w, graph.Reshape(h, batch, m.Config.Hidden), want)}
	}, []input{{ids, []int{batch, length}}, {lens, []int{batch}}, {start, []int{batch, 1}}, {tokens, []int{len(tokens)}}}, nil, func(res []backends.Buffer) (err error) {
		out, err = exec.Fetch[float32](m.backend, res[0], batch*len(tokens))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("t5: %w", err)
	}
	return out, nil
}
