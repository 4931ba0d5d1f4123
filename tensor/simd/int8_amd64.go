package simd

import "unsafe"

//go:generate sh -c "go run gen_int8.go > int8_amd64.s"

// int8Args are a kernel's arguments; the assembly knows the offsets.
type int8Args struct {
	k8       int // groups of 8 along k
	a        unsafe.Pointer
	aRow     int // bytes
	b        unsafe.Pointer
	c        unsafe.Pointer
	cLd      int // bytes
	sums     unsafe.Pointer
	scale    unsafe.Pointer
	zero     unsafe.Pointer
	rowScale unsafe.Pointer
	init     unsafe.Pointer // what the product is added to
	initLd   int            // bytes
}

//go:noescape
func int8Tile1(args *int8Args)

//go:noescape
func int8Tile2(args *int8Args)

//go:noescape
func int8Tile3(args *int8Args)

//go:noescape
func int8Tile4(args *int8Args)

//go:noescape
func quantize7(dst *byte, x *float32, n int, inv, zero float32)

func (g *int8Args) tile(rows int) {
	if Level < AVX2 {
		g.tileGo(rows)
		return
	}
	switch rows {
	case 1:
		int8Tile1(g)
	case 2:
		int8Tile2(g)
	case 3:
		int8Tile3(g)
	default:
		int8Tile4(g)
	}
}

func quantizeRow(dst []byte, x []float32, inv, zero, limit float32) {
	n := 0
	switch {
	case Level >= VNNI && len(x) >= 16:
		n = len(x) &^ 15
		quantize8Z(&dst[0], &x[0], n, inv, zero)
	case Level >= AVX2 && Level < VNNI && len(x) >= 32:
		n = len(x) / 32 * 32
		quantize7(&dst[0], &x[0], n, inv, zero)
	}
	quantizeGo(dst[n:], x[n:], inv, zero, limit)
}

// quantizeGroups quantises the first whole groups of x, as far as it can; their number.
// Scales and zeros are stride elements apart.
func quantizeGroups(dst []byte, x, scale []float32, zero []int32, stride int) int {
	n := len(x) / Int8Group
	if Level < VNNI || n == 0 {
		return 0
	}
	_, _, _ = dst[n*Int8Group-1], scale[(n-1)*stride], zero[(n-1)*stride]
	_, limit := int8Limits()
	return quantizeGroupsZ(&dst[0], &x[0], n, &scale[0], &zero[0], 4*stride, limit)
}
