package simd

import "unsafe"

// widenFast widens len(dst) elements, a multiple of 16.
func widenFast(f BlockFormat, dst []float32, src []byte) bool {
	if Level < NEON {
		return false
	}
	if p := (*uint16)(unsafe.Pointer(&src[0])); f == BlockBF16 {
		widenBF16NEON(&dst[0], p, len(dst))
	} else {
		widenF16NEON(&dst[0], p, len(dst))
	}
	return true
}
