//go:build !amd64

package simd

func productRows() int { return 6 }

func blockProductFast(BlockFormat, int, *float32, int, *byte, int, *byte, int) bool { return false }

func quantize16Fast([]byte, []float32) bool { return false }

func expandFast(BlockFormat, []float32, []byte, int) bool { return false }
