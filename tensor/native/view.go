package native

import (
	"unsafe"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
)

// value is an array with memory of its own: an input, a constant, or what a unit
// writes; contiguous in row-major order.
type value struct {
	id    int
	dtype dtypes.DType
	size  int
	kind  valueKind
	index int    // of the parameter or output
	data  []byte // of a constant
	unit  *unit  // that writes it, nil for parameters and constants
	off   int    // in the arena
	over  *value // that it may replace in place: see inPlace
}

type valueKind uint8

const (
	temporary valueKind = iota
	parameter
	constant
	output
)

func (v *value) bytes() int { return v.size * elemSize(v.dtype) }

// view is an array laid over a value; offset and strides in elements.
type view struct {
	v             *value
	off           int
	dims, strides []int
}

func contiguous(dims []int) []int {
	s := make([]int, len(dims))
	n := 1
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = n
		n *= dims[i]
	}
	return s
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func wholeView(v *value, dims []int) view { return view{v, 0, dims, contiguous(dims)} }

// collapse drops axes of size 1 and joins neighbours that are one run.
func collapse(dims, strides []int) (d, s []int) {
	for i := range dims {
		if dims[i] == 1 {
			continue
		}
		if k := len(d) - 1; k >= 0 && s[k] == strides[i]*dims[i] {
			d[k] *= dims[i]
			s[k] = strides[i]
			continue
		}
		d, s = append(d, dims[i]), append(s, strides[i])
	}
	return
}

// single joins axes into one, which must be possible; the stride of no axis is 0.
func single(dims, strides []int) (stride int, ok bool) {
	d, s := collapse(dims, strides)
	switch len(d) {
	case 0:
		return 0, true
	case 1:
		return s[0], true
	}
	return 0, false
}

// identity tells whether the view is its whole value in order.
func (w view) identity() bool {
	if w.off != 0 || product(w.dims) != w.v.size {
		return false
	}
	s, ok := single(w.dims, w.strides)
	return ok && (s == 1 || w.v.size == 1)
}

func (w view) reshape(dims []int) (view, bool) {
	out := view{w.v, w.off, dims, make([]int, len(dims))}
	if product(dims) == 0 {
		return out, true
	}
	d, s := collapse(w.dims, w.strides)
	// Split the joined axes, last first.
	i := len(d) - 1
	left, stride := 1, 0
	if i >= 0 {
		left, stride = d[i], s[i]
	}
	for j := len(dims) - 1; j >= 0; j-- {
		if dims[j] == 1 {
			continue
		}
		if left == 1 {
			i--
			left, stride = d[i], s[i]
		}
		if left%dims[j] != 0 {
			return view{}, false
		}
		out.strides[j] = stride
		stride *= dims[j]
		left /= dims[j]
	}
	return out, true
}

func (w view) transpose(perm []int) view {
	out := view{w.v, w.off, make([]int, len(perm)), make([]int, len(perm))}
	for i, p := range perm {
		out.dims[i], out.strides[i] = w.dims[p], w.strides[p]
	}
	return out
}

func (w view) broadcast(dims, axes []int) view {
	out := view{w.v, w.off, dims, make([]int, len(dims))}
	for i, a := range axes {
		if w.dims[i] == dims[a] && dims[a] != 1 {
			out.strides[a] = w.strides[i]
		}
	}
	return out
}

// to broadcasts an operand of an elementwise op: a scalar, or the same rank with
// axes of size 1.
func (w view) to(dims []int) view {
	axes := make([]int, len(w.dims))
	for i := range axes {
		axes[i] = i
	}
	return w.broadcast(dims, axes)
}

func (w view) slice(starts, strides, dims []int) view {
	out := view{w.v, w.off, dims, make([]int, len(dims))}
	for i := range dims {
		out.off += starts[i] * w.strides[i]
		out.strides[i] = w.strides[i] * strides[i]
	}
	return out
}

