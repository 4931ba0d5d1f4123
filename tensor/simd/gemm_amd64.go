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
	next   unsafe.Pointer // prefetched by the tiles
	step   int
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
func gemmTile1(args *gemmArgs)

//go:noescape
func packA1(dst, src *float32, k8, stride int)

//go:noescape
func gemmTile2(args *gemmArgs)

//go:noescape
func packA2(dst, src *float32, k8, stride int)

//go:noescape
func gemmTile3(args *gemmArgs)

//go:noescape
func packA3(dst, src *float32, k8, stride int)

//go:noescape
func gemmTile4(args *gemmArgs)

//go:noescape
func packA4(dst, src *float32, k8, stride int)

//go:noescape
func gemmTile5(args *gemmArgs)

//go:noescape
func packA5(dst, src *float32, k8, stride int)

//go:noescape
func gemmTile6(args *gemmArgs)

//go:noescape
func packA6(dst, src *float32, k8, stride int)

//go:noescape
func packT8(dst, src *float32, k8, stride int)

// tile runs the microkernel for rows 1 … 6 of one 16-wide panel.
func (g *gemmArgs) tile(rows int) {
	if Level < AVX2 {
		g.tileGo(rows)
		return
	}
	if g.aRow == 4 && g.aK == 4*rows && g.bK == 64 {
		switch rows {
		case 1:
			gemmTile1(g)
		case 2:
			gemmTile2(g)
		case 3:
			gemmTile3(g)
		case 4:
			gemmTile4(g)
		case 5:
			gemmTile5(g)
		default:
			gemmTile6(g)
		}
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

// packRows writes dst[k][rows] = src[rows, k], rows ld floats apart. dst needs 8
// floats behind the end.
func packRows(dst, src []float32, rows, k, ld int) {
	if Level < AVX2 || k < 8 {
		packRowsGo(dst, src, rows, 0, k, ld)
		return
	}
	_ = dst[k*rows+8-1]
	_ = src[(rows-1)*ld+k-1]
	f := packA6
	switch rows {
	case 1:
		f = packA1
	case 2:
		f = packA2
	case 3:
		f = packA3
	case 4:
		f = packA4
	case 5:
		f = packA5
	}
	f(&dst[0], &src[0], k/8, 4*ld)
	packRowsGo(dst, src, rows, k/8*8, k, ld)
}
