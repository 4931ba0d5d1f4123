package native

import "rag2/tensor/simd"

// Products with weights in blocks: the activations are quantised to 16 bits, each 32
// columns of a row by themselves (see simd.Rows16), and multiplied as integers. A
// row's result does not depend on its batch.

// rows16Step quantises the rows of A, several per task.
type rows16Step dotStep

// floats16 is the number of activations that one task quantises.
const floats16 = 6 << 10

// prepareBlocks quantises A unless the last product had the same.
func (s *dotStep) prepareBlocks(x *execution) {
	of := rowsOfA{s.a.v, s.a.off, s.a.row, s.k, s.m}
	if s.a.col != 1 || x.of16 == of {
		return
	}
	if n := s.m * simd.Rows16Bytes(s.k); len(x.rows16.Data) < n {
		x.rows16.Data = make([]byte, n)
	}
	x.rows16.K, x.of16 = s.k, of
	x.job = jobRef{step: (*rows16Step)(s)}
	x.pool.run(x, (s.m*s.k+floats16-1)/floats16)
}

func (q *rows16Step) task(x *execution, i, _ int) {
	s := (*dotStep)(q)
	a := s.from(x, &s.a, 0)
	tasks := (s.m*s.k + floats16 - 1) / floats16
	for r := s.m * i / tasks; r < s.m*(i+1)/tasks; r++ {
		x.rows16.Set(r, a[r*s.a.row:r*s.a.row+s.k])
	}
}

// blockTask computes rows m0 … m1 of C for panels p0 … p1 from a weight in blocks.
func (s *dotStep) blockTask(x *execution, w *workerState, c []float32, cRow, m0, m1, p0, p1 int) {
	q := x.blocks
	if q.format.ByFloats() {
		s.floatTask(x, w, c, cRow, m0, m1, p0, p1)
		return
	}
	fetch := 0
	if s.m > 1 { // one row is bound by memory itself
		fetch = simd.FetchBytes(s.k)
	}
	for p := p0; p < p1; p++ {
		dst, n := c[(p-p0)*simd.PanelWidth:], min(simd.PanelWidth, s.n-p*simd.PanelWidth)
		switch {
		case s.a.col != 1:
			wide := w.scratch[:s.k*simd.PanelWidth]
			simd.Expand(q.format, wide, q.panel(p), 0, s.k)
			g := simd.Gemm{M: m1 - m0, N: n, K: s.k, A: s.from(x, &s.a, 0)[m0*s.a.row:], ARow: s.a.row, AK: s.a.col, B: wide, C: dst, CRow: cRow}
			g.Run(0, g.M, 0, 1)
		case n == simd.PanelWidth:
			simd.BlockProduct(q.format, dst, cRow, &x.rows16, m0, m1, q.panel(p), w.next(x, fetch))
		default: // the matrix ends within the panel
			var row [simd.PanelWidth]float32
			for r := m0; r < m1; r++ {
				simd.BlockProduct(q.format, row[:], simd.PanelWidth, &x.rows16, r, r+1, q.panel(p), nil)
				copy(dst[(r-m0)*cRow:][:n], row[:])
			}
		}
	}
}
