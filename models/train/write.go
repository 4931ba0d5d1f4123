package train

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"rag2/internal/atomicfile"

	"github.com/x448/float16"
)

// Tensor is a named array, row-major.
type Tensor struct {
	Name  string
	Dims  []int
	Value []float32
}

// WriteSafetensors writes tensors in their order, as F32 or F16. A value that F16 cannot
// hold is an error.
func WriteSafetensors(path string, ts []Tensor, half bool) error {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	head := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	off, size, dtype := 0, 4, "F32"
	if half {
		size, dtype = 2, "F16"
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
			if half {
				if math.Abs(float64(v)) > 65504 {
					return fmt.Errorf("tensor %s: %g does not fit float16", t.Name, v)
				}
				b = binary.LittleEndian.AppendUint16(b[:0], float16.Fromfloat32(v).Bits())
			} else {
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
