//go:build !amd64

package simd

import "unsafe"

// gemmArgs are a microkernel's arguments; strides in bytes.
type gemmArgs struct {
	k      int
	a      unsafe.Pointer
	aRow   int
	aK     int
	b      unsafe.Pointer
	bK     int
	init   unsafe.Pointer
	initLd int
	c      unsafe.Pointer
	cLd    int
	next   unsafe.Pointer
	step   int
}

func (g *gemmArgs) tile(rows int) { g.tileGo(rows) }

func pack16(dst, src []float32, k, ld int) { pack16Go(dst, src, 0, k, ld) }

func packRows(dst, src []float32, rows, k, ld int) { packRowsGo(dst, src, rows, 0, k, ld) }
