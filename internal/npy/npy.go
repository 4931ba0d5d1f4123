// Package npy reads and writes NumPy .npy arrays of one or two dimensions in C
// order (format versions 1.0 to 3.0). Reading maps the file; float16 and
// float64 rows are converted to float32 as they are read.
package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unsafe"

	"rag2/internal/atomicfile"
	"rag2/internal/mmapfile"

	"github.com/x448/float16"
)

// ErrFormat reports bytes that are not an .npy array this package reads.
var ErrFormat = errors.New("not a readable .npy array")

const magic = "\x93NUMPY"

// Array is a mapped .npy file. Any number of goroutines may read it.
type Array struct {
	Shape []int
	DType string // "<f4", "<f2", "<f8", "<i4", "<i8", "|u1", "|i1"
	f     *mmapfile.File
	data  []byte
	item  int
	cols  int
}

var itemSizes = map[string]int{"<f4": 4, "<f2": 2, "<f8": 8, "<i4": 4, "<i8": 8, "|u1": 1, "|i1": 1}

// Open maps path and checks that header and size agree.
func Open(path string) (*Array, error) {
	f, err := mmapfile.Open(path)
	if err != nil {
		return nil, err
	}
	a, err := parse(f.Bytes())
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a.f = f
	return a, nil
}

var (
	reDescr   = regexp.MustCompile(`'descr'\s*:\s*'([^']*)'`)
	reFortran = regexp.MustCompile(`'fortran_order'\s*:\s*(True|False)`)
	reShape   = regexp.MustCompile(`'shape'\s*:\s*\(([^)]*)\)`)
)

func parse(b []byte) (*Array, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
	if len(b) < 10 || string(b[:6]) != magic {
		return nil, bad("no .npy signature at byte 0")
	}
	var hlen, off int
	switch b[6] {
	case 1:
		hlen, off = int(binary.LittleEndian.Uint16(b[8:])), 10
	case 2, 3:
		if len(b) < 12 {
			return nil, bad("header cut at byte %d", len(b))
		}
		n := binary.LittleEndian.Uint32(b[8:])
		if n > 1<<20 {
			return nil, bad("header of %d bytes at byte 8", n)
		}
		hlen, off = int(n), 12
	default:
		return nil, bad("format version %d.%d at byte 6; 1.0 to 3.0 are read", b[6], b[7])
	}
	if off+hlen > len(b) {
		return nil, bad("header of %d bytes, but the file ends at byte %d", hlen, len(b))
	}
	h := b[off : off+hlen]
	m := reDescr.FindSubmatch(h)
	if m == nil {
		return nil, bad("header has no 'descr' at byte %d", off)
	}
	a := &Array{DType: string(m[1])}
	if len(a.DType) > 0 && a.DType[0] == '=' {
		a.DType = "<" + a.DType[1:]
	}
	var ok bool
	if a.item, ok = itemSizes[a.DType]; !ok {
		return nil, bad("dtype %q; little-endian f2, f4, f8, i4, i8 and u1, i1 are read", a.DType)
	}
	if m = reFortran.FindSubmatch(h); m == nil {
		return nil, bad("header has no 'fortran_order'")
	} else if string(m[1]) == "True" {
		return nil, bad("Fortran order; save it with numpy.ascontiguousarray")
	}
	if m = reShape.FindSubmatch(h); m == nil {
		return nil, bad("header has no 'shape'")
	}
	n := 1
	for _, s := range strings.Split(string(m[1]), ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		d, err := strconv.Atoi(s)
		if err != nil || d < 0 {
			return nil, bad("shape (%s)", m[1])
		}
		if d > 0 && n > math.MaxInt/16/d {
			return nil, bad("shape (%s) overflows", m[1])
		}
		n *= d
		a.Shape = append(a.Shape, d)
	}
	if len(a.Shape) < 1 || len(a.Shape) > 2 {
		return nil, bad("%d dimensions; 1 or 2 are read", len(a.Shape))
	}
	a.cols = 1
	if len(a.Shape) == 2 {
		a.cols = a.Shape[1]
	}
	data := b[off+hlen:]
	if want := n * a.item; len(data) < want {
		return nil, bad("shape (%s) of %s needs %d data bytes, the file has %d", m[1], a.DType, want, len(data))
	} else if len(data) > want {
		return nil, bad("%d bytes after the data of shape (%s)", len(data)-want, m[1])
	}
	a.data = data
	return a, nil
}

// Rows is the first dimension.
func (a *Array) Rows() int { return a.Shape[0] }

// Cols is the second dimension, 1 for a vector.
func (a *Array) Cols() int { return a.cols }

// Data is the mapped array without its header.
func (a *Array) Data() []byte { return a.data }

// DataOffset is the position of the first element in the file.
func (a *Array) DataOffset() int { return a.f.Len() - len(a.data) }

