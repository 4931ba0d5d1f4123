package llama

import (
	"fmt"
	"strings"
	"sync"

	"rag2/tensor"
	"rag2/tensor/exec"
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/backends"
)

// Model is a loaded network.
type Model struct {
	Config  Config
	backend backends.Backend
	weights *exec.Weights
	bufs    []backends.Buffer // of the weights, once a graph was built
	loading sync.Mutex
	cache   *exec.Cache[bucket]
	updates *exec.Cache[[2]int] // see kvCache.update
}

// tensorNames maps our parameter names to those of Hugging Face and GGUF files.
var layerTensors = []struct{ ours, hf, gguf string }{
	{"attn_norm", "input_layernorm", "attn_norm"},
	{"q", "self_attn.q_proj", "attn_q"},
	{"k", "self_attn.k_proj", "attn_k"},
	{"v", "self_attn.v_proj", "attn_v"},
	{"o", "self_attn.o_proj", "attn_output"},
	{"ffn_norm", "post_attention_layernorm", "ffn_norm"},
	{"gate", "mlp.gate_proj", "ffn_gate"},
	{"up", "mlp.up_proj", "ffn_up"},
	{"down", "mlp.down_proj", "ffn_down"},
}

func (c Config) dims(name string) []int {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return map[string][]int{
		"attn_norm": {c.Hidden}, "ffn_norm": {c.Hidden}, "q": {q, c.Hidden}, "k": {kv, c.Hidden}, "v": {kv, c.Hidden}, "o": {c.Hidden, q},
		"gate": {c.Intermediate, c.Hidden}, "up": {c.Intermediate, c.Hidden}, "down": {c.Hidden, c.Intermediate},
	}[name]
}

// Open opens a Hugging Face directory or a GGUF file for the engine. Weights are loaded when
// the first graph is made, see exec.Weights.
// It also returns the open weights file, whose metadata holds the vocabulary of a
// GGUF; the caller closes it.
func Open(e *tensor.Engine, path string) (*Model, *weights.File, error) {
	w, err := weights.Open(path)
	if err != nil {
		return nil, nil, err
	}
	m, err := load(e, path, w)
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	return m, w, nil
}

func load(e *tensor.Engine, path string, w *weights.File) (*Model, error) {
	gguf := w.Format() == "gguf"
	var c Config
	var err error
	if gguf {
		c, err = readGGUF(w)
	} else {
		c, err = readHF(path)
	}
	if err != nil {
		return nil, err
	}
	m := &Model{Config: c, backend: e.Backend(), cache: exec.NewCache[bucket](64), updates: exec.NewCache[[2]int](8)}
	var list []exec.Tensor
	add := func(ours, theirs string, exact bool, dims ...int) {
		t := exec.Tensor{Name: ours, File: theirs, Dims: dims, Exact: exact, Product: ours != "embed"}
		if gguf && c.Arch != "qwen2" {
			switch {
			case strings.HasSuffix(ours, ".q"):
				t.Heads = c.Heads
			case strings.HasSuffix(ours, ".k"):
				t.Heads = c.KVHeads
			}
		}
		list = append(list, t)
	}
	embed, norm, head := "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
	if gguf {
		embed, norm, head = "token_embd.weight", "output_norm.weight", "output.weight"
	}
	add("embed", embed, c.Tied, c.Vocab, c.Hidden)
	for i := range c.Layers {
		for _, t := range layerTensors {
			theirs := fmt.Sprintf("model.layers.%d.%s.weight", i, t.hf)
			if gguf {
				theirs = fmt.Sprintf("blk.%d.%s.weight", i, t.gguf)
			}
			d := c.dims(t.ours)
			add(fmt.Sprintf("layer%d.%s", i, t.ours), theirs, false, d...)
			if c.Bias && (t.ours == "q" || t.ours == "k" || t.ours == "v") {
				add(fmt.Sprintf("layer%d.%s_bias", i, t.ours), strings.TrimSuffix(theirs, "weight")+"bias", false, d[0])
			}
		}
	}
	add("final_norm", norm, false, c.Hidden)
	if !c.Tied {
		add("head", head, true, c.Vocab, c.Hidden)
	}
	if m.weights, err = exec.OpenWeights(e, w, list); err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	return m, nil
}

// load uploads the weights; GoMLX reports faults of graph building by panics.
func (m *Model) load() {
	m.loading.Lock()
	defer m.loading.Unlock()
	if m.bufs != nil {
		return
	}
	bufs, err := m.weights.Buffers(0, nil)
	if err != nil {
		panic(err)
	}
	m.bufs = bufs
}

// Bytes is what the weights take on the device.
func (m *Model) Bytes() int64 { return m.weights.Bytes() }

// Close frees weights and compiled graphs; no session may be used afterwards.
func (m *Model) Close() {
	m.cache.Close()
	m.updates.Close()
	m.weights.Close()
}

// Compilations counts the graphs compiled so far.
func (m *Model) Compilations() int { return m.cache.Compilations() }
