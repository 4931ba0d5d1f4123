package bert

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rag2/models/exec"
	"rag2/tensor"
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// Config is the part of a Hugging Face config.json that fixes the network.
type Config struct {
	ModelType    string  `json:"model_type"`
	Hidden       int     `json:"hidden_size"`
	Layers       int     `json:"num_hidden_layers"`
	Heads        int     `json:"num_attention_heads"`
	Intermediate int     `json:"intermediate_size"`
	Vocab        int     `json:"vocab_size"`
	Positions    int     `json:"max_position_embeddings"`
	Types        int     `json:"type_vocab_size"`
	Eps          float64 `json:"layer_norm_eps"`
	Act          string  `json:"hidden_act"`
	Position     string  `json:"position_embedding_type"`
}

// ReadConfig reads dir/config.json and names every setting that is missing or
// not supported.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("bert: %w", err)
	}
	c := Config{Eps: 1e-12, Act: "gelu", Types: 2}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("bert: %s: %w", path, err)
	}
	var bad []string
	if c.ModelType != "bert" {
		bad = append(bad, fmt.Sprintf("model_type %q is not bert", c.ModelType))
	}
	for name, v := range map[string]int{"hidden_size": c.Hidden, "num_hidden_layers": c.Layers, "num_attention_heads": c.Heads,
		"intermediate_size": c.Intermediate, "vocab_size": c.Vocab, "max_position_embeddings": c.Positions, "type_vocab_size": c.Types} {
		if v < 1 || v > 1<<24 {
			bad = append(bad, fmt.Sprintf("%s is %d", name, v))
		}
	}
	if c.Heads > 0 && c.Hidden%c.Heads != 0 {
		bad = append(bad, fmt.Sprintf("hidden_size %d is not a multiple of %d heads", c.Hidden, c.Heads))
	}
	if c.Act != "gelu" {
		bad = append(bad, fmt.Sprintf("hidden_act %q is not gelu", c.Act))
	}
	if c.Position != "" && c.Position != "absolute" {
		bad = append(bad, fmt.Sprintf("position_embedding_type %q is not absolute", c.Position))
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return c, fmt.Errorf("bert: %s: %s", path, strings.Join(bad, "; "))
	}
	return c, nil
}

// Head says what a Model returns for each text.
type Head string

const (
	CLS        Head = "cls"        // [hidden] the first token's last hidden state
	Mean       Head = "mean"       // [hidden] mean of the last hidden states over the text's tokens
	Classifier Head = "classifier" // [labels] logits of BertForSequenceClassification
)

// bucket is a padded shape.
type bucket struct{ batch, length int }

// Model is a loaded network on an engine.
type Model struct {
	Config  Config
	head    Head
	out     int
	backend backends.Backend
	bufs    []backends.Buffer
	shapes  []shapes.Shape
	names   []string
	cache   *exec.Cache[bucket]
}

// weightNames lists the parameters in graph order with their dimensions.
func (c Config) weightNames(head Head, labels int) (names []string, dims [][]int) {
	add := func(n string, d ...int) { names = append(names, n); dims = append(dims, d) }
	h, f := c.Hidden, c.Intermediate
	add("embeddings.word_embeddings.weight", c.Vocab, h)
	add("embeddings.position_embeddings.weight", c.Positions, h)
	add("embeddings.token_type_embeddings.weight", c.Types, h)
	add("embeddings.LayerNorm.weight", h)
	add("embeddings.LayerNorm.bias", h)
	linear := func(n string, out, in int) { add(n+".weight", out, in); add(n+".bias", out) }
	norm := func(n string) { add(n+".weight", h); add(n+".bias", h) }
	for i := range c.Layers {
		p := fmt.Sprintf("encoder.layer.%d.", i)
		linear(p+"attention.self.query", h, h)
		linear(p+"attention.self.key", h, h)
		linear(p+"attention.self.value", h, h)
		linear(p+"attention.output.dense", h, h)
		norm(p + "attention.output.LayerNorm")
		linear(p+"intermediate.dense", f, h)
		linear(p+"output.dense", h, f)
		norm(p + "output.LayerNorm")
	}
	if head == Classifier {
		linear("pooler.dense", h, h)
		linear("classifier", labels, h)
	}
	return
}

