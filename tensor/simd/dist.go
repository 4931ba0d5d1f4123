package simd

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/x448/float16"
)

// Distance kernels of the vector index. Tables are row-major and addressed by row
// number: out[i] belongs to row ids[i]. Every function checks row numbers and
// lengths as a slice expression would; Gather never returns a number outside the
// table. NaN and infinity propagate as in plain arithmetic, sums may be associated
// differently between levels, and no sum depends on which other rows are asked for.

// L2 is the squared Euclidean distance of two vectors of the same length.
func L2(a, b []float32) float32 {
	b = b[:len(a)]
	if !distFast {
		return l2Generic(a, b)
	}
	n := len(a) &^ 7
	var s float32
	if n > 0 {
		s = l2F32Fast(&a[0], &b[0], n)
	}
	for i := n; i < len(a); i++ {
		d := a[i] - b[i]
		s += d * d
	}
	return s
}

func l2Generic(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		d0, d1, d2, d3 := x[0]-y[0], x[1]-y[1], x[2]-y[2], x[3]-y[3]
		s0 += d0 * d0
		s1 += d1 * d1
		s2 += d2 * d2
		s3 += d3 * d3
	}
	for ; i < len(a); i++ {
		d := a[i] - b[i]
		s0 += d * d
	}
	return s0 + s1 + s2 + s3
}

func dotFast(a, b []float32) float32 {
	n := len(a) &^ 7
	var s float32
	if n > 0 {
		s = dotF32Fast(&a[0], &b[0], n)
	}
	for i := n; i < len(a); i++ {
		s += a[i] * b[i]
	}
	return s
}

func checkRows(ids []uint32, rows int) {
	most := uint32(0)
	for _, id := range ids {
		most = max(most, id)
	}
	if len(ids) > 0 && int(most) >= rows {
		panic("simd: row number outside the table")
	}
}

// last4 fills the at most four row numbers left over up to four, for kernels that take
// four at a time.
func last4(ids []uint32) (id4 [4]uint32) {
	for i := range id4 {
		id4[i] = ids[min(i, len(ids)-1)]
	}
	return id4
}

// DotRowsF32 computes out[i] = q · row ids[i] of a float32 table whose rows are as
// long as q. Values equal Dot's bit for bit.
func DotRowsF32(out []float32, q, table []float32, ids []uint32) {
	dim := len(q)
	if dim == 0 || len(ids) == 0 {
		clear(out[:len(ids)])
		return
	}
	out = out[:len(ids)]
	checkRows(ids, len(table)/dim)
	if !distFast {
		for i, id := range ids {
			out[i] = dotGeneric(q, table[int(id)*dim:(int(id)+1)*dim])
		}
		return
	}
	n, n4 := dim&^7, len(ids)&^3
	if n4 > 0 {
		dotRowsF32Fast(&out[0], &q[0], &table[0], &ids[0], n4, n, 4*dim)
	}
	for i := n4; i < len(ids); i++ {
		id := int(ids[i])
		if out[i] = 0; n > 0 {
			out[i] = dotF32Fast(&q[0], &table[id*dim], n)
		}
	}
	if n == dim {
		return
	}
	for i, id := range ids {
		row := table[int(id)*dim : (int(id)+1)*dim]
		s := out[i]
		for j := n; j < dim; j++ {
			s += q[j] * row[j]
		}
		out[i] = s
	}
}

// DotRowsF16 is DotRowsF32 for a table of IEEE half floats; the result is that of
// the rows converted to float32.
func DotRowsF16(out []float32, q []float32, table []uint16, ids []uint32) {
	dim := len(q)
	if dim == 0 || len(ids) == 0 {
		clear(out[:len(ids)])
		return
	}
	out = out[:len(ids)]
	checkRows(ids, len(table)/dim)
	if !distFast {
		for i, id := range ids {
			out[i] = dotF16Generic(q, table[int(id)*dim:(int(id)+1)*dim])
		}
		return
	}
	n := dim &^ 7
	n4 := len(ids) &^ 3
	if n4 > 0 {
		dotRowsF16Fast(&out[0], &q[0], &table[0], &ids[0], n4, n, 2*dim)
	}
	if n4 < len(ids) {
		id4, out4 := last4(ids[n4:]), [4]float32{}
		dotRowsF16Fast(&out4[0], &q[0], &table[0], &id4[0], 4, n, 2*dim)
		copy(out[n4:], out4[:])
	}
	if n == dim {
		return
	}
	for i, id := range ids {
		row := table[int(id)*dim : (int(id)+1)*dim]
		s := out[i]
		for j := n; j < dim; j++ {
			s += q[j] * float16.Frombits(row[j]).Float32()
		}
		out[i] = s
	}
}

