package native

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
)

// cast sees bytes as a slice of T.
func cast[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(*new(T))))
}

// indices reads an integer array.
func indexReader(d dtypes.DType) func(b []byte, i int) int {
	switch d {
	case dtypes.Int8:
		return readIndex[int8]
	case dtypes.Int16:
		return readIndex[int16]
	case dtypes.Int32:
		return readIndex[int32]
	case dtypes.Int64:
		return readIndex[int64]
	case dtypes.Uint8:
		return readIndex[uint8]
	case dtypes.Uint16:
		return readIndex[uint16]
	case dtypes.Uint32:
		return readIndex[uint32]
	default: // one above the positive range is out of range everywhere
		return func(b []byte, i int) int { return int(min(cast[uint64](b)[i], 1<<62)) }
	}
}

func readIndex[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](b []byte, i int) int {
	return int(cast[T](b)[i])
}

// numeric calls the instance of f for a number dtype.
func numericReduce(op backends.OpType, d dtypes.DType) (func(out []byte, x []byte, outer, n, inner int), error) {
	var f func(out []byte, x []byte, outer, n, inner int)
	switch d {
	case dtypes.Bool:
		and := op == backends.OpTypeReduceLogicalAnd
		f = reduceLoop(and, func(a, b bool) bool {
			if and {
				return a && b
			}
			return a || b
		})
	case dtypes.Int8:
		f = reduceNumber[int8](op)
	case dtypes.Int16:
		f = reduceNumber[int16](op)
	case dtypes.Int32:
		f = reduceNumber[int32](op)
	case dtypes.Int64:
		f = reduceNumber[int64](op)
	case dtypes.Uint8:
		f = reduceNumber[uint8](op)
	case dtypes.Uint16:
		f = reduceNumber[uint16](op)
	case dtypes.Uint32:
		f = reduceNumber[uint32](op)
	case dtypes.Uint64:
		f = reduceNumber[uint64](op)
	case dtypes.Float32:
		f = reduceNumber[float32](op)
	case dtypes.Float64:
		f = reduceNumber[float64](op)
	}
	if f == nil {
		return nil, fmt.Errorf("native: op %s on %s is not supported", op, d)
	}
	return f, nil
}

// extremes are the neutral elements of min and max.
func extremes[T number]() (lo, hi T) {
	var zero T
	one := zero + 1
	if half := one / (one + one); half != 0 { // a float
		big := one
		for next := big * 2; next > big; next *= 2 {
			big = next
		}
		return -big, big // ±Inf
	}
	if zero-1 > 0 { // unsigned
		return 0, zero - 1
	}
	hi = one
	for hi*2+1 > hi {
		hi = hi*2 + 1
	}
	return -hi - 1, hi
}

func reduceNumber[T number](op backends.OpType) func(out []byte, x []byte, outer, n, inner int) {
	lo, hi := extremes[T]()
	switch op {
	case backends.OpTypeReduceSum:
		return reduceLoop(0, func(a, b T) T { return a + b })
	case backends.OpTypeReduceProduct:
		return reduceLoop(1, func(a, b T) T { return a * b })
	case backends.OpTypeReduceMax:
		return reduceLoop(lo, func(a, b T) T { return max(a, b) })
	case backends.OpTypeReduceMin:
		return reduceLoop(hi, func(a, b T) T { return min(a, b) })
	}
	return nil
}

func reduceLoop[T any](neutral T, f func(a, b T) T) func(out []byte, x []byte, outer, n, inner int) {
	return func(out []byte, x []byte, outer, n, inner int) {
		o, s := cast[T](out), cast[T](x)
		for i := range outer {
			acc := o[i*inner : (i+1)*inner]
			for j := range acc {
				acc[j] = neutral
			}
			for k := range n {
				row := s[(i*n+k)*inner : (i*n+k+1)*inner]
				for j, v := range row {
					acc[j] = f(acc[j], v)
				}
			}
		}
	}
}

