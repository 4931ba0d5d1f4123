package simd

//go:generate sh -c "go run gen_blocks.go > blocks_amd64.s"

//go:noescape
func matvec4(dst, x, sums *float32, panel *byte, blocks int)

//go:noescape
func matvec8(dst, x *float32, panel *byte, blocks int)

//go:noescape
func expand4(dst *float32, panel *byte, blocks int)

//go:noescape
func expand8(dst *float32, panel *byte, blocks int)

func matVecFast(f BlockFormat, dst *[PanelWidth]float32, x, sums []float32, panel []byte, blocks int) bool {
	if Level < AVX2 {
		return false
	}
	if f == Block4 {
		matvec4(&dst[0], &x[0], &sums[0], &panel[0], blocks)
	} else {
		matvec8(&dst[0], &x[0], &panel[0], blocks)
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
