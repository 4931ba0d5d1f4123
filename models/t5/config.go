package t5

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/pkg/core/graph"
)

// Config fixes the network.
type Config struct {
	Hidden      int // d_model
	HeadDim     int // d_kv; heads × HeadDim may differ from Hidden
	FF          int // d_ff
	Layers      int // of the encoder
	DecLayers   int // of the decoder
	Heads       int
	Vocab       int
	Buckets     int // of relative positions
	MaxDistance int // tokens; farther ones share the last bucket
	Eps         float64
	Gated       bool   // two input matrices, gate and up
	Act         string // "gelu" (tanh approximation) or "relu"
	Tied        bool   // the head is the word embeddings
	Scaled      bool   // the head's input is multiplied by Hidden^-0.5
	Start       int32  // decoder start token (pad)
	EOS         int32
	Pad         int32

	// Drop is put where the reference drops out activations; nil = nowhere. For training.
	Drop func(x *graph.Node) *graph.Node
	// Linear multiplies x [n, in] with a matrix [out, in] of the network; nil = the product
	// alone. Low-rank training adds to it.
	Linear func(x, w *graph.Node) *graph.Node
}

// drop is Drop, or nothing.
func (c Config) drop(x *graph.Node) *graph.Node {
	if c.Drop == nil {
		return x
	}
	return c.Drop(x)
}

// validate lists everything that is wrong with a configuration.
func (c Config) validate() error {
	var bad []string
	for _, x := range []struct {
		name   string
		v, max int
	}{{"d_model", c.Hidden, 1 << 16}, {"d_kv", c.HeadDim, 1 << 12}, {"d_ff", c.FF, 1 << 18}, {"num_layers", c.Layers, 256}, {"num_decoder_layers", c.DecLayers, 256},
		{"num_heads", c.Heads, 1 << 10}, {"vocab_size", c.Vocab, 1 << 22}, {"relative_attention_max_distance", c.MaxDistance, 1 << 20}} {
		if x.v < 1 || x.v > x.max {
			bad = append(bad, fmt.Sprintf("%s is %d, 1 … %d are possible", x.name, x.v, x.max))
		}
	}
	if c.Buckets < 4 || c.Buckets > 1<<12 || c.Buckets%2 != 0 {
		bad = append(bad, fmt.Sprintf("relative_attention_num_buckets is %d", c.Buckets))
	} else if c.MaxDistance <= c.Buckets/2 {
		bad = append(bad, fmt.Sprintf("relative_attention_max_distance %d is not above half of %d buckets", c.MaxDistance, c.Buckets))
	}
	if !(c.Eps > 0 && c.Eps < 1) {
		bad = append(bad, fmt.Sprintf("layer_norm_epsilon is %g", c.Eps))
	}
	if c.Act != "gelu" && c.Act != "relu" {
		bad = append(bad, fmt.Sprintf("activation %q; gated-gelu and relu are read", c.Act))
	}
	for _, x := range []struct {
		name string
		id   int32
	}{{"decoder_start_token_id", c.Start}, {"eos_token_id", c.EOS}, {"pad_token_id", c.Pad}} {
		if x.id < 0 || int(x.id) >= c.Vocab {
			bad = append(bad, fmt.Sprintf("%s is %d, outside the vocabulary of %d", x.name, x.id, c.Vocab))
		}
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return fmt.Errorf("t5 configuration: %s", strings.Join(bad, "; "))
	}
	return nil
}

// readHF reads dir/config.json; hasHead says whether the checkpoint has a head of its
// own.
func readHF(dir string, hasHead bool) (Config, error) {
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("t5: %w", err)
	}
	return parseHF(path, b, hasHead)
}

