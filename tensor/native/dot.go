package native

import (
	"slices"
	"unsafe"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
)

// dotStep is a float32 DotGeneral: for every batch C[m,n] = A[m,k]·B[k,n].
type dotStep struct {
	m, n, k int
	batch   []int // dims
	a, b    operand
	c       *value
	cBatch  []int
	cRow    int
	mode    packMode
	packed  *value // packRun: [batches][PackedLen]
	packAt  int    // packTask: where in the scratch
	aGiven  bool   // A comes piece by piece, in a chain

	bias operand     // v may be nil: n floats that every row's sums begin with
	epi  *rowProgram // of the rows of C, which then is not in memory itself

	tm, tn int // tasks along m and n
	weight int // packWeight: which of the executable's weights
}

// operand is a strided matrix: its rows are m of A, k of B.
type operand struct {
	v        *value
	off      int
	batch    []int // strides
	row, col int
}

// packMode says how B comes to its panels.
type packMode uint8

const (
	packDirect packMode = iota // not: columns are neighbours in memory
	packWeight                 // a parameter: once per buffer
	packRun                    // at the beginning of the step
	packTask                   // per batch, in the worker's scratch
)

func pick(dims, strides, axes []int) (d, s []int) {
	for _, a := range axes {
		d, s = append(d, dims[a]), append(s, strides[a])
	}
	return
}

func rest(rank int, used ...[]int) (out []int) {
	for a := range rank {
		if !slices.Contains(used[0], a) && !slices.Contains(used[1], a) {
			out = append(out, a)
		}
	}
	return
}

// dot lowers a DotGeneral.
func (c *compiler) dot(n *node) error {
	at := n.attr.(dotAttr)
	l, r := n.in[0], n.in[1]
	ld, rd := l.shape.Dimensions, r.shape.Dimensions
	lm, rn := rest(len(ld), at.lb, at.lc), rest(len(rd), at.rb, at.rc)
	batch, _ := pick(ld, ld, at.lb)
	md, _ := pick(ld, ld, lm)
	nd, _ := pick(rd, rd, rn)
	kd, _ := pick(ld, ld, at.lc)
	m, nn, k := product(md), product(nd), product(kd)
	lw, rw := c.views[l], c.views[r]
	if n.shape.DType != dtypes.Float32 || n.shape.Size() == 0 {
		f, err := dotFunc(n.shape.DType, product(batch), m, nn, k)
		if n.shape.Size() == 0 {
			f, err = func([]byte, [][]byte) {}, nil
		}
		if err != nil {
			return err
		}
		a := c.copyOf(n.id, lw.transpose(slices.Concat(at.lb, lm, at.lc)), l.shape.DType)
		b := c.copyOf(n.id, rw.transpose(slices.Concat(at.rb, rn, at.rc)), r.shape.DType)
		c.generic(n, f, a, b)
		return nil
	}
	a, ok := strided(lw, at.lb, lm, at.lc)
	if !ok {
		v := c.copyOf(n.id, lw.transpose(slices.Concat(at.lb, lm, at.lc)), dtypes.Float32)
		a = operand{v: v, batch: contiguous(append(slices.Clone(batch), m*k))[:len(batch)], row: k, col: 1}
	}
	b, ok := strided(rw, at.rb, at.rc, rn)
	if !ok {
		v := c.copyOf(n.id, rw.transpose(slices.Concat(at.rb, at.rc, rn)), dtypes.Float32)
		b = operand{v: v, batch: contiguous(append(slices.Clone(batch), nn*k))[:len(batch)], row: nn, col: 1}
	}
	u := c.newUnit(n)
	u.inputs = []*value{a.v, b.v}
	out := c.newValue(n.shape, u)
	s := &dotStep{m: m, n: nn, k: k, batch: batch, a: a, b: b, c: out, cRow: nn, cBatch: contiguous(append(slices.Clone(batch), m*nn))[:len(batch)]}
	u.step = s
	c.dots[out] = s
	c.views[n] = wholeView(out, n.shape.Dimensions)
	return nil
}

// strided sees a view as matrices, when the axes of rows and of columns are runs.
func strided(w view, batch, rows, cols []int) (operand, bool) {
	o := operand{v: w.v, off: w.off}
	_, o.batch = pick(w.dims, w.strides, batch)
	var ok1, ok2 bool
	o.row, ok1 = single(pick(w.dims, w.strides, rows))
	o.col, ok2 = single(pick(w.dims, w.strides, cols))
	return o, ok1 && ok2
}