// argFunc computes ArgMinMax over [outer, n, inner].
func argFunc(d, out dtypes.DType, isMin bool, outer, n, inner int) (genericFunc, error) {
	var f func(x []byte, at, step int) int
	switch d {
	case dtypes.Int8:
		f = argOf[int8](isMin, n)
	case dtypes.Int16:
		f = argOf[int16](isMin, n)
	case dtypes.Int32:
		f = argOf[int32](isMin, n)
	case dtypes.Int64:
		f = argOf[int64](isMin, n)
	case dtypes.Uint8:
		f = argOf[uint8](isMin, n)
	case dtypes.Uint16:
		f = argOf[uint16](isMin, n)
	case dtypes.Uint32:
		f = argOf[uint32](isMin, n)
	case dtypes.Uint64:
		f = argOf[uint64](isMin, n)
	case dtypes.Float32:
		f = argOf[float32](isMin, n)
	case dtypes.Float64:
		f = argOf[float64](isMin, n)
	default:
		return nil, fmt.Errorf("native: op %s on %s is not supported", backends.OpTypeArgMinMax, d)
	}
	conv := convertFunc(dtypes.Int64, out)
	if out == dtypes.Int64 {
		conv = func(o []byte, in [][]byte) { copy(o, in[0]) }
	}
	return func(o []byte, in [][]byte) {
		ix := make([]int64, outer*inner)
		for i := range outer {
			for j := range inner {
				ix[i*inner+j] = int64(f(in[0], i*n*inner+j, inner))
			}
		}
		if len(ix) > 0 {
			conv(o, [][]byte{unsafe.Slice((*byte)(unsafe.Pointer(&ix[0])), 8*len(ix))})
		}
	}, nil
}

func argOf[T number](isMin bool, n int) func(x []byte, at, step int) int {
	return func(x []byte, at, step int) int {
		s := cast[T](x)
		best, arg := s[at], 0
		for k := 0; k < n && best == best; k++ {
			if v := s[at+k*step]; v != v || (isMin && v < best) || (!isMin && v > best) {
				best, arg = v, k
			}
		}
		return arg
	}
}

// gatherFunc gathers slices of x [dims] into out [outDims].
func gatherFunc(a gatherAttr, dims, ixDims, outDims []int, ixType dtypes.DType, size int) genericFunc {
	read := indexReader(ixType)
	xs, is, os := contiguous(dims), contiguous(ixDims), contiguous(outDims)
	// The slice that one index vector moves.
	var sd, ss, sos []int
	k := 0
	for axis, n := range a.sizes {
		if slices.Contains(a.collapsed, axis) {
			continue
		}
		sd, ss, sos = append(sd, n), append(ss, xs[axis]), append(sos, os[a.offset[k]])
		k++
	}
	sd, sos, ss = collapse2(sd, sos, ss)
	var bd, bi, bo []int // batch: dims, strides in the indices and the output
	next := 0
	for axis, n := range outDims {
		if slices.Contains(a.offset, axis) {
			continue
		}
		if next == a.vector {
			next++
		}
		bd, bi, bo = append(bd, n), append(bi, is[next]), append(bo, os[axis])
		next++
	}
	bd, bo, bi = collapse2(bd, bo, bi)
	count := product(bd)
	return func(out []byte, in [][]byte) {
		if len(out) == 0 {
			return
		}
		dst, src := unsafe.Pointer(&out[0]), unsafe.Pointer(&in[0][0])
		for i := range count {
			at, to := 0, 0
			for r, x := len(bd)-1, i; r >= 0; r-- {
				at += x % bd[r] * bi[r]
				to += x % bd[r] * bo[r]
				x /= bd[r]
			}
			from := 0
			for j, axis := range a.starts {
				v := read(in[1], at+j*is[a.vector])
				from += max(0, min(v, dims[axis]-a.sizes[axis])) * xs[axis]
			}
			copyStrided(unsafe.Add(dst, to*size), sos, unsafe.Add(src, from*size), ss, sd, size)
		}
	}
}

