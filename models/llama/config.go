package llama

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rag2/tensor/weights"
)

// Config fixes the network.
type Config struct {
	Arch         string // "llama", "mistral" or "qwen2"
	Layers       int
	Hidden       int
	Intermediate int
	Heads        int
	KVHeads      int
	HeadDim      int
	Vocab        int
	Context      int // tokens the model was made for
	Eps          float64
	Window       int // sliding window in tokens, 0 = none
	Tied         bool
	Bias         bool      // queries, keys and values have biases (Qwen2)
	invFreq      []float64 // rotary frequencies, HeadDim/2
}

// RopeScaling is the "llama3" rule of config.json.
type RopeScaling struct {
	Type     string  `json:"rope_type"`
	OldType  string  `json:"type"`
	Factor   float64 `json:"factor"`
	Low      float64 `json:"low_freq_factor"`
	High     float64 `json:"high_freq_factor"`
	Original float64 `json:"original_max_position_embeddings"`
	Theta    float64 `json:"rope_theta"`
}

// frequencies are theta^(-2i/d), slowed for long wavelengths by Llama-3's rule.
func frequencies(dim int, theta float64, s *RopeScaling) []float64 {
	f := make([]float64, dim/2)
	for i := range f {
		f[i] = math.Pow(theta, -2*float64(i)/float64(dim))
		if s == nil {
			continue
		}
		wave := 2 * math.Pi / f[i]
		switch low, high := s.Original/s.Low, s.Original/s.High; {
		case wave > low:
			f[i] /= s.Factor
		case wave >= high:
			smooth := (s.Original/wave - s.Low) / (s.High - s.Low)
			f[i] = (1-smooth)*f[i]/s.Factor + smooth*f[i]
		}
	}
	return f
}

// validate lists everything that is wrong with a configuration.
func (c Config) validate() error {
	var bad []string
	for name, v := range map[string]int{"layers": c.Layers, "hidden size": c.Hidden, "intermediate size": c.Intermediate, "heads": c.Heads,
		"key-value heads": c.KVHeads, "head dimension": c.HeadDim, "vocabulary": c.Vocab, "context length": c.Context} {
		if v < 1 || v > 1<<24 {
			bad = append(bad, fmt.Sprintf("%s is %d", name, v))
		}
	}
	if c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		bad = append(bad, fmt.Sprintf("%d heads are not a multiple of %d key-value heads", c.Heads, c.KVHeads))
	}
	if c.HeadDim%2 != 0 {
		bad = append(bad, fmt.Sprintf("head dimension %d is odd", c.HeadDim))
	}
	if c.Eps <= 0 {
		bad = append(bad, fmt.Sprintf("norm epsilon is %g", c.Eps))
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return fmt.Errorf("llama configuration: %s", strings.Join(bad, "; "))
	}
	return nil
}