func dotF16Generic(q []float32, row []uint16) float32 {
	var s [4]float32
	for i, h := range row {
		s[i&3] += q[i] * float16.Frombits(h).Float32()
	}
	return s[0] + s[1] + s[2] + s[3]
}

// HalfToFloat converts IEEE half floats; dst is at least as long as src.
func HalfToFloat(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	n := 0
	if distFast {
		if n = len(src) &^ 7; n > 0 {
			halfToFloatFast(&dst[0], &src[0], n)
		}
	}
	for i := n; i < len(src); i++ {
		dst[i] = float16.Frombits(src[i]).Float32()
	}
}

// DotTile computes the inner products of two queries with three rows, all of length
// len(q0): out = q0·r0, q0·r1, q0·r2, q1·r0, q1·r1, q1·r2. Values equal Dot's bit
// for bit; the tile saves loads.
func DotTile(out *[6]float32, q0, q1, r0, r1, r2 []float32) {
	d := len(q0)
	q1, r0, r1, r2 = q1[:d], r0[:d], r1[:d], r2[:d]
	if !distFast {
		*out = [6]float32{dotGeneric(q0, r0), dotGeneric(q0, r1), dotGeneric(q0, r2), dotGeneric(q1, r0), dotGeneric(q1, r1), dotGeneric(q1, r2)}
		return
	}
	n := d &^ 7
	if *out = ([6]float32{}); n > 0 {
		dotTileFast(&out[0], &q0[0], &q1[0], &r0[0], &r1[0], &r2[0], n)
	}
	for i := n; i < d; i++ {
		out[0] += q0[i] * r0[i]
		out[1] += q0[i] * r1[i]
		out[2] += q0[i] * r2[i]
		out[3] += q1[i] * r0[i]
		out[4] += q1[i] * r1[i]
		out[5] += q1[i] * r2[i]
	}
}

// CodeBlock is what the number of dimensions of a code is a multiple of.
const CodeBlock = 64

// CodeHead is the length of the two float32 factors A and B in front of each code.
const CodeHead = 8

// CodeQuery is a query (or a stored code acting as one) made ready for scoring. A
// row's score is A·(Scale·sum + Offset) + Beta·B + Bias, where sum is the integer inner
// product of the query with the row's code.
type CodeQuery struct {
	Scale, Offset, Bias, Beta float32
	I8                        []int8   // for Score8 and Score4: as many as dimensions, -127…127
	Planes                    []uint64 // for Score1: per 64 dimensions the four bit planes of two's complement values -8…7
}

func (q *CodeQuery) consts() [4]float32 { return [4]float32{q.Scale, q.Offset, q.Bias, q.Beta} }

func codeGeneric(out []float32, q *CodeQuery, table []byte, stride int, ids []uint32, sum func(code []byte) int) {
	for i, id := range ids {
		r := table[int(id)*stride : (int(id)+1)*stride]
		a := math.Float32frombits(binary.LittleEndian.Uint32(r))
		b := math.Float32frombits(binary.LittleEndian.Uint32(r[4:]))
		out[i] = a*(q.Scale*float32(sum(r[CodeHead:]))+q.Offset) + q.Beta*b + q.Bias
	}
}

// Score8 scores rows of signed bytes (-127…127): row = A, B, dim bytes; dim is a
// multiple of CodeBlock and stride at least CodeHead+dim.
func Score8(out []float32, q *CodeQuery, table []byte, stride int, ids []uint32) {
	dim := len(q.I8)
	if dim%CodeBlock != 0 || dim == 0 || stride < CodeHead+dim {
		panic("simd: Score8: wrong dimensions")
	}
	out = out[:len(ids)]
	checkRows(ids, len(table)/stride)
	if !distFast {
		codeGeneric(out, q, table, stride, ids, func(c []byte) int { return sum8(q.I8, c) })
		return
	}
	c := q.consts()
	n4 := len(ids) &^ 3
	if n4 > 0 {
		scoreI8Fast(&out[0], &q.I8[0], &table[0], &ids[0], n4, dim, stride, &c)
	}
	if n4 < len(ids) {
		id4, out4 := last4(ids[n4:]), [4]float32{}
		scoreI8Fast(&out4[0], &q.I8[0], &table[0], &id4[0], 4, dim, stride, &c)
		copy(out[n4:], out4[:])
	}
}

func sum8(q []int8, c []byte) int {
	s := 0
	for i, x := range q {
		s += int(x) * int(int8(c[i]))
	}
	return s
}

