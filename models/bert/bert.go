package bert

import (
	"errors"
	"fmt"
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

// Head says what a Model returns for each text.
type Head string

const (
	CLS        Head = "cls"        // [hidden] the first token's last hidden state
	Mean       Head = "mean"       // [hidden] mean of the last hidden states over the text's tokens
	Classifier Head = "classifier" // [labels] logits of BertForSequenceClassification
)

// ErrClosed reports the use of a model that was closed.
var ErrClosed = errors.New("model is closed")

// bucket is a padded shape.
type bucket struct{ batch, length int }

// maxPrograms bounds the compiled graphs of a model. The nine lengths up to 512
// with batches of powers of two up to 4,096 tokens are 54 buckets.
const maxPrograms = 64

// Model is a loaded network on an engine.
type Model struct {
	Config  Config
	head    Head
	out     int
	backend backends.Backend
	weights *exec.Weights
	cache   *exec.Cache[bucket]

	mu     sync.RWMutex // held for reading while the network runs
	closed bool
}

// Open opens dir (config.json and safetensors) for the engine. Weights are loaded at the first
// use, see exec.Weights, as float32 (bfloat16 on engines that compute in it), and stay until Close.
// Tensor names may begin with "bert."; the head's do not. Every tensor's shape must
// be the one that config.json asks for.
func Open(e *tensor.Engine, dir string, head Head) (*Model, error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	w, err := weights.Open(dir)
	if err != nil {
		return nil, err
	}
	return open(e, c, w, dir, head)
}

// OpenAdapted is Open of base with the LoRA adapter in dir.
func OpenAdapted(e *tensor.Engine, base, dir string, head Head) (*Model, error) {
	c, err := ReadConfig(base)
	if err != nil {
		return nil, err
	}
	w, err := weights.OpenAdapted(base, dir)
	if err != nil {
		return nil, err
	}
	return open(e, c, w, dir, head)
}

// open loads w and closes it.
func open(e *tensor.Engine, c Config, w *weights.File, dir string, head Head) (*Model, error) {
	defer w.Close()
	prefix := ""
	if w.Has("bert.embeddings.word_embeddings.weight") {
		prefix = "bert."
	}
	labels := 0
	switch head {
	case CLS, Mean:
	case Classifier:
		i, err := w.Info("classifier.weight")
		if err != nil {
			return nil, fmt.Errorf("bert: no classification head: %w", err)
		}
		if len(i.Shape) != 2 || i.Shape[0] < 1 {
			return nil, fmt.Errorf("bert: %s: classifier.weight has shape %v, [labels, %d] is needed", dir, i.Shape, c.Hidden)
		}
		labels = i.Shape[0]
	default:
		return nil, fmt.Errorf("bert: head %q; cls, mean or classifier", head)
	}
	m := &Model{Config: c, head: head, out: c.Hidden, backend: e.Backend(), cache: exec.NewCache[bucket](maxPrograms)}
	if head == Classifier {
		m.out = labels
	}
	names, dims := c.weightNames(head, labels)
	var list []exec.Tensor
	for i, n := range names {
		t := exec.Tensor{Name: n, File: oldName(w, prefix+n), Dims: dims[i], Product: !strings.HasPrefix(n, "embeddings.")}
		if strings.HasPrefix(n, "classifier.") {
			t.File, t.Exact = n, true
		}
		list = append(list, t)
	}
	var err error
	if m.weights, err = exec.OpenWeights(e, w, list); err != nil {
		return nil, fmt.Errorf("bert: %w", err)
	}
	return m, nil
}

// oldName is the tensor's name in checkpoints converted from TensorFlow, which call
// the gain and bias of a layer norm gamma and beta.
func oldName(w *weights.File, name string) string {
	if w.Has(name) {
		return name
	}
	old := strings.NewReplacer("LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta").Replace(name)
	if w.Has(old) {
		return old
	}
	return name
}

// Close waits for running calls and frees the weights and compiled graphs; later
// calls of Forward return ErrClosed. Closing again does nothing.
func (m *Model) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.cache.Close()
	m.weights.Close()
}

// Out is the length of a result row.
func (m *Model) Out() int { return m.out }

// Bytes is what the weights take on a device.
func (m *Model) Bytes() int64 { return m.weights.Bytes() }

// Compilations counts the graphs compiled so far.
func (m *Model) Compilations() int { return m.cache.Compilations() }

// Forward runs a padded batch: ids and types are [batch × length] row-major,
// lens the number of real tokens per row, 1 … length; what lies behind them does not
// matter. The result is [batch × Out], float32. One graph is compiled per batch and
// length, so callers keep to a few of them.
func (m *Model) Forward(ids, types, lens []int32, batch, length int) ([]float32, error) {
	return m.ForwardOn(0, ids, types, lens, batch, length)
}

// ForwardOn is Forward on one of the engine's devices, which gets a copy of the weights.
func (m *Model) ForwardOn(device int, ids, types, lens []int32, batch, length int) ([]float32, error) {
	if len(ids) != batch*length || len(types) != batch*length || len(lens) != batch {
		return nil, fmt.Errorf("bert: %d ids, %d types, %d lengths for a batch of %d × %d", len(ids), len(types), len(lens), batch, length)
	}
	if length > m.Config.Positions {
		return nil, fmt.Errorf("bert: %d tokens, the model has %d positions", length, m.Config.Positions)
	}
	if err := m.check(ids, types, lens, length); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, fmt.Errorf("bert: %w", ErrClosed)
	}
	var out []float32
	err := m.cache.Do(bucket{batch, length}, func() (*exec.Program, error) {
		return exec.Compile(m.backend, fmt.Sprintf("bert-%dx%d", batch, length), func(g *graph.Graph) []*graph.Node {
			return []*graph.Node{m.build(g, batch, length)}
		})
	}, func(p *exec.Program) error {
		in, err := m.weights.Buffers(device, nil)
		if err != nil {
			return err
		}
		own := len(in)
		defer func() {
			for _, b := range in[own:] {
				_ = m.backend.BufferFinalize(b)
			}
		}()
		for _, x := range []struct {
			flat []int32
			dims []int
		}{{ids, []int{batch, length}}, {types, []int{batch, length}}, {lens, []int{batch}}} {
			b, err := exec.UploadTo(m.backend, device, x.flat, shapes.Make(dtypes.Int32, x.dims...))
			if err != nil {
				return err
			}
			in = append(in, b)
		}
		res, err := p.RunOn(device, in, nil)
		if err != nil {
			return err
		}
		out, err = exec.Fetch[float32](m.backend, res[0], batch*m.out)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("bert: %w", err)
	}
	return out, nil
}

// check refuses indices outside the tables: XLA would clamp them in silence.
func (m *Model) check(ids, types, lens []int32, length int) error {
	for i, v := range ids {
		if uint32(v) >= uint32(m.Config.Vocab) {
			return fmt.Errorf("bert: token id %d at row %d column %d is outside the vocabulary of %d", v, i/length, i%length, m.Config.Vocab)
		}
	}
	for i, v := range types {
		if uint32(v) >= uint32(m.Config.Types) {
			return fmt.Errorf("bert: token type %d at row %d column %d; the model has %d", v, i/length, i%length, m.Config.Types)
		}
	}
	for i, v := range lens {
		if v < 1 || int(v) > length {
			return fmt.Errorf("bert: row %d has %d tokens, 1 … %d are possible", i, v, length)
		}
	}
	return nil
}
