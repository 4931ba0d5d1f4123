package simd

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// distFast is whether NEON runs.
var distFast bool

// walkFast: Gather and Hadamard are plain Go here, and Prefetch nothing.
const walkFast = false

// selectKernels sets what depends on Level.
func selectKernels() { distFast = Level >= NEON }

func dotF32Fast(a, b *float32, n int) float32 { return dotF32NEON(a, b, n) }

func l2F32Fast(a, b *float32, n int) float32 { return l2F32NEON(a, b, n) }

func dotRowsF32Fast(out, q, base *float32, ids *uint32, n, dim, stride int) {
	dotRowsF32NEON(out, q, base, ids, n, dim, stride)
}

func dotRowsF16Fast(out, q *float32, base *uint16, ids *uint32, n, dim, stride int) {
	dotRowsF16NEON(out, q, base, ids, n, dim, stride)
}

func dotTileFast(out, q0, q1, r0, r1, r2 *float32, dim int) {
	dotTileNEON(out, q0, q1, r0, r1, r2, dim)
}

func halfToFloatFast(dst *float32, src *uint16, n int) { widenF16NEON(dst, src, n) }

func hadamardFast(*float32, int) {}

func prefetchFast(*uint32) {}

func gatherFast(out, adj *uint32, n int, seen *uint8, rows int, base *byte, stride, lines int) int {
	return 0
}

// finish turns the sum of row i into its score.
func finish(out *float32, i int, head unsafe.Pointer, sum int, c *[4]float32) {
	h := (*[CodeHead]byte)(head)
	a := math.Float32frombits(binary.LittleEndian.Uint32(h[:]))
	b := math.Float32frombits(binary.LittleEndian.Uint32(h[4:]))
	*(*float32)(unsafe.Add(unsafe.Pointer(out), 4*i)) = a*(c[0]*float32(sum)+c[1]) + c[3]*b + c[2]
}

func scoreI8Fast(out *float32, q *int8, base *byte, ids *uint32, n, dim, stride int, c *[4]float32) {
	for i, id := range unsafe.Slice(ids, n) {
		row := unsafe.Add(unsafe.Pointer(base), int(id)*stride)
		finish(out, i, row, sum8NEON(q, (*byte)(unsafe.Add(row, CodeHead)), dim), c)
	}
}

func score4Fast(out *float32, q *int8, base *byte, ids *uint32, n, bytes, stride int, c *[4]float32) {
	for i, id := range unsafe.Slice(ids, n) {
		row := unsafe.Add(unsafe.Pointer(base), int(id)*stride)
		finish(out, i, row, sum4NEON(q, (*byte)(unsafe.Add(row, CodeHead)), bytes), c)
	}
}

func score1Fast(out *float32, planes *uint64, base *byte, ids *uint32, n, words, stride int, c *[4]float32) {
	for i, id := range unsafe.Slice(ids, n) {
		row := unsafe.Add(unsafe.Pointer(base), int(id)*stride)
		finish(out, i, row, sum1NEON(planes, (*byte)(unsafe.Add(row, CodeHead)), words), c)
	}
}