// Score4 scores rows of 4-bit codes 0…15: row = A, B, dim/2 bytes; of each 32 bytes
// the low halves are dimensions 0…31 of a block of 64, the high halves 32…63.
func Score4(out []float32, q *CodeQuery, table []byte, stride int, ids []uint32) {
	dim := len(q.I8)
	if dim%CodeBlock != 0 || dim == 0 || stride < CodeHead+dim/2 {
		panic("simd: Score4: wrong dimensions")
	}
	out = out[:len(ids)]
	checkRows(ids, len(table)/stride)
	if !distFast {
		codeGeneric(out, q, table, stride, ids, func(c []byte) int { return sum4(q.I8, c) })
		return
	}
	c := q.consts()
	n4 := len(ids) &^ 3
	if n4 > 0 {
		score4Fast(&out[0], &q.I8[0], &table[0], &ids[0], n4, dim/2, stride, &c)
	}
	if n4 < len(ids) {
		id4, out4 := last4(ids[n4:]), [4]float32{}
		score4Fast(&out4[0], &q.I8[0], &table[0], &id4[0], 4, dim/2, stride, &c)
		copy(out[n4:], out4[:])
	}
}

func sum4(q []int8, c []byte) int {
	s := 0
	for i, x := range q {
		b := c[i/64*32+i%32]
		if i%64 >= 32 {
			b >>= 4
		}
		s += int(x) * int(b&15)
	}
	return s
}

// Score1 scores rows of 1-bit codes: row = A, B, dim/8 bytes, dimension i being bit
// i%64 of the i/64th little-endian word. sum adds the query's values -8…7 where the
// bit is set.
func Score1(out []float32, q *CodeQuery, table []byte, stride int, ids []uint32) {
	words := len(q.Planes) / 4
	if len(q.Planes)%4 != 0 || words == 0 || stride < CodeHead+8*words {
		panic("simd: Score1: wrong dimensions")
	}
	out = out[:len(ids)]
	checkRows(ids, len(table)/stride)
	if !distFast {
		codeGeneric(out, q, table, stride, ids, func(c []byte) int { return sum1(q.Planes, c) })
		return
	}
	c := q.consts()
	n4 := len(ids) &^ 3
	if n4 > 0 {
		score1Fast(&out[0], &q.Planes[0], &table[0], &ids[0], n4, words, stride, &c)
	}
	if n4 < len(ids) {
		id4, out4 := last4(ids[n4:]), [4]float32{}
		score1Fast(&out4[0], &q.Planes[0], &table[0], &id4[0], 4, words, stride, &c)
		copy(out[n4:], out4[:])
	}
}

func sum1(planes []uint64, c []byte) int {
	s := 0
	for w := range len(planes) / 4 {
		x := binary.LittleEndian.Uint64(c[8*w:])
		p := planes[4*w : 4*w+4]
		s += bits.OnesCount64(x&p[0]) + 2*bits.OnesCount64(x&p[1]) + 4*bits.OnesCount64(x&p[2]) - 8*bits.OnesCount64(x&p[3])
	}
	return s
}

// Gather copies to out the row numbers of adj that are not yet in seen, a bit a row,
// and puts them in; it stops at the first number that is rows or more (an end mark,
// or damage). The first lines cache lines of each row kept are fetched ahead from
// table, whose rows are stride bytes apart. out is at least as long as adj. The
// number kept is returned.
func Gather(out, adj []uint32, seen []uint8, rows int, table []byte, stride, lines int) int {
	if len(adj) == 0 || rows == 0 {
		return 0
	}
	out, seen = out[:len(adj)], seen[:(rows+7)/8]
	if walkFast && len(table) > 0 {
		return gatherFast(&out[0], &adj[0], len(adj), &seen[0], rows, &table[0], stride, lines)
	}
	n := 0
	for _, id := range adj {
		if uint64(id) >= uint64(rows) {
			break
		}
		if bit := uint8(1) << (id & 7); seen[id>>3]&bit == 0 {
			seen[id>>3] |= bit
			out[n] = id
			n++
		}
	}
	return n
}

// Prefetch fetches ahead the two cache lines from the start of p.
func Prefetch(p []uint32) {
	if walkFast && len(p) > 0 {
		prefetchFast(&p[0])
	}
}

// Hadamard applies the unscaled Walsh–Hadamard transform in place; the length is a
// power of two.
func Hadamard(x []float32) {
	n := len(x)
	if n&(n-1) != 0 {
		panic("simd: Hadamard: length is not a power of two")
	}
	if walkFast && n >= 16 {
		hadamardFast(&x[0], n)
		return
	}
	hadamardGeneric(x)
}

func hadamardGeneric(x []float32) {
	for h := 1; h < len(x); h *= 2 {
		for i := 0; i < len(x); i += 2 * h {
			for j := i; j < i+h; j++ {
				a, b := x[j], x[j+h]
				x[j], x[j+h] = a+b, a-b
			}
		}
	}
}
