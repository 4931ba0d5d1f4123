package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"rag2/internal/mmapfile"
)

// ggmlTypes maps the type numbers of ggml to storage types.
var ggmlTypes = map[uint32]DType{
	0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 6: Q5_0, 7: Q5_1, 8: Q8_0, 12: Q4_K, 13: Q5_K, 14: Q6_K,
	24: I8, 25: I16, 26: I32, 27: I64, 28: F64, 30: BF16,
}

// OpenGGUF opens a GGUF file of version 2 or 3 (little-endian).
//
// Metadata values are Go values: uint8…float64, bool, string, []string for
// string arrays, []T for arrays of numbers of type T, []any for arrays of arrays.
func OpenGGUF(path string) (*File, error) {
	m, err := mmapfile.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{maps: []*mmapfile.File{m}, tensors: map[string]Info{}, meta: map[string]any{}, format: "gguf", path: path}
	if err := mmapfile.Guard(func() error { return f.parseGGUF(m.Bytes()) }); err != nil {
		m.Close()
		return nil, err
	}
	f.finish()
	return f, nil
}

// cursor reads little-endian values and remembers the first failure.
type cursor struct {
	path    string
	b       []byte
	off     int
	section string
	err     error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = &ErrCorrupt{c.path, c.section, int64(c.off), fmt.Sprintf(format, args...)}
	}
}

func (c *cursor) take(n int) []byte {
	if c.err != nil {
		return nil
	}
	if n < 0 || n > len(c.b)-c.off {
		c.fail("needs %d bytes, the file ends at %d", n, len(c.b))
		return nil
	}
	c.off += n
	return c.b[c.off-n : c.off]
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a u64 that counts things of at least size bytes each.
func (c *cursor) count(size int) int {
	n := c.u64()
	if c.err == nil && n > uint64((len(c.b)-c.off)/size) {
		c.fail("count of %d does not fit the file", n)
		return 0
	}
	return int(n)
}

func (c *cursor) str() string { return string(c.take(c.count(1))) }

func numbers[T any](c *cursor, n, size int, get func([]byte) T) any {
	if n > (len(c.b)-c.off)/size {
		c.fail("array of %d does not fit the file", n)
		return nil
	}
	b := c.take(n * size)
	out := make([]T, 0, n)
	for i := 0; i+size <= len(b); i += size {
		out = append(out, get(b[i:]))
	}
	return out
}

var scalarSize = [...]int{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// value reads one metadata value of GGUF type t.
func (c *cursor) value(t uint32, depth int) any {
	switch t {
	case 8:
		return c.str()
	case 9:
		et := c.u32()
		if depth > 4 {
			c.fail("arrays nested deeper than 4")
			return nil
		}
		n := c.count(1)
		if c.err != nil {
			return nil
		}
		switch {
		case et == 8:
			out := make([]string, 0, min(n, 1<<16))
			for range n {
				out = append(out, c.str())
				if c.err != nil {
					return nil
				}
			}
			return out
		case et == 9:
			out := []any{}
			for range n {
				out = append(out, c.value(et, depth+1))
				if c.err != nil {
					return nil
				}
			}
			return out
		}
		return c.array(et, n)
	}
	a := c.array(t, 1)
	switch v := a.(type) {
	case []uint8:
		return first(v)
	case []int8:
		return first(v)
	case []uint16:
		return first(v)
	case []int16:
		return first(v)
	case []uint32:
		return first(v)
	case []int32:
		return first(v)
	case []float32:
		return first(v)
	case []bool:
		return first(v)
	case []uint64:
		return first(v)
	case []int64:
		return first(v)
	case []float64:
		return first(v)
	}
	return nil
}

func first[T any](v []T) any {
	if len(v) == 0 {
		return nil
	}
	return v[0]
}

func (c *cursor) array(t uint32, n int) any {
	le := binary.LittleEndian
	if int(t) >= len(scalarSize) || scalarSize[t] == 0 {
		c.fail("metadata type %d is unknown", t)
		return nil
	}
	s := scalarSize[t]
	switch t {
	case 0:
		return numbers(c, n, s, func(b []byte) uint8 { return b[0] })
	case 1:
		return numbers(c, n, s, func(b []byte) int8 { return int8(b[0]) })
	case 2:
		return numbers(c, n, s, le.Uint16)
	case 3:
		return numbers(c, n, s, func(b []byte) int16 { return int16(le.Uint16(b)) })
	case 4:
		return numbers(c, n, s, le.Uint32)
	case 5:
		return numbers(c, n, s, func(b []byte) int32 { return int32(le.Uint32(b)) })
	case 6:
		return numbers(c, n, s, func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) })
	case 7:
		return numbers(c, n, s, func(b []byte) bool { return b[0] != 0 })
	case 10:
		return numbers(c, n, s, le.Uint64)
	case 11:
		return numbers(c, n, s, func(b []byte) int64 { return int64(le.Uint64(b)) })
	default:
		return numbers(c, n, s, func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) })
	}
}