func parseHF(path string, b []byte, hasHead bool) (Config, error) {
	var j struct {
		ModelType string          `json:"model_type"`
		Hidden    int             `json:"d_model"`
		HeadDim   int             `json:"d_kv"`
		FF        int             `json:"d_ff"`
		Layers    int             `json:"num_layers"`
		DecLayers *int            `json:"num_decoder_layers"`
		Heads     int             `json:"num_heads"`
		Vocab     int             `json:"vocab_size"`
		Buckets   int             `json:"relative_attention_num_buckets"`
		Distance  int             `json:"relative_attention_max_distance"`
		Eps       float64         `json:"layer_norm_epsilon"`
		Proj      string          `json:"feed_forward_proj"`
		Tied      *bool           `json:"tie_word_embeddings"`
		Scaled    *bool           `json:"scale_decoder_outputs"` // transformers ≥ 5, where Tied says nothing of the head
		Start     *int32          `json:"decoder_start_token_id"`
		EOS       json.RawMessage `json:"eos_token_id"`
		Pad       *int32          `json:"pad_token_id"`
	}
	j.Buckets, j.Distance, j.Eps, j.Proj = 32, 128, 1e-6, "relu"
	if err := json.Unmarshal(b, &j); err != nil {
		return Config{}, fmt.Errorf("t5: %s: %w", path, err)
	}
	if j.ModelType != "t5" {
		return Config{}, fmt.Errorf("t5: %s: model_type %q is not t5", path, j.ModelType)
	}
	c := Config{Hidden: j.Hidden, HeadDim: j.HeadDim, FF: j.FF, Layers: j.Layers, DecLayers: j.Layers, Heads: j.Heads, Vocab: j.Vocab,
		Buckets: j.Buckets, MaxDistance: j.Distance, Eps: j.Eps, EOS: 1}
	if j.DecLayers != nil {
		c.DecLayers = *j.DecLayers
	}
	c.Act, c.Gated = strings.CutPrefix(j.Proj, "gated-")
	tied := j.Tied == nil || *j.Tied
	c.Scaled, c.Tied = tied, tied
	if j.Scaled != nil {
		c.Scaled, c.Tied = *j.Scaled, false
	}
	if !hasHead {
		c.Tied = true
	}
	if j.Pad != nil {
		c.Pad = *j.Pad
	}
	c.Start = c.Pad
	if j.Start != nil {
		c.Start = *j.Start
	}
	if len(j.EOS) > 0 && string(j.EOS) != "null" {
		var many []int32
		if json.Unmarshal(j.EOS, &c.EOS) != nil {
			if err := json.Unmarshal(j.EOS, &many); err != nil || len(many) == 0 {
				return c, fmt.Errorf("t5: %s: eos_token_id is no number", path)
			}
			c.EOS = many[0]
		}
	}
	if err := c.validate(); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// readGGUF reads the metadata keys "t5.*".
func readGGUF(w *weights.File) (Config, error) {
	m := w.Meta()
	if arch, _ := m["general.architecture"].(string); arch != "t5" {
		return Config{}, fmt.Errorf("t5: %s: GGUF architecture %q is not t5", w.Path(), arch)
	}
	num := func(key string) float64 {
		switch v := m[key].(type) {
		case uint32:
			return float64(v)
		case int32:
			return float64(v)
		case uint64:
			return float64(v)
		case float32:
			return float64(v)
		}
		return 0
	}
	n := func(key string) int { return int(num("t5." + key)) }
	c := Config{Hidden: n("embedding_length"), HeadDim: n("attention.key_length"), FF: n("feed_forward_length"), Layers: n("block_count"), DecLayers: n("decoder_block_count"),
		Heads: n("attention.head_count"), Buckets: n("attention.relative_buckets_count"), MaxDistance: 128, Eps: num("t5.attention.layer_norm_rms_epsilon"),
		Start: int32(n("decoder_start_token_id")), EOS: int32(num("tokenizer.ggml.eos_token_id")), Pad: int32(num("tokenizer.ggml.padding_token_id")), Act: "relu"}
	if c.DecLayers == 0 {
		c.DecLayers = c.Layers
	}
	if c.Eps == 0 {
		c.Eps = num("t5.attention.layer_norm_epsilon")
	}
	if w.Has("enc.blk.0.ffn_gate.weight") {
		c.Gated, c.Act = true, "gelu"
	}
	c.Tied = !w.Has("output.weight")
	c.Scaled = c.Tied // version 1.0; the format does not say it
	if i, err := w.Info("token_embd.weight"); err == nil && len(i.Shape) == 2 {
		c.Vocab = i.Shape[0]
	}
	if err := c.validate(); err != nil {
		return c, fmt.Errorf("%s: %w", w.Path(), err)
	}
	return c, nil
}

// Param is one parameter of the network.
type Param struct {
	Name string // ours, in graphs
	Dims []int
	HF   string // tensor names of the two file formats
	GGUF string
}

// Params lists the parameters in graph order: shared, encoder, decoder, head.
func (c Config) Params() []Param {
	var out []Param
	add := func(name, hf, gguf string, dims ...int) {
		out = append(out, Param{name, dims, hf + ".weight", gguf + ".weight"})
	}
	d, inner := c.Hidden, c.Heads*c.HeadDim
	attention := func(name, hf, gguf string) {
		for _, x := range []struct{ n, g string }{{"q", "q"}, {"k", "k"}, {"v", "v"}} {
			add(name+"."+x.n, hf+"."+x.n, gguf+"_"+x.g, inner, d)
		}
		add(name+".o", hf+".o", gguf+"_o", d, inner)
	}
	ff := func(name, hf, gguf string) {
		if c.Gated {
			add(name+".gate", hf+".wi_0", gguf+"_gate", c.FF, d)
			add(name+".up", hf+".wi_1", gguf+"_up", c.FF, d)
		} else {
			add(name+".up", hf+".wi", gguf+"_up", c.FF, d)
		}
		add(name+".down", hf+".wo", gguf+"_down", d, c.FF)
	}
	add("shared", "shared", "token_embd", c.Vocab, d)
	for i := range c.Layers {
		p, h, g := fmt.Sprintf("enc%d", i), fmt.Sprintf("encoder.block.%d.layer.", i), fmt.Sprintf("enc.blk.%d.", i)
		add(p+".attn_norm", h+"0.layer_norm", g+"attn_norm", d)
		attention(p+".attn", h+"0.SelfAttention", g+"attn")
		if i == 0 {
			add("enc.bias", h+"0.SelfAttention.relative_attention_bias", g+"attn_rel_b", c.Buckets, c.Heads)
		}
		add(p+".ff_norm", h+"1.layer_norm", g+"ffn_norm", d)
		ff(p+".ff", h+"1.DenseReluDense", g+"ffn")
	}
	add("enc.norm", "encoder.final_layer_norm", "enc.output_norm", d)
	for i := range c.DecLayers {
		p, h, g := fmt.Sprintf("dec%d", i), fmt.Sprintf("decoder.block.%d.layer.", i), fmt.Sprintf("dec.blk.%d.", i)
		add(p+".attn_norm", h+"0.layer_norm", g+"attn_norm", d)
		attention(p+".attn", h+"0.SelfAttention", g+"attn")
		if i == 0 {
			add("dec.bias", h+"0.SelfAttention.relative_attention_bias", g+"attn_rel_b", c.Buckets, c.Heads)
		}
		add(p+".cross_norm", h+"1.layer_norm", g+"cross_attn_norm", d)
		attention(p+".cross", h+"1.EncDecAttention", g+"cross_attn")
		add(p+".ff_norm", h+"2.layer_norm", g+"ffn_norm", d)
		ff(p+".ff", h+"2.DenseReluDense", g+"ffn")
	}
	add("dec.norm", "decoder.final_layer_norm", "dec.output_norm", d)
	if !c.Tied {
		add("head", "lm_head", "output", c.Vocab, d)
	}
	return out
}

// bucketOf is the bucket of the relative position (key minus query), computed in
// float32 as the reference does, since whole steps of the logarithm are on the edge.
func (c Config) bucketOf(relative int, bidirectional bool) int32 {
	n, base, dist := c.Buckets, 0, -relative
	if bidirectional {
		n /= 2
		if relative > 0 {
			base = n
		}
		dist = max(relative, -relative)
	}
	dist = max(dist, 0)
	exact := n / 2
	if dist < exact {
		return int32(base + dist)
	}
	l := float32(math.Log(float64(float32(dist)/float32(exact)))) / float32(math.Log(float64(c.MaxDistance)/float64(exact))) * float32(n-exact)
	return int32(base + min(exact+int(l), n-1))
}

// ReadConfig reads dir/config.json; hasHead says whether the checkpoint has a head of its
// own.
func ReadConfig(dir string, hasHead bool) (Config, error) { return readHF(dir, hasHead) }
