//go:build !amd64

package simd

func (g *Gemm) runFast(m0, m1, p0, p1 int) bool { return false }

func (w *Int8Weights) runFast(_ *Int8Rows, _, _ []float32, _, _, _, _, _ int) bool {
	return false
}

// SharedRows is 0: Run packs A by itself.
func SharedRows(f BlockFormat, m, k int) (floats, tasks int) { return 0, 0 }

// PackShared is never called.
func PackShared(f BlockFormat, dst, a []float32, aRow, m, k, task int) {}
