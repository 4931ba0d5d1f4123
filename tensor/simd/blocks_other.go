//go:build !amd64

package simd

func productRows() int { return 6 }

func fetchBytes() int { return 0 }

func blockProductFast(BlockFormat, int, *float32, int, *byte, int, *byte, int, *byte) bool {
	return false
}

func quantize16Fast([]byte, []float32) bool { return false }

func expandFast(BlockFormat, []float32, []byte, int) bool { return false }
