package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// checkpoint collects the tensors of a model.
type checkpoint struct {
	names  []string
	header map[string]any
	end    int
}

type entry struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

func (c *checkpoint) add(name string, shape ...int) {
	n := 4
	for _, d := range shape {
		n *= d
	}
	c.header[name] = entry{"F32", shape, [2]int{c.end, c.end + n}}
	c.names = append(c.names, name)
	c.end += n
}

// bertBase is the encoder of BERT-base.
func bertBase(c *checkpoint) map[string]any {
	const hidden, layers, heads, vocab, positions = 768, 12, 12, 30522, 512
	norm := func(p string) { c.add(p+".weight", hidden); c.add(p+".bias", hidden) }
	linear := func(p string, out, in int) { c.add(p+".weight", out, in); c.add(p+".bias", out) }
	c.add("embeddings.word_embeddings.weight", vocab, hidden)
	c.add("embeddings.position_embeddings.weight", positions, hidden)
	c.add("embeddings.token_type_embeddings.weight", 2, hidden)
	norm("embeddings.LayerNorm")
	for i := range layers {
		p := fmt.Sprintf("encoder.layer.%d.", i)
		for _, n := range []string{"query", "key", "value"} {
			linear(p+"attention.self."+n, hidden, hidden)
		}
		linear(p+"attention.output.dense", hidden, hidden)
		norm(p + "attention.output.LayerNorm")
		linear(p+"intermediate.dense", 4*hidden, hidden)
		linear(p+"output.dense", hidden, 4*hidden)
		norm(p + "output.LayerNorm")
	}
	return map[string]any{"model_type": "bert", "architectures": []string{"BertModel"}, "hidden_size": hidden, "num_hidden_layers": layers,
		"num_attention_heads": heads, "intermediate_size": 4 * hidden, "vocab_size": vocab, "max_position_embeddings": positions, "type_vocab_size": 2,
		"layer_norm_eps": 1e-12, "hidden_act": "gelu", "position_embedding_type": "absolute", "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
}

// t5Large is T5-large (v1.1) with one decoder layer, which the encoder does not need.
func t5Large(c *checkpoint) map[string]any {
	const hidden, ff, layers, heads, vocab = 1024, 2816, 24, 16, 32128
	c.add("shared.weight", vocab, hidden)
	c.add("lm_head.weight", vocab, hidden)
	attention := func(p string) {
		for _, n := range []string{"q", "k", "v", "o"} {
			c.add(p+"."+n+".weight", hidden, hidden)
		}
	}
	stack := func(name string, layers int, cross bool) {
		for i := range layers {
			p := fmt.Sprintf("%s.block.%d.layer.", name, i)
			c.add(p+"0.layer_norm.weight", hidden)
			attention(p + "0.SelfAttention")
			if i == 0 {
				c.add(p+"0.SelfAttention.relative_attention_bias.weight", 32, heads)
			}
			last := "1"
			if cross {
				c.add(p+"1.layer_norm.weight", hidden)
				attention(p + "1.EncDecAttention")
				last = "2"
			}
			c.add(p+last+".layer_norm.weight", hidden)
			c.add(p+last+".DenseReluDense.wi_0.weight", ff, hidden)
			c.add(p+last+".DenseReluDense.wi_1.weight", ff, hidden)
			c.add(p+last+".DenseReluDense.wo.weight", hidden, ff)
		}
		c.add(name+".final_layer_norm.weight", hidden)
	}
	stack("encoder", layers, false)
	stack("decoder", 1, true)
	return map[string]any{"model_type": "t5", "architectures": []string{"T5ForConditionalGeneration"}, "d_model": hidden, "d_kv": hidden / heads, "d_ff": ff, "num_layers": layers,
		"num_decoder_layers": 1, "num_heads": heads, "vocab_size": vocab, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false, "dropout_rate": 0,
		"relative_attention_num_buckets": 32, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "layer_norm_epsilon": 1e-6}
}

// writeModel writes config.json and model.safetensors of a model with random weights.
func writeModel(dir, arch string) error {
	c := checkpoint{header: map[string]any{"__metadata__": map[string]string{"format": "pt"}}}
	var settings map[string]any
	switch arch {
	case "bert-base":
		settings = bertBase(&c)
	case "t5-large":
		settings = t5Large(&c)
	default:
		return fmt.Errorf("architecture %q; bert-base or t5-large", arch)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644); err != nil {
		return err
	}
	h, err := json.Marshal(c.header)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := binary.Write(w, binary.LittleEndian, uint64(len(h))); err != nil {
		return err
	}
	if _, err := w.Write(h); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 1))
	var word [4]byte
	for _, name := range c.names {
		t := c.header[name].(entry)
		gain := filepath.Ext(name) == ".weight" && len(t.Shape) == 1
		for range (t.Offsets[1] - t.Offsets[0]) / 4 {
			v := float32(r.NormFloat64() * 0.02)
			if gain {
				v = 1
			}
			binary.LittleEndian.PutUint32(word[:], math.Float32bits(v))
			if _, err := w.Write(word[:]); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