// Open loads dir (config.json and safetensors) onto the engine. Weights are kept
// in float32.
func Open(e *tensor.Engine, dir string, head Head) (*Model, error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	w, err := weights.Open(dir)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	prefix := ""
	if w.Has("bert.embeddings.word_embeddings.weight") {
		prefix = "bert."
	}
	labels := 0
	if head == Classifier {
		i, err := w.Info("classifier.weight")
		if err != nil {
			return nil, fmt.Errorf("bert: no classification head: %w", err)
		}
		labels = i.Shape[0]
	}
	m := &Model{Config: c, head: head, out: c.Hidden, backend: e.Backend(), cache: exec.NewCache[bucket](48)}
	if head == Classifier {
		m.out = labels
	}
	names, dims := c.weightNames(head, labels)
	for i, n := range names {
		full := prefix + n
		if n == "classifier.weight" || n == "classifier.bias" {
			full = n
		}
		info, err := w.Info(full)
		if err != nil {
			return nil, fmt.Errorf("bert: %w", err)
		}
		if !slices.Equal(info.Shape, dims[i]) {
			return nil, fmt.Errorf("bert: %s: tensor %q has shape %v, config.json asks for %v", dir, full, info.Shape, dims[i])
		}
		v, err := w.Float32(full)
		if err != nil {
			return nil, fmt.Errorf("bert: %w", err)
		}
		s := shapes.Make(dtypes.Float32, dims[i]...)
		b, err := exec.Upload(m.backend, v, s)
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("bert: upload %s: %w", full, err)
		}
		m.bufs = append(m.bufs, b)
		m.shapes = append(m.shapes, s)
		m.names = append(m.names, n)
	}
	return m, nil
}

// Close frees the weights and compiled graphs.
func (m *Model) Close() {
	m.cache.Close()
	for _, b := range m.bufs {
		_ = m.backend.BufferFinalize(b)
	}
	m.bufs = nil
}

// Out is the length of a result row.
func (m *Model) Out() int { return m.out }

// Compilations counts the graphs compiled so far.
func (m *Model) Compilations() int { return m.cache.Compilations() }

