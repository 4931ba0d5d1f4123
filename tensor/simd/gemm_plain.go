//go:build !amd64 && !arm64

package simd

func (g *gemmArgs) tile(rows int) { g.tileGo(rows) }

func pack16(dst, src []float32, k, ld int) { pack16Go(dst, src, 0, k, ld) }

func packRows(dst, src []float32, rows, k, ld int) { packRowsGo(dst, src, rows, 0, k, ld) }
