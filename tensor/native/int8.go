package native

import "rag2/tensor/simd"

// The "native:int8" engine computes products with weights in integers of 7
// bits, 8 with VNNI, scaled by output channel and by row, in groups along the contracted
// axis, both quantised here. Gathers and
// everything else stay float32. A row's result does not depend on its batch.

// leastInt8K and leastInt8N are the smallest depth and number of columns that are
// computed in integers, or kept in 16 bits.
const leastInt8K, leastInt8N = 32, simd.PanelWidth

// ProductBytes is what a float32 matrix [out,in] takes that only products read.
func (b *Backend) ProductBytes(out, in int) int64 {
	switch {
	case in < leastInt8K || out < leastInt8N:
	case b.int8:
		return int64(simd.Int8Bytes(in, out))
	case b.half != 0:
		return int64(b.half.HalfBytes(out, in))
	}
	return int64(4 * in * out)
}

// rowsOfA names a quantised left operand.
type rowsOfA struct {
	v              *value
	off, row, k, m int
}

// integers is the buffer's weight in integers, when the step is to use them. The
// buffer is locked. Flat memory that can be read again goes.
func (b *Buffer) integers(x *execution, s *dotStep) (*simd.Int8Weights, error) {
	if s.a.col != 1 || s.k < leastInt8K || s.n < leastInt8N {
		return nil, nil
	}
	key := s.key()
	if w := b.int8[key]; w != nil {
		return w, nil
	}
	src, err := b.elements(x, x.exe.kept(s))
	if err != nil {
		return nil, err
	}
	w := simd.NewInt8Weights(s.k, s.n, b.backend.panelMem.bytes)
	x.job = jobRef{step: &quantizeJob{s, w, src[s.b.off:]}}
	x.pool.run(x, s.panels())
	if b.int8 == nil {
		b.int8 = map[packKey]*simd.Int8Weights{}
	}
	b.int8[key] = w
	if b.source != nil && !x.exe.kept(s) {
		b.dropFlat()
	}
	return w, nil
}

// quantizeJob quantises a panel of a weight per task.
type quantizeJob struct {
	s   *dotStep
	dst *simd.Int8Weights
	src []float32
}

func (q *quantizeJob) task(_ *execution, i, _ int) {
	q.dst.Quantize(q.src, q.s.b.row, q.s.b.col, i, i+1)
}

// quantizeStep quantises the rows of A, several per task.
type quantizeStep dotStep

const quantizeRows = 8

// prepareInt8 quantises A unless the last product had the same.
func (s *dotStep) prepareInt8(x *execution) {
	of := rowsOfA{s.a.v, s.a.off, s.a.row, s.k, s.m}
	if x.rowsOf == of {
		return
	}
	x.rows.Resize(s.m, s.k)
	x.rowsOf = of
	x.job = jobRef{step: (*quantizeStep)(s)}
	x.pool.run(x, (s.m+quantizeRows-1)/quantizeRows)
}

func (q *quantizeStep) task(x *execution, i, _ int) {
	s := (*dotStep)(q)
	a := s.from(x, &s.a, 0)
	for r := i * quantizeRows; r < min(s.m, (i+1)*quantizeRows); r++ {
		x.rows.Set(r, a[r*s.a.row:r*s.a.row+s.k])
	}
}
