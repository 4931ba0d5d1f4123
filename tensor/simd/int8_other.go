//go:build !amd64

package simd

import "unsafe"

type int8Args struct {
	k8       int
	a        unsafe.Pointer
	aRow     int
	b        unsafe.Pointer
	c        unsafe.Pointer
	cLd      int
	sums     unsafe.Pointer
	scale    unsafe.Pointer
	zero     unsafe.Pointer
	rowScale unsafe.Pointer
	init     unsafe.Pointer // what the product is added to
	initLd   int            // bytes
}

func (g *int8Args) tile(rows int) { g.tileGo(rows) }

func quantizeRow(dst []byte, x []float32, inv, zero, limit float32) {
	quantizeGo(dst, x, inv, zero, limit)
}

func quantizeGroups([]byte, []float32, []float32, []int32, int) int { return 0 }