// foldTranspose lets a DotGeneral write its result in the order of a transpose that
// is its only use.
func (c *compiler) foldTranspose(n *node) (view, bool) {
	d := n.in[0]
	s := c.dots[c.views[d].v]
	if d.op != backends.OpTypeDotGeneral || s == nil || c.uses[d] != 1 {
		return view{}, false
	}
	perm := n.attr.([]int)
	strides := make([]int, len(perm)) // of the result's axes in the transposed memory
	for i, st := range contiguous(n.shape.Dimensions) {
		strides[perm[i]] = st
	}
	dims := d.shape.Dimensions
	nb := len(s.batch)
	// Axes after the batch: those of m, then those of n.
	split := nb
	for p := 1; split < len(dims) && p < s.m; split++ {
		p *= dims[split]
	}
	for split < len(dims) && product(dims[split:]) > s.n {
		split++
	}
	row, ok1 := single(dims[nb:split], strides[nb:split])
	col, ok2 := single(dims[split:], strides[split:])
	if !ok1 || !ok2 || (col != 1 && s.n > 1) {
		return view{}, false
	}
	s.cBatch, s.cRow = strides[:nb], row
	return wholeView(s.c, n.shape.Dimensions), true
}

// plan chooses the packing and the tasks.
func (s *dotStep) plan(c *compiler, u *unit, threads int) {
	nb := product(s.batch)
	panels := (s.n + simd.PanelWidth - 1) / simd.PanelWidth
	switch {
	case s.b.v.kind == parameter && nb == 1 && (s.b.col != 1 || s.m > 1):
		s.mode = packWeight
	case (s.b.col == 1 || s.n == 1) && (s.b.row != 0 || s.k == 1) && (s.m <= 12 || s.k*s.n < 256):
		s.mode = packDirect
	case nb > 1 && s.k*s.n <= 1<<17:
		s.mode = packTask
	default:
		s.mode = packRun
		v := &value{id: len(c.values), dtype: dtypes.Float32, size: nb * simd.PackedLen(s.k, s.n), unit: u}
		c.values = append(c.values, v)
		u.writes = append(u.writes, v)
		s.packed = v
	}
	s.tm, s.tn = 1, 1
	if nb < 4*threads {
		macs := s.m * s.n * max(s.k, 1)
		least := 256 << 10 // multiply-adds worth a hand-over
		if s.m <= 2 {
			least = 48 << 10 // bound by memory
		}
		most := 8 * threads
		if s.m < 96 { // a piece's first panels are waited for
			most = 4 * threads
		}
		want := min(most, max(1, nb*macs/least)) / nb
		s.tm = max(1, min(want, s.m/48))
		if s.epi == nil || !s.epi.fullRow {
			s.tn = (want + s.tm - 1) / s.tm
			if s.epi != nil && s.m <= simd.PanelWidth { // short pieces of rows cost a program's start each
				s.tn = min(s.tn, max(threads, s.n/256))
			}
			if s.tm == 1 && s.tn > 1 { // as many for each
				s.tn = (s.tn + threads - 1) / threads * threads
			}
			s.tn = max(1, min(s.tn, (panels+simd.TilePanels()-1)/simd.TilePanels()))
		} else if s.tm == 1 {
			s.tm = max(1, min(want, s.m/6))
		}
		if k := s.m / 64; s.tm > 1 && k >= s.tm {
			s.tm = k
			s.tn = 1
		}
	}
}

// blockFloats bounds the piece of C that an epilogue takes over in cache: CPUs with
// AVX-512 have 1 MiB of L2, the others may have half or a quarter of that.
func blockFloats() int {
	if simd.Level >= simd.AVX512 {
		return 64 << 10
	}
	return 32 << 10
}

// blockCols is the number of its columns where rows may be cut: A is packed again for
// every such piece, which at 256 columns took a tenth of the time at AVX-512.
func blockCols() int {
	if simd.Level >= simd.AVX512 {
		return 1024
	}
	return 256
}

// block is the size of that piece.
func (s *dotStep) block() (rows, cols int) {
	cols = s.n
	if !s.epi.fullRow {
		cols = min(cols, max(blockCols(), s.epi.tileW))
		cols = (cols + simd.PanelWidth - 1) / simd.PanelWidth * simd.PanelWidth
	}
	unit := simd.TileRows()
	rows = max(unit, blockFloats()/cols/unit*unit)
	return min(rows, s.m), cols
}

func (s *dotStep) regs() int {
	if s.epi != nil {
		return s.epi.nregs
	}
	return 0
}

// Scratch of a worker: the panels of packTask, the piece of C, the program's registers.
func (s *dotStep) packFloats() int {
	switch s.mode {
	case packTask:
		return simd.PackedLen(s.k, s.n)
	case packWeight: // a panel, when the weight is in blocks
		return s.k * simd.PanelWidth
	}
	return 0
}

