package simd

// Rotate turns pairs of columns j and j+half of heads rows of x, stride apart, by the
// angles of cos and sin [half], times scale: dst[h, j] = (a·cos[j] − b·sin[j])·scale and
// dst[h, j+half] = (b·cos[j] + a·sin[j])·scale, every step rounded to float32 (rotary
// positions, Su et al. 2021, in the order of GPT-NeoX).
func Rotate(dst, x []float32, stride, heads int, cos, sin []float32, scale float32) {
	half := len(cos)
	if heads < 1 || half == 0 {
		return
	}
	_, _, sin = dst[2*half*heads-1], x[(heads-1)*stride+2*half-1], sin[:half]
	if rotateFast(dst, x, stride, heads, cos, sin, scale) {
		return
	}
	for h := range heads {
		a, b := x[h*stride:][:half], x[h*stride+half:][:half]
		y, z := dst[2*half*h:][:half], dst[2*half*h+half:][:half]
		for j, c := range cos {
			s, a, b := sin[j], a[j], b[j]
			y[j] = (float32(a*c) - float32(b*s)) * scale
			z[j] = (float32(b*c) + float32(a*s)) * scale
		}
	}
}