// readHF reads dir/config.json.
func readHF(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("llama: %w", err)
	}
	var j struct {
		ModelType string       `json:"model_type"`
		Layers    int          `json:"num_hidden_layers"`
		Hidden    int          `json:"hidden_size"`
		Inter     int          `json:"intermediate_size"`
		Heads     int          `json:"num_attention_heads"`
		KV        int          `json:"num_key_value_heads"`
		HeadDim   int          `json:"head_dim"`
		Vocab     int          `json:"vocab_size"`
		Context   int          `json:"max_position_embeddings"`
		Eps       float64      `json:"rms_norm_eps"`
		Theta     float64      `json:"rope_theta"`
		Scaling   *RopeScaling `json:"rope_scaling"`
		Rope      *RopeScaling `json:"rope_parameters"` // transformers ≥ 5
		Window    int          `json:"sliding_window"`
		UseWindow bool         `json:"use_sliding_window"` // Qwen2
		Tied      bool         `json:"tie_word_embeddings"`
		Act       string       `json:"hidden_act"`
		Bias      bool         `json:"attention_bias"`
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return Config{}, fmt.Errorf("llama: %s: %w", path, err)
	}
	if !slices.Contains([]string{"llama", "mistral", "qwen2"}, j.ModelType) {
		return Config{}, fmt.Errorf("llama: %s: model_type %q; llama, mistral and qwen2 are read", path, j.ModelType)
	}
	if j.UseWindow {
		return Config{}, fmt.Errorf("llama: %s: use_sliding_window is not supported for %s", path, j.ModelType)
	}
	if j.Act != "" && j.Act != "silu" || j.Bias {
		return Config{}, fmt.Errorf("llama: %s: hidden_act %q, attention_bias %v are not supported", path, j.Act, j.Bias)
	}
	s := j.Scaling
	if j.Rope != nil {
		s = j.Rope
		if s.Theta > 0 {
			j.Theta = s.Theta
		}
	}
	if j.Theta == 0 {
		j.Theta = 10000
	}
	if s != nil {
		if s.Type == "" {
			s.Type = s.OldType
		}
		switch s.Type {
		case "llama3":
		case "default", "":
			s = nil
		default:
			return Config{}, fmt.Errorf("llama: %s: rope scaling %q; llama3 is read", path, s.Type)
		}
	}
	if j.KV == 0 {
		j.KV = j.Heads
	}
	if j.HeadDim == 0 && j.Heads > 0 {
		j.HeadDim = j.Hidden / j.Heads
	}
	c := Config{Arch: j.ModelType, Layers: j.Layers, Hidden: j.Hidden, Intermediate: j.Inter, Heads: j.Heads, KVHeads: j.KV, HeadDim: j.HeadDim,
		Vocab: j.Vocab, Context: j.Context, Eps: j.Eps, Tied: j.Tied, Bias: j.ModelType == "qwen2"}
	if j.ModelType == "mistral" {
		c.Window = j.Window
	}
	if err := c.validate(); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	c.invFreq = frequencies(c.HeadDim, j.Theta, s)
	return c, nil
}

// readGGUF reads the metadata keys "<arch>.*".
func readGGUF(w *weights.File) (Config, error) {
	m := w.Meta()
	arch, _ := m["general.architecture"].(string)
	if !slices.Contains([]string{"llama", "mistral", "qwen2"}, arch) {
		return Config{}, fmt.Errorf("%s: GGUF architecture %q; llama (which includes Mistral), mistral and qwen2 are read", w.Path(), arch)
	}
	num := func(key string) float64 {
		switch v := m[arch+"."+key].(type) {
		case uint32:
			return float64(v)
		case uint64:
			return float64(v)
		case int32:
			return float64(v)
		case float32:
			return float64(v)
		}
		return 0
	}
	c := Config{Arch: arch, Layers: int(num("block_count")), Hidden: int(num("embedding_length")), Intermediate: int(num("feed_forward_length")),
		Heads: int(num("attention.head_count")), KVHeads: int(num("attention.head_count_kv")), Context: int(num("context_length")),
		Eps: num("attention.layer_norm_rms_epsilon"), Window: int(num("attention.sliding_window")), Bias: arch == "qwen2"}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim = int(num("attention.key_length")); c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	if i, err := w.Info("token_embd.weight"); err == nil && len(i.Shape) == 2 {
		c.Vocab = i.Shape[0]
	}
	c.Tied = !w.Has("output.weight")
	if err := c.validate(); err != nil {
		return c, fmt.Errorf("%s: %w", w.Path(), err)
	}
	theta := num("rope.freq_base")
	if theta == 0 {
		theta = 10000
	}
	c.invFreq = frequencies(c.HeadDim, theta, nil)
	if w.Has("rope_freqs.weight") { // Llama-3's scaling, as divisors
		f, err := w.Float32("rope_freqs.weight")
		if err != nil {
			return c, err
		}
		if len(f) != len(c.invFreq) {
			return c, fmt.Errorf("%s: rope_freqs.weight has %d values, not %d", w.Path(), len(f), len(c.invFreq))
		}
		for i := range f {
			c.invFreq[i] /= float64(f[i])
		}
	}
	return c, nil
}
