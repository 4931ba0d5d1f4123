//go:build !amd64

package simd

import "unsafe"

// Scores4 has no kernel here.
func Scores4([]float32, int, []float32, int, []float32, int, unsafe.Pointer) bool { return false }

// Values4 has no kernel here.
func Values4([]float32, int, []float32, int, []float32, int, int, bool, unsafe.Pointer) bool {
	return false
}

func rotateFast(_, _ []float32, _, _ int, _, _ []float32, _ float32) bool { return false }
