package weights

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rag2/internal/mmapfile"
)

// Files of a LoRA adapter in the PEFT library's format.
const (
	AdapterConfig  = "adapter_config.json"
	AdapterWeights = "adapter_model.safetensors"
)

// peftPrefix begins every tensor's name in AdapterWeights.
const peftPrefix = "base_model.model."

// lowRank is an addition scale·b·a to a tensor.
type lowRank struct {
	a, b  Info
	scale float64
}

// AdapterBase tells whether dir holds a LoRA adapter, and the model that it changes: a
// repository's name or a directory.
func AdapterBase(dir string) (base string, ok bool, err error) {
	c, err := readAdapter(dir)
	if os.IsNotExist(err) {
		return "", false, nil
	}
	return c.Base, err == nil, err
}

type adapterConfig struct {
	Type  string  `json:"peft_type"`
	Base  string  `json:"base_model_name_or_path"`
	Rank  int     `json:"r"`
	Alpha float64 `json:"lora_alpha"`
	// What this program does not compute.
	Dora      bool           `json:"use_dora"`
	RSLora    bool           `json:"use_rslora"`
	Bias      string         `json:"bias"`
	FanInFan  bool           `json:"fan_in_fan_out"`
	RankOf    map[string]any `json:"rank_pattern"`
	AlphaOf   map[string]any `json:"alpha_pattern"`
	Replicate any            `json:"layer_replication"`
}

func readAdapter(dir string) (adapterConfig, error) {
	var c adapterConfig
	path := filepath.Join(dir, AdapterConfig)
	b, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case c.Type != "LORA":
		return c, fmt.Errorf("%s: an adapter of type %q; LORA is read", path, c.Type)
	case c.Dora || c.RSLora || c.FanInFan || c.Replicate != nil || len(c.RankOf) > 0 || len(c.AlphaOf) > 0 || c.Bias != "" && c.Bias != "none":
		return c, fmt.Errorf("%s: plain LoRA with one rank and alpha is read, without DoRA, biases, patterns and replication", path)
	case c.Rank < 1 || c.Base == "":
		return c, fmt.Errorf("%s: r is %d and base_model_name_or_path %q", path, c.Rank, c.Base)
	}
	return c, nil
}

// OpenAdapted opens the weights of base with the LoRA adapter in dir added: a tensor
// with a pair lora_A, lora_B reads as W + (alpha/r)·B·A, and tensors that the adapter
// holds whole replace or join those of base. Such a sum has no raw form: Raw and Info
// describe base's tensor.
func OpenAdapted(base, dir string) (*File, error) {
	c, err := readAdapter(dir)
	if err != nil {
		return nil, err
	}
	f, err := Open(base)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, AdapterWeights)
	a, err := OpenSafetensors(path)
	if err != nil {
		f.Close()
		return nil, err
	}
	f.maps = append(f.maps, a.maps...)
	if err := f.adapt(a, c); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.names, f.path = nil, dir
	f.finish()
	return f, nil
}

func (f *File) adapt(a *File, c adapterConfig) error {
	f.low = map[string]lowRank{}
	for _, n := range a.names {
		stem, ok := strings.CutPrefix(n, peftPrefix)
		if !ok {
			return fmt.Errorf("tensor %q: names begin with %s", n, peftPrefix)
		}
		if strings.HasSuffix(n, ".lora_B.weight") {
			continue // with its lora_A
		}
		stem, isLow := strings.CutSuffix(stem, ".lora_A.weight")
		if !isLow {
			f.tensors[f.inBase(stem)] = a.tensors[n]
			continue
		}
		name := f.inBase(stem + ".weight")
		w, err := f.Info(name)
		if err != nil {
			return err
		}
		l := lowRank{a: a.tensors[n], b: a.tensors[peftPrefix+stem+".lora_B.weight"], scale: c.Alpha / float64(c.Rank)}
		if len(w.Shape) != 2 || !slices.Equal(l.a.Shape, []int{c.Rank, w.Shape[1]}) || !slices.Equal(l.b.Shape, []int{w.Shape[0], c.Rank}) {
			return fmt.Errorf("tensor %q: A %v and B %v of rank %d do not fit %v of the base model", name, l.a.Shape, l.b.Shape, c.Rank, w.Shape)
		}
		f.low[name] = l
	}
	return nil
}

// inBase is a tensor's name in the base checkpoint, which may lack the name of the
// network in front ("bert.").
func (f *File) inBase(name string) string {
	if _, short, ok := strings.Cut(name, "."); ok && !f.Has(name) && f.Has(short) {
		return short
	}
	return name
}

// addTo adds the product.
func (l lowRank) addTo(w []float32) error {
	rank, in := l.a.Shape[0], l.a.Shape[1]
	a, b := make([]float32, l.a.Len()), make([]float32, l.b.Len())
	if err := mmapfile.Guard(func() error {
		if err := Dequantize(l.a.DType, l.a.data, a); err != nil {
			return err
		}
		return Dequantize(l.b.DType, l.b.data, b)
	}); err != nil {
		return err
	}
	for i := range l.b.Shape[0] {
		row := w[i*in : (i+1)*in]
		for k := range rank {
			s := float32(l.scale) * b[i*rank+k]
			for j, x := range a[k*in : (k+1)*in] {
				row[j] += s * x
			}
		}
	}
	return nil
}
