//go:build !amd64

package simd

// distAVX2 is constant here, so that the calls below are compiled away. A NEON
// level would be dispatched beside it.
const distAVX2 = false

func selectKernels() {}

func dotF32AVX2(a, b *float32, n int) float32                                       { panic("not reached") }
func l2F32AVX2(a, b *float32, n int) float32                                        { panic("not reached") }
func dotRowsF32AVX2(out, q, base *float32, ids *uint32, n, dim, stride int)         {}
func dotRowsF16AVX2(out, q *float32, base *uint16, ids *uint32, n, dim, stride int) {}
func dotTileAVX2(out, q0, q1, r0, r1, r2 *float32, dim int)                         {}
func halfToFloatAVX2(dst *float32, src *uint16, n int)                              {}
func hadamardAVX2(x *float32, n int)                                                {}
func prefetch2(p *uint32)                                                           {}

func scoreI8AVX2(out *float32, q *int8, base *byte, ids *uint32, n, dim, stride int, consts *[4]float32) {
}

func score4AVX2(out *float32, q *int8, base *byte, ids *uint32, n, bytes, stride int, consts *[4]float32) {
}

func score1AVX2(out *float32, planes *uint64, base *byte, ids *uint32, n, words, stride int, consts *[4]float32) {
}

func gatherAVX2(out, adj *uint32, n int, marks *uint8, rows int, epoch uint8, base *byte, stride, lines int) int {
	return 0
}
