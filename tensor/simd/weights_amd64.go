package simd

//go:generate sh -c "go run gen_weights.go > weights_amd64.s"

//go:noescape
func matvecQ4K(dst, x, sums *float32, panel *byte, blocks int)

//go:noescape
func matvecQ6K(dst, x *float32, panel *byte, blocks int)

//go:noescape
func expandQ4K(dst *float32, panel *byte, blocks int)

//go:noescape
func expandQ6K(dst *float32, panel *byte, blocks int)

//go:noescape
func matvecBF16(dst, x *float32, panel *byte, k int)

//go:noescape
func matvecF16(dst, x *float32, panel *byte, k int)

//go:noescape
func widenBF16(dst *float32, src *byte, n int)

//go:noescape
func widenF16(dst *float32, src *byte, n int)

//go:noescape
func matvecQ4KZ(dst, x, sums *float32, panel *byte, blocks int)

//go:noescape
func matvecQ6KZ(dst, x *float32, panel *byte, blocks int)

//go:noescape
func expandQ4KZ(dst *float32, panel *byte, blocks int)

//go:noescape
func expandQ6KZ(dst *float32, panel *byte, blocks int)

//go:noescape
func matvecBF16Z(dst, x *float32, panel *byte, k int)

//go:noescape
func matvecF16Z(dst, x *float32, panel *byte, k int)

//go:noescape
func widenBF16Z(dst *float32, src *byte, n int)

//go:noescape
func widenF16Z(dst *float32, src *byte, n int)

func matVecFast(f BlockFormat, dst *[PanelWidth]float32, x, sums []float32, panel []byte) bool {
	if Level < AVX2 {
		return false
	}
	if Level >= AVX512 {
		switch f {
		case BlockQ4K:
			matvecQ4KZ(&dst[0], &x[0], &sums[0], &panel[0], len(x)/kColumns)
		case BlockQ6K:
			matvecQ6KZ(&dst[0], &x[0], &panel[0], len(x)/kColumns)
		case BlockBF16:
			matvecBF16Z(&dst[0], &x[0], &panel[0], len(x))
		default:
			matvecF16Z(&dst[0], &x[0], &panel[0], len(x))
		}
		return true
	}
	switch f {
	case BlockQ4K:
		matvecQ4K(&dst[0], &x[0], &sums[0], &panel[0], len(x)/kColumns)
	case BlockQ6K:
		matvecQ6K(&dst[0], &x[0], &panel[0], len(x)/kColumns)
	case BlockBF16:
		matvecBF16(&dst[0], &x[0], &panel[0], len(x))
	default:
		matvecF16(&dst[0], &x[0], &panel[0], len(x))
	}
	return true
}

func expandKFast(f BlockFormat, dst []float32, panel []byte, blocks int) bool {
	if Level < AVX2 {
		return false
	}
	switch {
	case Level >= AVX512 && f == BlockQ4K:
		expandQ4KZ(&dst[0], &panel[0], blocks)
	case Level >= AVX512:
		expandQ6KZ(&dst[0], &panel[0], blocks)
	case f == BlockQ4K:
		expandQ4K(&dst[0], &panel[0], blocks)
	default:
		expandQ6K(&dst[0], &panel[0], blocks)
	}
	return true
}

// widenFast widens len(dst) elements, a multiple of 16.
func widenFast(f BlockFormat, dst []float32, src []byte) bool {
	if Level < AVX2 {
		return false
	}
	switch {
	case Level >= AVX512 && f == BlockBF16:
		widenBF16Z(&dst[0], &src[0], len(dst))
	case Level >= AVX512:
		widenF16Z(&dst[0], &src[0], len(dst))
	case f == BlockBF16:
		widenBF16(&dst[0], &src[0], len(dst))
	default:
		widenF16(&dst[0], &src[0], len(dst))
	}
	return true
}
