package simd

import "golang.org/x/sys/cpu"

// distAVX2 is whether the assembly of dist_amd64.s runs.
var distAVX2 bool

// selectKernels sets what depends on Level.
func selectKernels() {
	distAVX2 = Level >= AVX2 && cpu.X86.HasPOPCNT
}

//go:noescape
func dotF32AVX2(a, b *float32, n int) float32

//go:noescape
func l2F32AVX2(a, b *float32, n int) float32

//go:noescape
func dotRowsF32AVX2(out, q, base *float32, ids *uint32, n, dim, stride int)

//go:noescape
func dotRowsF16AVX2(out, q *float32, base *uint16, ids *uint32, n, dim, stride int)

//go:noescape
func dotTileAVX2(out, q0, q1, r0, r1, r2 *float32, dim int)

//go:noescape
func halfToFloatAVX2(dst *float32, src *uint16, n int)

//go:noescape
func scoreI8AVX2(out *float32, q *int8, base *byte, ids *uint32, n, dim, stride int, consts *[4]float32)

//go:noescape
func score4AVX2(out *float32, q *int8, base *byte, ids *uint32, n, bytes, stride int, consts *[4]float32)

//go:noescape
func score1AVX2(out *float32, planes *uint64, base *byte, ids *uint32, n, words, stride int, consts *[4]float32)

//go:noescape
func gatherAVX2(out, adj *uint32, n int, marks *uint8, rows int, epoch uint8, base *byte, stride, lines int) int

//go:noescape
func prefetch2(p *uint32)

//go:noescape
func hadamardAVX2(x *float32, n int)
