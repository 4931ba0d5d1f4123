//go:build !amd64 && !arm64

package simd

// Constants, so that the calls below are compiled away.
const distFast, walkFast = false, false

func selectKernels() {}

func dotF32Fast(a, b *float32, n int) float32                                       { panic("not reached") }
func l2F32Fast(a, b *float32, n int) float32                                        { panic("not reached") }
func dotRowsF32Fast(out, q, base *float32, ids *uint32, n, dim, stride int)         {}
func dotRowsF16Fast(out, q *float32, base *uint16, ids *uint32, n, dim, stride int) {}
func dotTileFast(out, q0, q1, r0, r1, r2 *float32, dim int)                         {}
func halfToFloatFast(dst *float32, src *uint16, n int)                              {}
func hadamardFast(x *float32, n int)                                                {}
func prefetchFast(p *uint32)                                                        {}

func scoreI8Fast(out *float32, q *int8, base *byte, ids *uint32, n, dim, stride int, consts *[4]float32) {
}

func score4Fast(out *float32, q *int8, base *byte, ids *uint32, n, bytes, stride int, consts *[4]float32) {
}

func score1Fast(out *float32, planes *uint64, base *byte, ids *uint32, n, words, stride int, consts *[4]float32) {
}

func gatherFast(out, adj *uint32, n int, seen *uint8, rows int, base *byte, stride, lines int) int {
	return 0
}
