package llama

import (
	"fmt"
	"slices"

	"rag2/models/exec"
	"rag2/tensor"
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// Model is a loaded network.
type Model struct {
	Config  Config
	backend backends.Backend
	names   []string
	shapes  []shapes.Shape
	bufs    []backends.Buffer
	cache   *exec.Cache[bucket]
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

// Open loads a Hugging Face directory or a GGUF file onto the engine, in float32.
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
	if !e.Backend().HasSharedBuffers() {
		return nil, fmt.Errorf("llama: engine %s has no memory shared with the host, which the key-value cache needs", e.Name())
	}
	m := &Model{Config: c, backend: e.Backend(), cache: exec.NewCache[bucket](64)}
	add := func(ours, theirs string, dims ...int) error {
		info, err := w.Info(theirs)
		if err != nil {
			return fmt.Errorf("llama: %w", err)
		}
		if !slices.Equal(info.Shape, dims) {
			return fmt.Errorf("llama: %s: tensor %q has shape %v, the configuration asks for %v", w.Path(), theirs, info.Shape, dims)
		}
		s := shapes.Make(dtypes.Float32, dims...)
		keep := func(b backends.Buffer) {
			m.names, m.shapes, m.bufs = append(m.names, ours), append(m.shapes, s), append(m.bufs, b)
		}
		heads := 0
		if gguf {
			switch ours[len(ours)-2:] {
			case ".q":
				heads = c.Heads
			case ".k":
				heads = c.KVHeads
			}
		}
		b, ok, err := loadBlocks(m.backend, w, theirs, s, heads, c.HeadDim)
		if err != nil {
			return fmt.Errorf("llama: %s: %w", theirs, err)
		}
		if ok {
			keep(b)
			return nil
		}
		v, err := w.Float32(theirs)
		if err != nil {
			return err
		}
		if heads > 0 {
			unpermute(v, heads, c.HeadDim, c.Hidden)
		}
		if b, err = exec.Give(m.backend, v, s); err != nil {
			return fmt.Errorf("llama: upload %s: %w", theirs, err)
		}
		keep(b)
		return nil
	}
	embed, norm, head := "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
	if gguf {
		embed, norm, head = "token_embd.weight", "output_norm.weight", "output.weight"
	}
	err = add("embed", embed, c.Vocab, c.Hidden)
	for i := 0; i < c.Layers && err == nil; i++ {
		for _, t := range layerTensors {
			theirs := fmt.Sprintf("model.layers.%d.%s.weight", i, t.hf)
			if gguf {
				theirs = fmt.Sprintf("blk.%d.%s.weight", i, t.gguf)
			}
			if err = add(fmt.Sprintf("layer%d.%s", i, t.ours), theirs, c.dims(t.ours)...); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = add("final_norm", norm, c.Hidden)
	}
	if err == nil && !c.Tied {
		err = add("head", head, c.Vocab, c.Hidden)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// unpermute turns GGUF's row order of query and key weights, in which a head's
// rotated pairs are neighbours, into the half-and-half order of Hugging Face.
func unpermute(w []float32, heads, dim, in int) {
	tmp := make([]float32, dim*in)
	for h := range heads {
		block := w[h*dim*in : (h+1)*dim*in]
		copy(tmp, block)
		for i := range dim / 2 {
			copy(block[i*in:(i+1)*in], tmp[2*i*in:])
			copy(block[(i+dim/2)*in:(i+dim/2+1)*in], tmp[(2*i+1)*in:(2*i+2)*in])
		}
	}
}

// Close frees weights and compiled graphs; no session may be used afterwards.
func (m *Model) Close() {
	m.cache.Close()
	for _, b := range m.bufs {
		_ = m.backend.BufferFinalize(b)
	}
	m.bufs = nil
}

// Compilations counts the graphs compiled so far.
func (m *Model) Compilations() int { return m.cache.Compilations() }
