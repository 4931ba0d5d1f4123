package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"rag2/internal/mmapfile"
)

// ErrNotOurs reports a file that is neither safetensors nor GGUF.
var ErrNotOurs = errors.New("neither a safetensors nor a GGUF file")

// ErrNoTensor reports a tensor that the file does not hold.
var ErrNoTensor = errors.New("no such tensor")

// ErrCorrupt reports a file whose contents contradict each other or its size.
type ErrCorrupt struct {
	File, Section string
	Offset        int64 // bytes from the start of the file
	Reason        string
}

func (e *ErrCorrupt) Error() string {
	return fmt.Sprintf("%s: %s at byte %d: %s; the file is damaged or cut, fetch it again", e.File, e.Section, e.Offset, e.Reason)
}

// DType is a storage type: F32, F16, BF16, F64, I8, I32, I64, U8, BOOL, or a GGUF block type.
type DType string

const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	F64  DType = "F64"
	I8   DType = "I8"
	I16  DType = "I16"
	I32  DType = "I32"
	I64  DType = "I64"
	U8   DType = "U8"
	Bool DType = "BOOL"
	Q4_0 DType = "Q4_0"
	Q4_1 DType = "Q4_1"
	Q5_0 DType = "Q5_0"
	Q5_1 DType = "Q5_1"
	Q8_0 DType = "Q8_0"
	Q4_K DType = "Q4_K"
	Q5_K DType = "Q5_K"
	Q6_K DType = "Q6_K"
)

// block is the number of elements and bytes of a type's smallest unit.
var block = map[DType]struct{ n, bytes int }{
	F32: {1, 4}, F16: {1, 2}, BF16: {1, 2}, F64: {1, 8}, I8: {1, 1}, I16: {1, 2}, I32: {1, 4}, I64: {1, 8}, U8: {1, 1}, Bool: {1, 1},
	Q4_0: {32, 18}, Q4_1: {32, 20}, Q5_0: {32, 22}, Q5_1: {32, 24}, Q8_0: {32, 34},
	Q4_K: {256, 144}, Q5_K: {256, 176}, Q6_K: {256, 210},
}

// Info describes a tensor.
type Info struct {
	DType DType
	Shape []int // row-major: the last dimension varies fastest
	Bytes int
	data  []byte
}

// Len is the number of elements.
func (i Info) Len() int {
	n := 1
	for _, d := range i.Shape {
		n *= d
	}
	return n
}

// Integer tells whether the type holds whole numbers, which are no weights.
func (d DType) Integer() bool {
	switch d {
	case I8, I16, I32, I64, U8, Bool:
		return true
	}
	return false
}

// File is an open set of weights.
type File struct {
	refs    atomic.Int32 // handles beside the first
	maps    []*mmapfile.File
	tensors map[string]Info
	names   []string
	meta    map[string]any
	format  string
	path    string
	low     map[string]lowRank // what an adapter adds
}

