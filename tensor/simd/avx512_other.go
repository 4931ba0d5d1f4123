//go:build !amd64

package simd

func (g *Gemm) runFast(m0, m1, p0, p1 int) bool { return false }

func (w *Int8Weights) runFast(*Int8Rows, []float32, int, int, int, int, int) bool { return false }
