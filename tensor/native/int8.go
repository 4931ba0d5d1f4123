package native

import (
	"unsafe"

	"rag2/tensor/simd"
)

// The "native:int8" engine computes products with weights in 7-bit integers:
// weights per output channel, activations per row, both quantised here. Gathers and
// everything else stay float32. A row's result does not depend on its batch.

// rowsOfA names a quantised left operand.
type rowsOfA struct {
	v              *value
	off, row, k, m int
}

// int8For returns the weight in integers when the step is to use them.
func (s *dotStep) int8For(x *execution) *simd.Int8Weights {
	b := x.params[s.b.v.index]
	if !x.exe.backend.int8 || !b.host || b.blocks != nil || s.a.col != 1 || s.k < 32 || s.n < simd.PanelWidth {
		return nil
	}
	key := packKey{s.b.off, s.k, s.n, s.b.row, s.b.col}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.int8[key]; w != nil {
		return w
	}
	if b.int8 == nil {
		b.int8 = map[packKey]*simd.Int8Weights{}
	}
	src := unsafe.Slice((*float32)(unsafe.Add(b.base(), 4*s.b.off)), b.bytes/4-s.b.off)
	w := simd.QuantizeWeights(src, s.k, s.n, s.b.row, s.b.col)
	b.int8[key] = w
	return w
}

// quantizeStep quantises the rows of A, several per task.
type quantizeStep dotStep

const quantizeRows = 32

// prepareInt8 quantises A unless the last product had the same.
func (s *dotStep) prepareInt8(x *execution) {
	of := rowsOfA{s.a.v, s.a.off, s.a.row, s.k, s.m}
	if x.rowsOf == of {
		return
	}
	rb := simd.RowBytes(s.k)
	if len(x.rows.Data) < s.m*rb {
		x.rows.Data = make([]byte, s.m*rb)
	}
	if len(x.rows.Scale) < s.m {
		x.rows.Scale, x.rows.Zero = make([]float32, s.m), make([]int32, s.m)
	}
	x.rows.K, x.rowsOf = s.k, of
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
