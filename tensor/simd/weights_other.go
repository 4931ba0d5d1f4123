//go:build !amd64

package simd

func matVecFast(BlockFormat, *[PanelWidth]float32, []float32, []float32, []byte) bool {
	return false
}

func expandKFast(BlockFormat, []float32, []byte, int) bool { return false }

func widenFast(BlockFormat, []float32, []byte) bool { return false }