// scatterFunc combines updates into a copy of the operand.
func scatterFunc(op backends.OpType, a scatterAttr, dims, ixDims, upDims []int, d, ixType dtypes.DType) (genericFunc, error) {
	var combine func(out []byte, at int, up []byte, from int)
	switch d {
	case dtypes.Int8:
		combine = combineOf[int8](op)
	case dtypes.Int16:
		combine = combineOf[int16](op)
	case dtypes.Int32:
		combine = combineOf[int32](op)
	case dtypes.Int64:
		combine = combineOf[int64](op)
	case dtypes.Uint8:
		combine = combineOf[uint8](op)
	case dtypes.Uint16:
		combine = combineOf[uint16](op)
	case dtypes.Uint32:
		combine = combineOf[uint32](op)
	case dtypes.Uint64:
		combine = combineOf[uint64](op)
	case dtypes.Float32:
		combine = combineOf[float32](op)
	case dtypes.Float64:
		combine = combineOf[float64](op)
	default:
		return nil, fmt.Errorf("native: op %s on %s is not supported", op, d)
	}
	read := indexReader(ixType)
	xs, is := contiguous(dims), contiguous(ixDims)
	var windowAxes []int // operand axis of each window axis of the updates
	for axis := range dims {
		if !slices.Contains(a.inserted, axis) {
			windowAxes = append(windowAxes, axis)
		}
	}
	return func(out []byte, in [][]byte) {
		copy(out, in[0])
		pos := make([]int, len(upDims))
		start, size := make([]int, len(dims)), make([]int, len(dims))
		for axis := range size {
			size[axis] = 1
		}
		for j, axis := range a.window {
			size[windowAxes[j]] = upDims[axis]
		}
		for i := range product(upDims) {
			for r, x := len(upDims)-1, i; r >= 0; r-- {
				pos[r] = x % upDims[r]
				x /= upDims[r]
			}
			at, next := 0, 0
			for axis, p := range pos {
				if slices.Contains(a.window, axis) {
					continue
				}
				if next == a.vector {
					next++
				}
				at += p * is[next]
				next++
			}
			clear(start)
			for j, axis := range a.starts {
				start[axis] = read(in[1], at+j*is[a.vector])
			}
			to, ok := 0, true
			for axis, s := range start { // a window that sticks out is dropped whole
				ok = ok && s >= 0 && s <= dims[axis]-size[axis]
				to += s * xs[axis]
			}
			if !ok {
				continue
			}
			for j, axis := range a.window {
				to += pos[axis] * xs[windowAxes[j]]
			}
			combine(out, to, in[2], i)
		}
	}, nil
}

func combineOf[T number](op backends.OpType) func(out []byte, at int, up []byte, from int) {
	switch op {
	case backends.OpTypeScatterMax:
		return func(out []byte, at int, up []byte, from int) {
			o := &cast[T](out)[at]
			*o = max(*o, cast[T](up)[from])
		}
	case backends.OpTypeScatterMin:
		return func(out []byte, at int, up []byte, from int) {
			o := &cast[T](out)[at]
			*o = min(*o, cast[T](up)[from])
		}
	}
	return func(out []byte, at int, up []byte, from int) { cast[T](out)[at] += cast[T](up)[from] }
}

// rowScatter is ScatterSum of rows: embedding gradients. ok is false for other forms.
func rowScatter(a scatterAttr, dims, ixDims, upDims []int, d, ixType dtypes.DType) (genericFunc, bool) {
	if d != dtypes.Float32 || len(dims) != 2 || len(a.inserted) != 1 || a.inserted[0] != 0 || len(a.starts) != 1 || a.starts[0] != 0 ||
		len(a.window) != 1 || a.window[0] != len(upDims)-1 || upDims[len(upDims)-1] != dims[1] || a.vector != len(ixDims)-1 {
		return nil, false
	}
	read, w := indexReader(ixType), dims[1]
	return func(out []byte, in [][]byte) {
		copy(out, in[0])
		o, u := cast[float32](out), cast[float32](in[2])
		for i := range product(ixDims) {
			r := read(in[1], i)
			if r < 0 || r >= dims[0] {
				continue
			}
			addTo(o[r*w:(r+1)*w], u[i*w:(i+1)*w])
		}
	}, true
}