func (s *dotStep) scratch() int {
	n := s.packFloats()
	if s.epi != nil {
		r, c := s.block()
		n += r*c + 16 + s.epi.floats
	}
	return n + 16
}

func (s *dotStep) run(x *execution) {
	nb := product(s.batch)
	switch s.mode {
	case packRun:
		x.job = jobRef{step: (*packJob)(s)}
		x.pool.run(x, nb*(*packJob)(s).pieces())
	case packWeight:
		s.takeWeight(x)
		x.shares = s.shareRows(x)
	}
	x.job = jobRef{step: s}
	x.turns.deal(s.tn)
	x.pool.run(x, nb*s.tm*s.tn)
	x.panels, x.blocks, x.int8, x.shares = nil, nil, nil, false
}

// shareRows packs A once for all pieces, which otherwise each do so, unless the last
// product had the same A. It is for few rows: the pieces have all of them.
func (s *dotStep) shareRows(x *execution) bool {
	var f simd.BlockFormat // of B; 0 = float32
	if x.blocks != nil && x.blocks.format == simd.BlockBF16Pairs {
		f = x.blocks.format
	}
	if x.panels == nil && f == 0 || s.tm > 1 || s.tn < 2 || s.a.col != 1 {
		return false
	}
	if s.epi != nil {
		if rows, _ := s.block(); rows < s.m {
			return false
		}
	}
	floats, tasks := simd.SharedRows(f, s.m, s.k)
	if floats == 0 {
		return false
	}
	of := rowsOfA{s.a.v, s.a.off, s.a.row, s.k, s.m}
	if x.sharedA != of || x.sharedAs != f {
		if len(x.shared) < floats {
			x.shared = make([]float32, floats)
		}
		x.sharedA, x.sharedAs = of, f
		x.job = jobRef{step: (*shareStep)(s)}
		x.pool.run(x, tasks)
	}
	return true
}

// shareStep packs a tile's rows for one pass.
type shareStep dotStep

func (q *shareStep) task(x *execution, i, _ int) {
	s := (*dotStep)(q)
	simd.PackShared(x.sharedAs, x.shared, s.from(x, &s.a, 0), s.a.row, s.m, s.k, i)
}

// packJob packs B of all batches.
type packJob dotStep

func (p *packJob) pieces() int {
	return max(1, min((p.n+simd.PanelWidth-1)/simd.PanelWidth, p.n*p.k>>16))
}

func (p *packJob) task(x *execution, i, _ int) {
	s := (*dotStep)(p)
	n := p.pieces()
	panels := (s.n + simd.PanelWidth - 1) / simd.PanelWidth
	size := simd.PackedLen(s.k, s.n)
	dst := x.floats(s.packed)[i/n*size : (i/n+1)*size]
	simd.Pack(dst, s.from(x, &s.b, i/n), s.k, s.n, s.b.row, s.b.col, panels*(i%n)/n, panels*(i%n+1)/n)
}

// panels is the number of panels of B.
func (s *dotStep) panels() int { return (s.n + simd.PanelWidth - 1) / simd.PanelWidth }

// from is the operand's memory from the first element of batch i on.
func (s *dotStep) from(x *execution, o *operand, i int) []float32 {
	at := o.off + batchOffset(i, s.batch, o.batch)
	return unsafe.Slice((*float32)(unsafe.Add(x.base[o.v.id], 4*at)), o.v.size-at)
}

func batchOffset(i int, dims, strides []int) int {
	at := 0
	for j := len(dims) - 1; j >= 0; j-- {
		at += i % dims[j] * strides[j]
		i /= dims[j]
	}
	return at
}

// gemm prepares the product of batch i; C is not set.
func (s *dotStep) gemm(x *execution, w *workerState, i int) simd.Gemm {
	g := simd.Gemm{M: s.m, N: s.n, K: s.k, ARow: s.a.row, AK: s.a.col, Scratch: w.gemm}
	if !s.aGiven {
		g.A = s.from(x, &s.a, i)
	}
	g.Bias = s.biasOf(x)
	if x.shares {
		g.Shared = x.shared
	}
	switch s.mode {
	case packDirect:
		g.B, g.BK = s.from(x, &s.b, i), max(s.b.row, 1)
	case packWeight:
		g.B = x.panels
	case packRun:
		size := simd.PackedLen(s.k, s.n)
		g.B = x.floats(s.packed)[i*size : (i+1)*size]
	case packTask:
		g.B = w.scratch[s.packAt : s.packAt+s.packLen()]
		simd.Pack(g.B, s.from(x, &s.b, i), s.k, s.n, s.b.row, s.b.col, 0, (s.n+simd.PanelWidth-1)/simd.PanelWidth)
	}
	return g
}