// Forward runs a padded batch: ids and types are [batch × length] row-major,
// lens the number of real tokens per row (≥ 1). The result is [batch × Out].
func (m *Model) Forward(ids, types, lens []int32, batch, length int) ([]float32, error) {
	if len(ids) != batch*length || len(types) != batch*length || len(lens) != batch {
		return nil, fmt.Errorf("bert: %d ids, %d types, %d lengths for a batch of %d × %d", len(ids), len(types), len(lens), batch, length)
	}
	if length > m.Config.Positions {
		return nil, fmt.Errorf("bert: %d tokens, the model has %d positions", length, m.Config.Positions)
	}
	var out []float32
	err := m.cache.Do(bucket{batch, length}, func() (*exec.Program, error) {
		return exec.Compile(m.backend, fmt.Sprintf("bert-%dx%d", batch, length), func(g *graph.Graph) []*graph.Node {
			return []*graph.Node{m.build(g, batch, length)}
		})
	}, func(p *exec.Program) error {
		in := slices.Clone(m.bufs)
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
			b, err := exec.Upload(m.backend, x.flat, shapes.Make(dtypes.Int32, x.dims...))
			if err != nil {
				return err
			}
			in = append(in, b)
		}
		res, err := p.Run(in, nil)
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

// build writes the network for one bucket.
func (m *Model) build(g *graph.Graph, batch, length int) *graph.Node {
	c := m.Config
	w := map[string]*graph.Node{}
	for i, n := range m.names {
		w[n] = graph.Parameter(g, n, m.shapes[i])
	}
	ids := graph.Parameter(g, "ids", shapes.Make(dtypes.Int32, batch, length))
	types := graph.Parameter(g, "types", shapes.Make(dtypes.Int32, batch, length))
	lens := graph.Parameter(g, "lens", shapes.Make(dtypes.Int32, batch))
	rows := batch * length
	h := c.Hidden

	embed := func(table, idx *graph.Node) *graph.Node {
		return graph.Gather(table, graph.Reshape(idx, rows, 1))
	}
	x := graph.Add(embed(w["embeddings.word_embeddings.weight"], ids), embed(w["embeddings.token_type_embeddings.weight"], types))
	pos := graph.Slice(w["embeddings.position_embeddings.weight"], graph.AxisRange(0, length), graph.AxisRange())
	x = graph.Add(graph.Reshape(x, batch, length, h), graph.Reshape(pos, 1, length, h))
	x = graph.Reshape(x, rows, h)
	norm := func(x *graph.Node, n string) *graph.Node { return layerNorm(x, w[n+".weight"], w[n+".bias"], c.Eps) }
	linear := func(x *graph.Node, n string) *graph.Node {
		y := graph.DotGeneral(x, []int{1}, nil, w[n+".weight"], []int{1}, nil)
		return graph.Add(y, graph.Reshape(w[n+".bias"], 1, y.Shape().Dimensions[1]))
	}
	x = norm(x, "embeddings.LayerNorm")

	// mask is true at real tokens: [batch, 1, 1, length]
	idx := graph.Iota(g, shapes.Make(dtypes.Int32, batch, length), 1)
	real := graph.LessThan(idx, graph.BroadcastToDims(graph.Reshape(lens, batch, 1), batch, length))
	mask := graph.BroadcastToDims(graph.Reshape(real, batch, 1, 1, length), batch, c.Heads, length, length)
	d := h / c.Heads
	minus := graph.BroadcastToDims(graph.Scalar(g, dtypes.Float32, -1e9), batch, c.Heads, length, length)
	for i := range c.Layers {
		p := fmt.Sprintf("encoder.layer.%d.", i)
		heads := func(n string) *graph.Node { return graph.Reshape(linear(x, p+n), batch, length, c.Heads, d) }
		q, k, v := heads("attention.self.query"), heads("attention.self.key"), heads("attention.self.value")
		s := graph.Einsum("blnd,bmnd->bnlm", q, k)
		s = graph.MulScalar(s, 1/math.Sqrt(float64(d)))
		a := graph.Softmax(graph.Where(mask, s, minus), -1)
		ctx := graph.Einsum("bnlm,bmnd->blnd", a, v)
		y := linear(graph.Reshape(ctx, rows, h), p+"attention.output.dense")
		x = norm(graph.Add(x, y), p+"attention.output.LayerNorm")
		y = linear(gelu(linear(x, p+"intermediate.dense")), p+"output.dense")
		x = norm(graph.Add(x, y), p+"output.LayerNorm")
	}
	x = graph.Reshape(x, batch, length, h)
	if m.head == Mean {
		keep := graph.ConvertDType(graph.BroadcastToDims(graph.Reshape(real, batch, length, 1), batch, length, h), dtypes.Float32)
		sum := graph.ReduceSum(graph.Mul(x, keep), 1)
		n := graph.ConvertDType(graph.Reshape(lens, batch, 1), dtypes.Float32)
		return graph.Div(sum, graph.BroadcastToDims(n, batch, h))
	}
	cls := graph.Reshape(graph.Slice(x, graph.AxisRange(), graph.AxisRange(0, 1), graph.AxisRange()), batch, h)
	if m.head == Classifier {
		cls = linear(graph.Tanh(linear(cls, "pooler.dense")), "classifier")
	}
	return cls
}

// layerNorm over the last axis of x [rows, hidden]; 1/Sqrt rather than Rsqrt,
// which has no gradient in GoMLX.
func layerNorm(x, gain, bias *graph.Node, eps float64) *graph.Node {
	h := x.Shape().Dimensions[1]
	mean := graph.ReduceAndKeep(x, graph.ReduceMean, -1)
	d := graph.Sub(x, mean)
	variance := graph.ReduceAndKeep(graph.Mul(d, d), graph.ReduceMean, -1)
	y := graph.Div(d, graph.Sqrt(graph.AddScalar(variance, eps)))
	return graph.Add(graph.Mul(y, graph.Reshape(gain, 1, h)), graph.Reshape(bias, 1, h))
}

// gelu is x·Φ(x) with the exact error function.
func gelu(x *graph.Node) *graph.Node {
	return graph.Mul(graph.MulScalar(x, 0.5), graph.AddScalar(graph.Erf(graph.MulScalar(x, 1/math.Sqrt2)), 1))
}
