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
