package simd

//go:generate sh -c "go run gen_blocks.go > blocks_amd64.s"
//go:generate sh -c "go run gen_blocks512.go s > blocks512_amd64.s; go run gen_blocks512.go go > b.tmp; mv b.tmp blocks512_amd64.go"

//go:noescape
func product4x1(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product4x2(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product4x3(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product4x4(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product4x5(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product4x6(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product8x1(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product8x2(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product8x3(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product8x4(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product8x5(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func product8x6(dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int)

//go:noescape
func quantize16(dst *byte, x *float32, blocks int)

//go:noescape
func expand4(dst *float32, panel *byte, blocks int)

//go:noescape
func expand8(dst *float32, panel *byte, blocks int)

// productRows is the number of rows that blockProductFast takes at once.
func productRows() int {
	if Level >= AVX512 {
		return maxRowsZ
	}
	return 6
}

// fetchBytes is what a kernel fetches per block of what comes next.
func fetchBytes() int {
	if Level >= AVX512 {
		return fetchZ
	}
	return 0
}

// blockProductFast runs the kernel of 1 to productRows rows. A switch keeps the
// pointers from escaping.
func blockProductFast(f BlockFormat, rows int, dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int, next *byte) bool {
	if Level < AVX2 {
		return false
	}
	if Level >= AVX512 {
		blockProductZ(f, Level >= VNNI, rows, dst, dstStride, x, xStride, panel, blocks, next)
		return true
	}
	if f == Block8 {
		rows += 6
	}
	switch rows {
	case 1:
		product4x1(dst, dstStride, x, xStride, panel, blocks)
	case 2:
		product4x2(dst, dstStride, x, xStride, panel, blocks)
	case 3:
		product4x3(dst, dstStride, x, xStride, panel, blocks)
	case 4:
		product4x4(dst, dstStride, x, xStride, panel, blocks)
	case 5:
		product4x5(dst, dstStride, x, xStride, panel, blocks)
	case 6:
		product4x6(dst, dstStride, x, xStride, panel, blocks)
	case 7:
		product8x1(dst, dstStride, x, xStride, panel, blocks)
	case 8:
		product8x2(dst, dstStride, x, xStride, panel, blocks)
	case 9:
		product8x3(dst, dstStride, x, xStride, panel, blocks)
	case 10:
		product8x4(dst, dstStride, x, xStride, panel, blocks)
	case 11:
		product8x5(dst, dstStride, x, xStride, panel, blocks)
	case 12:
		product8x6(dst, dstStride, x, xStride, panel, blocks)
	}
	return true
}

func quantize16Fast(dst []byte, x []float32) bool {
	if Level < AVX2 {
		return false
	}
	if Level >= AVX512 {
		quantize16Z(&dst[0], &x[0], len(x)/BlockColumns)
	} else {
		quantize16(&dst[0], &x[0], len(x)/BlockColumns)
	}
	return true
}

func expandFast(f BlockFormat, dst []float32, panel []byte, blocks int) bool {
	if Level < AVX2 {
		return false
	}
	if f == Block4 {
		expand4(&dst[0], &panel[0], blocks)
	} else {
		expand8(&dst[0], &panel[0], blocks)
	}
	return true
}
