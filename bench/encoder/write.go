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

// writeModel writes config.json and model.safetensors of a BERT with random weights.
func writeModel(dir string, hidden, layers, heads int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	const vocab, positions = 30522, 512
	config, err := json.Marshal(map[string]any{"model_type": "bert", "architectures": []string{"BertModel"}, "hidden_size": hidden, "num_hidden_layers": layers,
		"num_attention_heads": heads, "intermediate_size": 4 * hidden, "vocab_size": vocab, "max_position_embeddings": positions, "type_vocab_size": 2,
		"layer_norm_eps": 1e-12, "hidden_act": "gelu", "position_embedding_type": "absolute", "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644); err != nil {
		return err
	}
	type tensor struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var names []string
	end := 0
	add := func(name string, shape ...int) {
		n := 4
		for _, d := range shape {
			n *= d
		}
		header[name] = tensor{"F32", shape, [2]int{end, end + n}}
		names = append(names, name)
		end += n
	}
	norm := func(p string) { add(p+".weight", hidden); add(p+".bias", hidden) }
	linear := func(p string, out, in int) { add(p+".weight", out, in); add(p+".bias", out) }
	add("embeddings.word_embeddings.weight", vocab, hidden)
	add("embeddings.position_embeddings.weight", positions, hidden)
	add("embeddings.token_type_embeddings.weight", 2, hidden)
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
	h, err := json.Marshal(header)
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
	for _, name := range names {
		t := header[name].(tensor)
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
