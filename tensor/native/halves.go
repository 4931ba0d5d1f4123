package native

import "rag2/tensor/simd"

// The engines "native:bf16" and "native:f16" keep weights [out,in] of products in
// 16-bit elements: half the memory, and half the traffic where that is the limit. The
// buffer's elements are the rounded ones once an executable that multiplies with it has
// run. A checkpoint that
// is 16-bit already comes through BlockBuffer, on any engine of this package.
//
// Where the CPU has AVX512-BF16, "native:bf16" rounds the activations of these products to
// bfloat16 too, as "xla:…:bf16" does: pairs are multiplied and added to float32 sums in one
// instruction, twice as many as of float32. The other engines widen 16-bit weights and
// leave activations as they are: a checkpoint's type is no one's choice of speed.

// half tells whether the elements are 16-bit numbers.
func (q *blocks) half() bool {
	return q.format == simd.BlockBF16 || q.format == simd.BlockF16 || q.format == simd.BlockBF16Pairs
}

// sumsBias tells whether products with the blocks begin their sums with the bias;
// otherwise it is added to the result.
func (q *blocks) sumsBias() bool { return q.format == simd.BlockBF16Pairs }

// round rounds a matrix that the step uses whole, as [n,k], to 16 bits. The buffer is
// locked.
func (b *Buffer) round(x *execution, s *dotStep) error {
	d := b.shape.Dimensions
	if len(d) != 2 || s.b.off != 0 || s.b.row != 1 || s.b.col != s.k || d[0] != s.n || d[1] != s.k || s.k < leastInt8K || s.n < leastInt8N {
		return nil
	}
	if b.blocks != nil || b.inPanels() {
		return nil
	}
	src, err := b.elements(x, false)
	if err != nil {
		return err
	}
	p := &roundJob{format: x.exe.backend.half, dst: b.backend.panelMem.bytes(x.exe.backend.half.HalfBytes(s.n, s.k)), src: src, n: s.n, k: s.k}
	x.job = jobRef{step: p}
	x.pool.run(x, (s.n+simd.PanelWidth-1)/simd.PanelWidth)
	b.blocks = &blocks{format: p.format, data: p.dst, n: s.n, k: s.k}
	b.packs = nil
	b.dropFlat()
	return nil
}

// sumRows sums the rows of A by 32 columns when they are few enough for MatVec.
func (s *dotStep) sumRows(x *execution) {
	if s.m > matVecRows || s.a.col != 1 || x.blocks.half() {
		return
	}
	per := s.k / simd.BlockColumns
	if len(x.sums) < s.m*per {
		x.sums = make([]float32, s.m*per)
	}
	a := s.from(x, &s.a, 0)
	for r := range s.m {
		simd.BlockSums(x.sums[r*per:], a[r*s.a.row:r*s.a.row+s.k])
	}
}

// matVecRows is the number of rows up to which weights are widened in registers, once
// per row; for more they are widened to memory once per block of rows.
const matVecRows = 2

// floatTask is blockTask for K-quants and 16-bit elements.
func (s *dotStep) floatTask(x *execution, w *workerState, c []float32, cRow, m0, m1, p0, p1 int) {
	q, a := x.blocks, s.from(x, &s.a, 0)
	if s.m <= matVecRows && s.a.col == 1 && q.format != simd.BlockBF16Pairs {
		var y [simd.PanelWidth]float32
		for r := m0; r < m1; r++ {
			var sums []float32
			if !q.half() {
				sums = x.sums[r*(s.k/simd.BlockColumns):]
			}
			for p := p0; p < p1; p++ {
				simd.MatVec(q.format, &y, a[r*s.a.row:r*s.a.row+s.k], sums, q.panel(p))
				copy(c[(r-m0)*cRow+(p-p0)*simd.PanelWidth:][:min(simd.PanelWidth, s.n-p*simd.PanelWidth)], y[:])
			}
		}
		return
	}
	g := simd.Gemm{M: m1 - m0, N: min(s.n, p1*simd.PanelWidth) - p0*simd.PanelWidth, K: s.k, A: a[m0*s.a.row:], ARow: s.a.row, AK: s.a.col, C: c, CRow: cRow, Scratch: w.gemm}
	wide := w.scratch[:s.k*simd.PanelWidth] // pairs need none
	if q.half() {
		g.Half = simd.HalfPanels{Format: q.format, Data: q.data[p0*q.format.PanelBytes(q.k):], Wide: wide}
		if x.shares {
			g.Shared = x.shared
		}
		if bias := s.biasOf(x); bias != nil && q.sumsBias() {
			g.Bias = bias[p0*simd.PanelWidth:]
		}
		g.Run(0, g.M, 0, p1-p0)
		return
	}
	n := g.N
	for p := p0; p < p1; p++ {
		simd.Expand(q.format, wide, q.panel(p), 0, s.k)
		g.B, g.C, g.N = wide, c[(p-p0)*simd.PanelWidth:], min(simd.PanelWidth, n-(p-p0)*simd.PanelWidth)
		g.Run(0, g.M, 0, 1)
	}
}

// roundJob rounds one panel per task.
type roundJob struct {
	format simd.BlockFormat
	dst    []byte
	src    []float32
	n, k   int
}

func (p *roundJob) task(_ *execution, i, _ int) {
	simd.PackHalf(p.format, p.dst, p.src, p.k, p.n, 1, p.k, i, i+1)
}