func (f *File) parseGGUF(b []byte) error {
	c := &cursor{path: f.path, b: b, section: "header"}
	if string(c.take(4)) != "GGUF" {
		return fmt.Errorf("%s: %w", f.path, ErrNotOurs)
	}
	if v := c.u32(); c.err == nil && v != 2 && v != 3 {
		return fmt.Errorf("%s: GGUF version %d; versions 2 and 3 are read", f.path, v)
	}
	tensors := c.count(24)
	kvs := c.count(12)
	c.section = "metadata"
	for range kvs {
		key := c.str()
		v := c.value(c.u32(), 0)
		if c.err != nil {
			return c.err
		}
		f.meta[key] = v
	}
	align := 32
	if a, ok := f.meta["general.alignment"].(uint32); ok {
		if a == 0 || a > 1<<20 || a&(a-1) != 0 {
			return &ErrCorrupt{f.path, "metadata", int64(c.off), fmt.Sprintf("alignment %d", a)}
		}
		align = int(a)
	}
	c.section = "tensor table"
	type entry struct {
		name string
		off  uint64
	}
	var entries []entry
	for range tensors {
		name := c.str()
		nd := c.u32()
		if c.err == nil && nd > 4 {
			c.fail("tensor %q has %d dimensions", name, nd)
		}
		var shape []int
		for range nd {
			d := c.u64()
			if d > math.MaxInt32 {
				c.fail("tensor %q has a dimension of %d", name, d)
			}
			shape = append(shape, int(d))
			if c.err != nil {
				return c.err
			}
		}
		slices.Reverse(shape) // ggml lists the fastest dimension first
		t := c.u32()
		off := c.u64()
		if c.err != nil {
			return c.err
		}
		dt, ok := ggmlTypes[t]
		if !ok {
			return fmt.Errorf("%s: tensor %q has ggml type %d, which is not read; quantise the model to Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, F16, BF16 or F32", f.path, name, t)
		}
		size, err := byteSize(dt, shape)
		if err != nil {
			c.fail("tensor %q: %v", name, err)
			return c.err
		}
		if f.Has(name) {
			c.fail("tensor %q occurs twice", name)
			return c.err
		}
		f.tensors[name] = Info{DType: dt, Shape: shape, Bytes: size}
		entries = append(entries, entry{name, off})
	}
	if c.err != nil {
		return c.err
	}
	start := (c.off + align - 1) / align * align
	slices.SortFunc(entries, func(a, b entry) int {
		if a.off < b.off {
			return -1
		}
		return 1
	})
	end := uint64(0)
	for _, e := range entries {
		i := f.tensors[e.name]
		if e.off%uint64(align) != 0 || e.off < end {
			return &ErrCorrupt{f.path, "tensor table", int64(c.off), fmt.Sprintf("tensor %q starts at data byte %d, which is unaligned or inside its neighbour", e.name, e.off)}
		}
		end = e.off + uint64(i.Bytes)
		if start > len(b) || end < e.off || end > uint64(len(b)-start) {
			return &ErrCorrupt{f.path, "data", int64(len(b)), fmt.Sprintf("tensor %q ends at data byte %d, the file holds %d", e.name, end, max(0, len(b)-start))}
		}
		i.data = b[start+int(e.off) : start+int(end) : start+int(end)]
		f.tensors[e.name] = i
	}
	return nil
}
