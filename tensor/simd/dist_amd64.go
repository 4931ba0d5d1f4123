package simd

import "golang.org/x/sys/cpu"

//go:generate sh -c "go run gen_dist.go s > dist512_amd64.s; go run gen_dist.go go > d.tmp; mv d.tmp dist512_amd64.go"

// distFast is whether assembly runs, distZ whether that of AVX-512 does where there is
// some, distVNNI whether that with VNNI does, distPop whether that with VPOPCNTDQ does.
var distFast, distZ, distVNNI, distPop bool

// walkFast is whether Gather, Prefetch and Hadamard run in assembly.
var walkFast bool

// selectKernels sets what depends on Level.
func selectKernels() {
	distFast = Level >= AVX2 && cpu.X86.HasPOPCNT
	walkFast = distFast
	distZ, distVNNI = distFast && Level >= AVX512, distFast && Level >= VNNI
	distPop = distZ && cpu.X86.HasAVX512VPOPCNTDQ
}

func dotF32Fast(a, b *float32, n int) float32 {
	if distZ {
		return dotF32Z(a, b, n)
	}
	return dotF32AVX2(a, b, n)
}

func l2F32Fast(a, b *float32, n int) float32 {
	if distZ {
		return l2F32Z(a, b, n)
	}
	return l2F32AVX2(a, b, n)
}

func dotRowsF32Fast(out, q, base *float32, ids *uint32, n, dim, stride int) {
	if distZ {
		dotRowsF32Z(out, q, base, ids, n, dim, stride)
		return
	}
	dotRowsF32AVX2(out, q, base, ids, n, dim, stride)
}

func dotRowsF16Fast(out, q *float32, base *uint16, ids *uint32, n, dim, stride int) {
	if distZ {
		dotRowsF16Z(out, q, base, ids, n, dim, stride)
		return
	}
	dotRowsF16AVX2(out, q, base, ids, n, dim, stride)
}

func dotTileFast(out, q0, q1, r0, r1, r2 *float32, dim int) {
	if distZ {
		dotTileZ(out, q0, q1, r0, r1, r2, dim)
		return
	}
	dotTileAVX2(out, q0, q1, r0, r1, r2, dim)
}

func scoreI8Fast(out *float32, q *int8, base *byte, ids *uint32, n, dim, stride int, consts *[4]float32) {
	if distVNNI {
		score8VNNI(out, q, base, ids, n, dim, stride, consts)
		return
	}
	scoreI8AVX2(out, q, base, ids, n, dim, stride, consts)
}

func score4Fast(out *float32, q *int8, base *byte, ids *uint32, n, bytes, stride int, consts *[4]float32) {
	if distVNNI {
		score4VNNI(out, q, base, ids, n, bytes, stride, consts)
		return
	}
	score4AVX2(out, q, base, ids, n, bytes, stride, consts)
}

func halfToFloatFast(dst *float32, src *uint16, n int) { halfToFloatAVX2(dst, src, n) }

func score1Fast(out *float32, planes *uint64, base *byte, ids *uint32, n, words, stride int, consts *[4]float32) {
	if distPop {
		score1Z(out, planes, base, ids, n, words, stride, consts)
		return
	}
	score1AVX2(out, planes, base, ids, n, words, stride, consts)
}

func gatherFast(out, adj *uint32, n int, seen *uint8, rows int, base *byte, stride, lines int) int {
	return gatherAVX2(out, adj, n, seen, rows, base, stride, lines)
}

func prefetchFast(p *uint32) { prefetch2(p) }

func hadamardFast(x *float32, n int) { hadamardAVX2(x, n) }

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
func gatherAVX2(out, adj *uint32, n int, seen *uint8, rows int, base *byte, stride, lines int) int

//go:noescape
func prefetch2(p *uint32)

//go:noescape
func hadamardAVX2(x *float32, n int)
