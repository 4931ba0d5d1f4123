package bert

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/pkg/core/graph"
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

	// Drop is put where the reference drops out activations; nil = nowhere. For training.
	Drop func(x *graph.Node) *graph.Node `json:"-"`
	// Linear multiplies x [n, in] with a matrix [out, in] of the network; nil = the product
	// alone. Low-rank training adds to it.
	Linear func(x, w *graph.Node) *graph.Node `json:"-"`
}

// ReadConfig reads dir/config.json and names every setting that is missing or
// not supported.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("bert: %w", err)
	}
	return parseConfig(path, b)
}

func parseConfig(path string, b []byte) (Config, error) {
	c := Config{Eps: 1e-12, Act: "gelu", Types: 2}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("bert: %s: %w", path, err)
	}
	var bad []string
	if c.ModelType != "bert" {
		bad = append(bad, fmt.Sprintf("model_type %q is not bert", c.ModelType))
	}
	for _, x := range []struct {
		name   string
		v, max int
	}{{"hidden_size", c.Hidden, 1 << 16}, {"num_hidden_layers", c.Layers, 256}, {"num_attention_heads", c.Heads, 1 << 10},
		{"intermediate_size", c.Intermediate, 1 << 18}, {"vocab_size", c.Vocab, 1 << 22},
		{"max_position_embeddings", c.Positions, 1 << 16}, {"type_vocab_size", c.Types, 1 << 10}} {
		if x.v < 1 || x.v > x.max {
			bad = append(bad, fmt.Sprintf("%s is %d, 1 … %d are possible", x.name, x.v, x.max))
		}
	}
	if !(c.Eps > 0 && c.Eps < 1) {
		bad = append(bad, fmt.Sprintf("layer_norm_eps is %g", c.Eps))
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

// Param is a parameter by its name in checkpoints, without the prefix "bert.".
type Param struct {
	Name string
	Dims []int
}

// Params lists the parameters of the network with a head, in graph order.
func (c Config) Params(head Head, labels int) (out []Param) {
	names, dims := c.weightNames(head, labels)
	for i := range names {
		out = append(out, Param{names[i], dims[i]})
	}
	return out
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
