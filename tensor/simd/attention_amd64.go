package simd

import "unsafe"

//go:generate sh -c "go run gen_attention.go > attention_amd64.s"

// scores4Args and values4Args are the kernels' arguments; strides in bytes. The assembly
// knows the offsets.
type scores4Args struct {
	dst          unsafe.Pointer
	ld           int
	q            unsafe.Pointer
	qLd, d       int
	k            unsafe.Pointer
	pairs        int
	mask1, mask2 uint64 // of the last pair's columns
	next         unsafe.Pointer
}

//go:noescape
func scores4(args *scores4Args)

type values4Args struct {
	dst    unsafe.Pointer
	ld     int
	w      unsafe.Pointer
	wLd    int
	v      unsafe.Pointer
	vLd, n int
	add    int
	next   unsafe.Pointer
}

//go:noescape
func values4(args *values4Args)

// Scores4 sets dst[r*ld+j] to the product of row r < 4 of q [4,d] and column j < n of the
// panels k, as Gemm would, bit for bit; false when there is no kernel here. It fetches
// 8 KB from next on (nil: nothing) into the cache.
func Scores4(dst []float32, ld int, q []float32, d int, k []float32, n int, next unsafe.Pointer) bool {
	if Level < AVX512 || n < 1 || d < 1 {
		return false
	}
	_, _, _ = dst[3*ld+n-1], q[4*d-1], k[(n+PanelWidth-1)/PanelWidth*PanelWidth*d-1]
	pairs := (n + 2*PanelWidth - 1) / (2 * PanelWidth)
	last := n - 2*PanelWidth*(pairs-1)
	if next == nil {
		next = unsafe.Pointer(&k[0])
	}
	a := scores4Args{unsafe.Pointer(&dst[0]), 4 * ld, unsafe.Pointer(&q[0]), 4 * d, d, unsafe.Pointer(&k[0]), pairs, columnMask(last), columnMask(last - PanelWidth), next}
	scores4(&a)
	return true
}

// Values4 sets dst [4,d] to the products of four rows of weights, n each and ld apart, and
// v, whose n rows of d are vLd apart, or adds them; as Gemm would. False when there is no
// kernel here. It fetches what is at next into the cache, like Scores4.
func Values4(dst []float32, d int, w []float32, ld int, v []float32, vLd, n int, add bool, next unsafe.Pointer) bool {
	const width = 64
	if Level < AVX512 || n < 1 || d < 1 || d%width != 0 {
		return false
	}
	_, _, _ = dst[4*d-1], w[3*ld+n-1], v[(n-1)*vLd+d-1]
	if next == nil {
		next = unsafe.Pointer(&v[0])
	}
	a := values4Args{ld: 4 * d, w: unsafe.Pointer(&w[0]), wLd: 4 * ld, vLd: 4 * vLd, n: n, next: next}
	if add {
		a.add = 1
	}
	for c := 0; c < d; c += width {
		a.dst, a.v = unsafe.Pointer(&dst[c]), unsafe.Pointer(&v[c])
		values4(&a)
	}
	return true
}

//go:noescape
func rotateY(dst, x *float32, stride, heads int, cos, sin *float32, n int, scale *float32)

//go:noescape
func rotateZ(dst, x *float32, stride, heads int, cos, sin *float32, n int, scale *float32)

func rotateFast(dst, x []float32, stride, heads int, cos, sin []float32, scale float32) bool {
	half := len(cos)
	switch {
	case Level >= AVX512 && half%16 == 0:
		rotateZ(&dst[0], &x[0], 4*stride, heads, &cos[0], &sin[0], half/16, &scale)
	case Level >= AVX2 && half%8 == 0:
		rotateY(&dst[0], &x[0], 4*stride, heads, &cos[0], &sin[0], half/8, &scale)
	default:
		return false
	}
	return true
}