// biasOf is the bias, nil when there is none.
func (s *dotStep) biasOf(x *execution) []float32 {
	if s.bias.v == nil {
		return nil
	}
	return x.floats(s.bias.v)[s.bias.off : s.bias.off+s.n]
}

// rowRange is the share of task tm: whole tiles while there are many.
func (s *dotStep) rowRange(tm int) (m0, m1 int) {
	m0, m1 = s.m*tm/s.tm, s.m*(tm+1)/s.tm
	if unit := simd.TileRows(); s.m >= 2*unit*s.tm {
		m0 = m0 / unit * unit
		if tm+1 < s.tm {
			m1 = m1 / unit * unit
		}
	}
	return
}

// piece is the panels of piece tn: whole tiles.
func (s *dotStep) piece(tn int) (p0, p1 int) {
	panels, unit := s.panels(), simd.TilePanels()
	units := (panels + unit - 1) / unit
	return min(panels, units*tn/s.tn*unit), min(panels, units*(tn+1)/s.tn*unit)
}

func (s *dotStep) task(x *execution, i, worker int) {
	w := &x.workers[worker]
	tn, tm := i%s.tn, i/s.tn%s.tm
	i /= s.tn * s.tm
	m0, m1 := s.rowRange(tm)
	if s.mode == packWeight && s.tm == 1 {
		tn = x.turns.take(worker)
	}
	p0, p1 := s.piece(tn)
	if s.epi == nil && s.quantized(x, w, x.floats(s.c)[min(s.c.size, m0*s.cRow+p0*simd.PanelWidth):], s.cRow, m0, m1, p0, p1) {
		return
	}
	g := s.gemm(x, w, i)
	if s.epi == nil {
		at := batchOffset(i, s.batch, s.cBatch)
		g.C, g.CRow = x.floats(s.c)[at:], s.cRow
		g.Run(m0, m1, p0, p1)
		return
	}
	rows, cols := s.block()
	mem := w.scratch[s.packFloats():]
	block, mem := mem[:rows*cols], mem[(rows*cols+15)/16*16:]
	s.epi.begin(w, mem)
	for p := p0; p < p1; p += cols / simd.PanelWidth {
		q := min(p1, p+max(1, cols/simd.PanelWidth))
		if s.epi.fullRow {
			q = p1
		}
		for r := m0; r < m1; r += rows {
			end := min(m1, r+rows)
			if !s.quantized(x, w, block, min(s.n, q*simd.PanelWidth)-p*simd.PanelWidth, r, end, p, q) {
				s.product(&g, block, r, end, p, q)
			}
			f := given{v: s.c, data: block, ld: min(s.n, q*simd.PanelWidth) - p*simd.PanelWidth, r0: i*s.m + r, c0: p * simd.PanelWidth}
			s.epilogue(x, w, mem, &f, nil, i*s.m+r, i*s.m+end, p*simd.PanelWidth, min(s.n, q*simd.PanelWidth))
		}
		if s.epi.fullRow {
			break
		}
	}
}

// product computes rows r … end and panels p … q into block, rows without gaps.
func (s *dotStep) product(g *simd.Gemm, block []float32, r, end, p, q int) {
	h := *g
	h.M = end - r
	h.A = g.A[r*g.ARow:]
	h.N = min(s.n, q*simd.PanelWidth) - p*simd.PanelWidth
	if g.BK == 0 {
		h.B = g.B[p*simd.PanelWidth*s.k:]
	} else {
		h.B = g.B[p*simd.PanelWidth:]
	}
	if g.Bias != nil {
		h.Bias = g.Bias[p*simd.PanelWidth:]
	}
	h.C, h.CRow = block, h.N
	h.Run(0, h.M, 0, q-p)
}

// epilogue runs the program on rows r … end and columns c0 … c1.
func (s *dotStep) epilogue(x *execution, w *workerState, mem []float32, from, to *given, r, end, c0, c1 int) {
	e := s.epi
	if c1-c0 == s.n && e.tileW == s.n {
		for ; r < end; r += e.tileR {
			e.tile(x, w, mem, r, min(e.tileR, end-r), 0, s.n, from, to)
		}
		return
	}
	for ; r < end; r++ {
		for c := c0; c < c1; c += e.tileW {
			e.tile(x, w, mem, r, 1, c, min(e.tileW, c1-c), from, to)
		}
	}
}
