package simd

import "unsafe"

//go:generate sh -c "go run gen_gemm.go > gemm_amd64.s"

// gemmArgs are a microkernel's arguments; strides in bytes. The assembly knows the
// offsets.
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
}

//go:noescape
func gemmPacked1(args *gemmArgs)

//go:noescape
func gemmPacked2(args *gemmArgs)

//go:noescape
func gemmPacked3(args *gemmArgs)

//go:noescape
func gemmPacked4(args *gemmArgs)

//go:noescape
func gemmPacked5(args *gemmArgs)

//go:noescape
func gemmPacked6(args *gemmArgs)

//go:noescape
func gemmStrided1(args *gemmArgs)

//go:noescape
func gemmStrided2(args *gemmArgs)

//go:noescape
func gemmStrided3(args *gemmArgs)

//go:noescape
func gemmStrided4(args *gemmArgs)

//go:noescape
func gemmStrided5(args *gemmArgs)

//go:noescape
func gemmStrided6(args *gemmArgs)

//go:noescape
func packT8(dst, src *float32, k8, stride int)

// tile runs the microkernel for rows 1 … 6 of one 16-wide panel.
func (g *gemmArgs) tile(rows int) {
	if Level < AVX2 {
		g.tileGo(rows)
		return
	}
	if g.aK == 4 && g.bK == 64 {
		switch rows {
		case 1:
			gemmPacked1(g)
		case 2:
			gemmPacked2(g)
		case 3:
			gemmPacked3(g)
		case 4:
			gemmPacked4(g)
		case 5:
			gemmPacked5(g)
		default:
			gemmPacked6(g)
		}
		return
	}
	switch rows {
	case 1:
		gemmStrided1(g)
	case 2:
		gemmStrided2(g)
	case 3:
		gemmStrided3(g)
	case 4:
		gemmStrided4(g)
	case 5:
		gemmStrided5(g)
	default:
		gemmStrided6(g)
	}
}

// pack16 transposes 16 rows of src, ld floats apart, into dst[k,16].
func pack16(dst, src []float32, k, ld int) {
	if Level < AVX2 || k < 8 {
		pack16Go(dst, src, 0, k, ld)
		return
	}
	packT8(&dst[0], &src[0], k/8, 4*ld)
	packT8(&dst[8], &src[8*ld], k/8, 4*ld)
	pack16Go(dst, src, k/8*8, k, ld)
}
