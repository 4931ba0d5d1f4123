package train

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"

	"rag2/internal/atomicfile"

	"github.com/x448/float16"
)

// Tensor is a named array, row-major.
type Tensor struct {
	Name  string
	Dims  []int
	Value []float32
}

// Types of stored weights.
const (
	F32  = "F32"
	F16  = "F16"
	BF16 = "BF16"
)

// WriteSafetensors writes tensors in their order, as F32, F16 or BF16, with meta beside
// the format's own entry. A value that F16 cannot hold is an error.
func WriteSafetensors(path string, ts []Tensor, dtype string, meta map[string]string) error {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	all := map[string]string{"format": "pt"}
	maps.Copy(all, meta)
	head := map[string]any{"__metadata__": all}
	off, size := 0, 2
	if dtype == F32 {
		size = 4
	}
	for _, t := range ts {
		n := len(t.Value) * size
		head[t.Name] = entry{dtype, t.Dims, [2]int{off, off + n}}
		off += n
	}
	h, err := json.Marshal(head)
	if err != nil {
		return err
	}
	for len(h)%8 != 0 {
		h = append(h, ' ')
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := bufio.NewWriterSize(f, 1<<16)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(h)))
	_, _ = w.Write(append(b, h...)) // a bufio.Writer keeps its error for Flush
	for _, t := range ts {
		for _, v := range t.Value {
			switch dtype {
			case F16:
				if math.Abs(float64(v)) > 65504 {
					return fmt.Errorf("tensor %s: %g does not fit float16", t.Name, v)
				}
				b = binary.LittleEndian.AppendUint16(b[:0], float16.Fromfloat32(v).Bits())
			case BF16:
				b = binary.LittleEndian.AppendUint16(b[:0], uint16(roundBF16(v)>>16))
			default:
				b = binary.LittleEndian.AppendUint32(b[:0], math.Float32bits(v))
			}
			_, _ = w.Write(b)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Commit()
}

// editConfig copies a JSON object with some keys set.
func editConfig(from, to string, set map[string]any) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	j := map[string]any{}
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for k, v := range set {
		j[k] = v
	}
	if b, err = json.MarshalIndent(j, "", "  "); err != nil {
		return err
	}
	return atomicfile.WriteFile(to, append(b, '\n'))
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(to, b)
}

// roundBF16 rounds the bits of a number to its upper half, ties to even.
func roundBF16(v float32) uint32 {
	b := math.Float32bits(v)
	if v != v {
		return b | 1<<22
	}
	return b + 0x7fff + b>>16&1
}

// tokenizerFiles are copied beside trained weights.
var tokenizerFiles = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "spiece.model", "added_tokens.json"}

// writeModelDir makes a model's directory: config.json with some keys set, and the
// tokenizer's files.
func writeModelDir(from, to string, set map[string]any) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := editConfig(filepath.Join(from, "config.json"), filepath.Join(to, "config.json"), set); err != nil {
		return err
	}
	for _, f := range tokenizerFiles {
		if err := copyFile(filepath.Join(from, f), filepath.Join(to, f)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