// rowView is a view seen as rows × width elements: element (r, c) lies at
// off + Σ index·stride over the row's mixed-radix digits + c·col.
type rowView struct {
	v             *value
	off           int
	dims, strides []int
	col           int
}

// rowsOf splits the view into rows of width w, when the last axes are one run.
func (w view) rowsOf(rows, width int) (rowView, bool) {
	d, s := collapse(w.dims, w.strides)
	out := rowView{v: w.v, off: w.off}
	if width > 1 {
		k := len(d) - 1
		if k < 0 || d[k]%width != 0 {
			return out, false
		}
		out.col = s[k]
		if d[k] == width {
			d, s = d[:k], s[:k]
		} else {
			d[k] /= width
			s[k] *= width
		}
	}
	if product(d) != rows {
		return out, false
	}
	out.dims, out.strides = d, s
	return out, true
}

// at is the offset of row r.
func (w *rowView) at(r int) int {
	o := w.off
	for i := len(w.dims) - 1; i > 0; i-- {
		q := r / w.dims[i]
		o += (r - q*w.dims[i]) * w.strides[i]
		r = q
	}
	if len(w.dims) > 0 {
		o += r * w.strides[0]
	}
	return o
}

// uniform tells whether all elements are one.
func (w *rowView) uniform() bool { return w.col == 0 && w.fixedRows() }

// fixedRows tells whether all rows are the same.
func (w *rowView) fixedRows() bool {
	for _, s := range w.strides {
		if s != 0 {
			return false
		}
	}
	return true
}

// dense tells whether rows follow each other without gaps.
func (w *rowView) dense(width int) bool {
	if width > 1 && w.col != 1 {
		return false
	}
	return len(w.dims) == 0 || len(w.dims) == 1 && w.strides[0] == width
}

// copyStrided copies an array; strides in elements of size bytes.
func copyStrided(dst unsafe.Pointer, dstStrides []int, src unsafe.Pointer, srcStrides, dims []int, size int) {
	if len(dims) == 0 {
		copyRun(dst, 1, src, 1, 1, size)
		return
	}
	n := dims[0]
	if len(dims) == 1 {
		copyRun(dst, dstStrides[0], src, srcStrides[0], n, size)
		return
	}
	for i := range n {
		copyStrided(unsafe.Add(dst, i*dstStrides[0]*size), dstStrides[1:], unsafe.Add(src, i*srcStrides[0]*size), srcStrides[1:], dims[1:], size)
	}
}

func copyRun(dst unsafe.Pointer, ds int, src unsafe.Pointer, ss, n, size int) {
	if n == 0 {
		return
	}
	if ds == 1 && ss == 1 {
		copy(unsafe.Slice((*byte)(dst), n*size), unsafe.Slice((*byte)(src), n*size))
		return
	}
	switch size {
	case 1:
		copyElems[uint8](dst, ds, src, ss, n)
	case 2:
		copyElems[uint16](dst, ds, src, ss, n)
	case 4:
		copyElems[uint32](dst, ds, src, ss, n)
	default:
		copyElems[uint64](dst, ds, src, ss, n)
	}
}

func copyElems[T any](dst unsafe.Pointer, ds int, src unsafe.Pointer, ss, n int) {
	size := int(unsafe.Sizeof(*new(T)))
	ds, ss = ds*size, ss*size
	for i := range n {
		*(*T)(unsafe.Add(dst, i*ds)) = *(*T)(unsafe.Add(src, i*ss))
	}
}

// collapse2 is collapse for two arrays of the same dims at once.
func collapse2(dims, a, b []int) (d, sa, sb []int) {
	for i := range dims {
		if dims[i] == 1 {
			continue
		}
		if k := len(d) - 1; k >= 0 && sa[k] == a[i]*dims[i] && sb[k] == b[i]*dims[i] {
			d[k] *= dims[i]
			sa[k], sb[k] = a[i], b[i]
			continue
		}
		d, sa, sb = append(d, dims[i]), append(sa, a[i]), append(sb, b[i])
	}
	return
}