// Float32s is the whole array in place when it is float32 and aligned.
func (a *Array) Float32s() ([]float32, bool) {
	if a.DType != "<f4" || len(a.data) == 0 || uintptr(unsafe.Pointer(&a.data[0]))%4 != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&a.data[0])), len(a.data)/4), true
}

// Row32 returns row i as float32. For float32 arrays it is a view into the
// mapping, which must not be written; otherwise dst is used (grown when it is
// shorter than Cols). It panics when i is out of range, as a slice would.
func (a *Array) Row32(i int, dst []float32) []float32 {
	n := a.cols
	if f, ok := a.Float32s(); ok {
		return f[i*n : (i+1)*n : (i+1)*n]
	}
	if cap(dst) < n {
		dst = make([]float32, n)
	}
	dst = dst[:n]
	b := a.data[i*n*a.item : (i+1)*n*a.item]
	for j := range dst {
		switch a.DType {
		case "<f4":
			dst[j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:]))
		case "<f2":
			dst[j] = float16.Frombits(binary.LittleEndian.Uint16(b[2*j:])).Float32()
		case "<f8":
			dst[j] = float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*j:])))
		case "<i4":
			dst[j] = float32(int32(binary.LittleEndian.Uint32(b[4*j:])))
		case "<i8":
			dst[j] = float32(int64(binary.LittleEndian.Uint64(b[8*j:])))
		case "|u1":
			dst[j] = float32(b[j])
		case "|i1":
			dst[j] = float32(int8(b[j]))
		}
	}
	return dst
}

// Close unmaps the array.
func (a *Array) Close() error {
	a.data = nil
	return a.f.Close()
}

// headerLen is fixed so that the row count can be written when it is known.
const headerLen = 128

func header(dtype string, rows, cols int) []byte {
	h := make([]byte, headerLen)
	copy(h, magic+"\x01\x00")
	binary.LittleEndian.PutUint16(h[8:], headerLen-10)
	d := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }", dtype, rows, cols)
	copy(h[10:], d+strings.Repeat(" ", headerLen-11-len(d))+"\n")
	return h
}

// Writer streams rows of a 2-D array to a file that appears at Commit.
type Writer struct {
	f    *atomicfile.File
	buf  bytes.Buffer
	half bool
	cols int
	rows int
}

// NewWriter begins path; dtype is "<f4" or "<f2".
func NewWriter(path string, cols int, dtype string) (*Writer, error) {
	if dtype != "<f4" && dtype != "<f2" {
		return nil, fmt.Errorf("npy writer: dtype %q; <f4 or <f2", dtype)
	}
	if cols < 1 {
		return nil, fmt.Errorf("npy writer: %d columns", cols)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{f: f, half: dtype == "<f2", cols: cols}
	w.buf.Write(header(dtype, 0, cols))
	return w, nil
}

// WriteRow appends a row. A value that float16 cannot hold is an error.
func (w *Writer) WriteRow(row []float32) error {
	if len(row) != w.cols {
		return fmt.Errorf("npy writer: row %d has %d columns, not %d", w.rows, len(row), w.cols)
	}
	b := w.buf.AvailableBuffer()
	for j, v := range row {
		if !w.half {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
			continue
		}
		h := float16.Fromfloat32(v)
		if !h.IsFinite() {
			return fmt.Errorf("npy writer: row %d column %d: %g does not fit float16", w.rows, j, v)
		}
		b = binary.LittleEndian.AppendUint16(b, h.Bits())
	}
	w.buf.Write(b)
	w.rows++
	if w.buf.Len() >= 1<<20 {
		return w.flush()
	}
	return nil
}

func (w *Writer) flush() error {
	_, err := w.f.Write(w.buf.Bytes())
	w.buf.Reset()
	return err
}

// Rows is the number of rows written so far.
func (w *Writer) Rows() int { return w.rows }

// Commit writes the row count and gives the file its name.
func (w *Writer) Commit() error {
	defer w.f.Abort()
	if err := w.flush(); err != nil {
		return err
	}
	dtype := "<f4"
	if w.half {
		dtype = "<f2"
	}
	if _, err := w.f.WriteAt(header(dtype, w.rows, w.cols), 0); err != nil {
		return err
	}
	return w.f.Commit()
}

// Abort drops the file.
func (w *Writer) Abort() { w.f.Abort() }

// Advise tells the kernel how the array will be read.
func (a *Array) Advise(how mmapfile.Advice) { a.f.Advise(0, a.f.Len(), how) }

// Resident is how many of the file's bytes lie in memory.
func (a *Array) Resident() (int64, error) { return a.f.Resident(0, a.f.Len()) }

// AdviseAt tells the kernel how n bytes of the data from off on will be read.
func (a *Array) AdviseAt(off, n int, how mmapfile.Advice) { a.f.Advise(a.DataOffset()+off, n, how) }