// Open opens path: a .safetensors or .gguf file, told apart by their first
// bytes, or a directory that holds model.safetensors, an index of shards, or
// one .gguf file.
func Open(path string) (*File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	if st.IsDir() {
		for _, n := range []string{"model.safetensors", "model.safetensors.index.json"} {
			if p := filepath.Join(path, n); exists(p) {
				return OpenSafetensors(p)
			}
		}
		g, _ := filepath.Glob(filepath.Join(path, "*.gguf"))
		if len(g) == 1 {
			return OpenGGUF(g[0])
		}
		if len(g) > 1 {
			return nil, fmt.Errorf("open weights: %s holds %d .gguf files; name one of them", path, len(g))
		}
		return nil, fmt.Errorf("open weights: %s holds no model.safetensors, model.safetensors.index.json or .gguf file: %w", path, os.ErrNotExist)
	}
	if strings.HasSuffix(path, ".index.json") {
		return OpenSafetensors(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	var head [9]byte
	n, _ := f.Read(head[:])
	f.Close()
	switch {
	case n >= 4 && string(head[:4]) == "GGUF":
		return OpenGGUF(path)
	case n == 9 && head[8] == '{':
		return OpenSafetensors(path)
	}
	return nil, fmt.Errorf("%s: %w (first bytes %q)", path, ErrNotOurs, head[:n])
}

func exists(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode().IsRegular()
}

// Names lists the tensors, sorted.
func (f *File) Names() []string { return f.names }

// Format is "safetensors" or "gguf".
func (f *File) Format() string { return f.format }

// Path is what was opened.
func (f *File) Path() string { return f.path }

// Has reports whether the tensor exists.
func (f *File) Has(name string) bool { _, ok := f.tensors[name]; return ok }

// Info describes a tensor.
func (f *File) Info(name string) (Info, error) {
	i, ok := f.tensors[name]
	if !ok {
		return Info{}, fmt.Errorf("%s: tensor %q: %w", f.path, name, ErrNoTensor)
	}
	return i, nil
}

// Changed tells whether an adapter adds to the tensor, so that Raw is not what Float32 gives.
func (f *File) Changed(name string) bool { _, ok := f.low[name]; return ok }

// Raw is the tensor's mapped bytes.
func (f *File) Raw(name string) ([]byte, error) {
	i, err := f.Info(name)
	return i.data, err
}

// Meta is the GGUF metadata, or the __metadata__ strings of safetensors.
func (f *File) Meta() map[string]any { return f.meta }

// ErrInteger reports a tensor of whole numbers where weights are needed.
var ErrInteger = errors.New("weights of a floating-point or block type are needed")

// Float32 returns the tensor's elements as float32 in a slice of its own.
func (f *File) Float32(name string) ([]float32, error) {
	i, err := f.Info(name)
	if err != nil {
		return nil, err
	}
	out := make([]float32, i.Len())
	if err := f.ReadFloat32(name, out); err != nil {
		return nil, err
	}
	return out, nil
}

// piece is the number of elements after which the pages read are let go: whole blocks of
// every type.
const piece = 1 << 20

// ReadFloat32 writes the tensor's elements to dst, which has room for exactly them.
func (f *File) ReadFloat32(name string, dst []float32) error {
	i, err := f.Info(name)
	if err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("%s: tensor %q: %w", f.path, name, err) }
	if i.DType.Integer() {
		return fmt.Errorf("%s: tensor %q holds %s: %w", f.path, name, i.DType, ErrInteger)
	}
	if i.Len() != len(dst) {
		return fail(fmt.Errorf("%d elements, room for %d", i.Len(), len(dst)))
	}
	per := block[i.DType]
	for at := 0; at < len(dst); at += piece {
		end := min(len(dst), at+piece)
		data := i.data[at/per.n*per.bytes : end/per.n*per.bytes]
		if err := mmapfile.Guard(func() error { return Dequantize(i.DType, data, dst[at:end]) }); err != nil {
			return fail(err)
		}
		f.release(data)
	}
	if l, ok := f.low[name]; ok {
		if err := l.addTo(dst); err != nil {
			return fail(err)
		}
	}
	return nil
}

// release lets go of the pages of a tensor that was read: a model must not be in
// memory twice while it is loaded.
func (f *File) release(data []byte) {
	if len(data) == 0 {
		return
	}
	at := uintptr(unsafe.Pointer(&data[0]))
	for _, m := range f.maps {
		b := m.Bytes()
		if len(b) == 0 {
			continue
		}
		if start := uintptr(unsafe.Pointer(&b[0])); at >= start && at < start+uintptr(len(b)) {
			m.Advise(int(at-start), len(data), mmapfile.DontNeed)
		}
	}
}

// Release lets go of the memory that a tensor's pages take after they were read; they are read
// again from the file when they are needed again.
func (f *File) Release(name string) {
	if i, ok := f.tensors[name]; ok {
		f.release(i.data)
	}
}

// Share is another handle on the file, to be closed like the first.
func (f *File) Share() *File {
	f.refs.Add(1)
	return f
}

// Close unmaps the files when no handle is left.
func (f *File) Close() error {
	if f.refs.Add(-1) >= 0 {
		return nil
	}
	var err error
	for _, m := range f.maps {
		err = errors.Join(err, m.Close())
	}
	return err
}

func (f *File) finish() {
	for n := range f.tensors {
		f.names = append(f.names, n)
	}
	slices.Sort(f.names)
}

// byteSize is the storage of shape in dtype. The last dimension must hold whole blocks.
func byteSize(dt DType, shape []int) (int, error) {
	b, ok := block[dt]
	if !ok {
		return 0, fmt.Errorf("storage type %s is not read", dt)
	}
	n := 1
	for _, d := range shape {
		if d < 0 || (d > 0 && n > math.MaxInt/16/d) {
			return 0, fmt.Errorf("shape %v is out of range", shape)
		}
		n *= d
	}
	if b.n > 1 && (len(shape) == 0 || shape[len(shape)-1]%b.n != 0) {
		return 0, fmt.Errorf("shape %v: rows of %s hold whole blocks of %d", shape, dt, b.n)
	}
	return n / b.n * b.bytes, nil
}

func f16(b []byte) float32 { return halfToFloat(binary.LittleEndian.Uint16(b)) }

// halfToFloat converts an IEEE 754 binary16 bit pattern.
func halfToFloat(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp := uint32(h>>10) & 31
	man := uint32(h) & 1023
	switch exp {
	case 0:
		f := float32(man) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}