// padFunc places x [dims] in an array of fill.
func padFunc(axes []backends.PadAxis, dims, outDims []int, size int) genericFunc {
	xs, os := contiguous(dims), contiguous(outDims)
	var d, ds, ss []int
	to, from := 0, 0
	for i, p := range axes {
		step := p.Interior + 1
		// The elements 0 ≤ j < dims[i] with 0 ≤ Start + j·step < outDims[i].
		first := 0
		if p.Start < 0 {
			first = (-p.Start + step - 1) / step
		}
		last := dims[i]
		if room := outDims[i] - p.Start; room <= 0 {
			last = 0
		} else {
			last = min(last, (room-1)/step+1)
		}
		n := max(0, last-first)
		d, ds, ss = append(d, n), append(ds, os[i]*step), append(ss, xs[i])
		if n > 0 {
			to += (p.Start + first*step) * os[i]
			from += first * xs[i]
		}
	}
	empty := product(d) == 0
	return func(out []byte, in [][]byte) {
		if len(out) == 0 {
			return
		}
		copy(out, in[1])
		for done := size; done < len(out); done *= 2 {
			copy(out[done:], out[:done])
		}
		if !empty {
			copyStrided(unsafe.Pointer(&out[to*size]), ds, unsafe.Pointer(&in[0][from*size]), ss, d, size)
		}
	}
}

// dynamicSliceFunc takes a box of x [dims] at in[1:], one scalar per axis.
func dynamicSliceFunc(dims, sizes []int, ixTypes []dtypes.DType, size int) genericFunc {
	xs, os := contiguous(dims), contiguous(sizes)
	read := readers(ixTypes)
	return func(out []byte, in [][]byte) {
		if len(out) == 0 {
			return
		}
		from := 0
		for i, r := range read {
			from += max(0, min(r(in[1+i], 0), dims[i]-sizes[i])) * xs[i]
		}
		copyStrided(unsafe.Pointer(&out[0]), os, unsafe.Pointer(&in[0][from*size]), xs, sizes, size)
	}
}

// dynamicUpdateFunc replaces a box of x [dims] by in[1], at in[2:].
func dynamicUpdateFunc(dims, sizes []int, ixTypes []dtypes.DType, size int) genericFunc {
	xs, us := contiguous(dims), contiguous(sizes)
	read := readers(ixTypes)
	return func(out []byte, in [][]byte) {
		if len(out) == 0 {
			return
		}
		if &out[0] != &in[0][0] {
			copy(out, in[0])
		}
		if len(in[1]) == 0 {
			return
		}
		to := 0
		for i, r := range read {
			to += max(0, min(r(in[2+i], 0), dims[i]-sizes[i])) * xs[i]
		}
		copyStrided(unsafe.Pointer(&out[to*size]), xs, unsafe.Pointer(&in[1][0]), us, sizes, size)
	}
}

func readers(d []dtypes.DType) []func(b []byte, i int) int {
	out := make([]func(b []byte, i int) int, len(d))
	for i := range d {
		out[i] = indexReader(d[i])
	}
	return out
}

// dotFunc is DotGeneral of contiguous [batch, m, k] and [batch, n, k].
func dotFunc(d dtypes.DType, batch, m, n, k int) (genericFunc, error) {
	switch d {
	case dtypes.Int8:
		return dotLoop[int8](batch, m, n, k), nil
	case dtypes.Int16:
		return dotLoop[int16](batch, m, n, k), nil
	case dtypes.Int32:
		return dotLoop[int32](batch, m, n, k), nil
	case dtypes.Int64:
		return dotLoop[int64](batch, m, n, k), nil
	case dtypes.Uint8:
		return dotLoop[uint8](batch, m, n, k), nil
	case dtypes.Uint16:
		return dotLoop[uint16](batch, m, n, k), nil
	case dtypes.Uint32:
		return dotLoop[uint32](batch, m, n, k), nil
	case dtypes.Uint64:
		return dotLoop[uint64](batch, m, n, k), nil
	case dtypes.Float64:
		return dotLoop[float64](batch, m, n, k), nil
	}
	return nil, fmt.Errorf("native: op %s on %s is not supported", backends.OpTypeDotGeneral, d)
}

func dotLoop[T number](batch, m, n, k int) genericFunc {
	return func(out []byte, in [][]byte) {
		o, x, y := cast[T](out), cast[T](in[0]), cast[T](in[1])
		for b := range batch {
			for i := range m {
				for j := range n {
					var s T
					for l := range k {
						s += x[(b*m+i)*k+l] * y[(b*n+j)*k+l]
					}
					o[(b*m+i)*n+j] = s
				}
			}
		}
	}
}
