package native

import (
	"slices"
	"unsafe"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// opAttention replaces a division that ends masked attention over one or several
// segments of keys and values (a cache, a shared cache, the rows at hand):
//
//	sᵢ = DotGeneral(q, Kᵢ)            q [B,T,H,G,D], over D; batch axes B and H
//	wᵢ = Where(maskᵢ, sᵢ, -1e30)      [B,H,T,G,n]
//	eᵢ = Exp(wᵢ - max over all)
//	y  = Σ DotGeneral(eᵢ, Vᵢ) / Σ ReduceSum(eᵢ)
//
// Kᵢ is [B,n,H,D] or [B,H,n,D], or in panels [B,H,n/16,D,16] whose product is
// reshaped. The step visits only the columns that the masks of its rows span, so that
// its cost does not depend on the capacity of a cache.
const opAttention = backends.OpType(1 << 20)

// leastFill is the largest value of masked scores that is taken as minus infinity.
const leastFill = -1e29

// attentionAttr tells the axes of the inputs, which are q, then K, V, mask of each
// segment.
type attentionAttr struct {
	panels []bool // K is in panels
	k, v   [][3]int
}

// matchAttention finds the pattern in all nodes.
func (b *Builder) matchAttention() {
	for _, n := range b.nodes {
		if n.op != backends.OpTypeDiv || n.shape.DType != dtypes.Float32 || n.shape.Rank() != 5 {
			continue
		}
		if a, in, ok := attentionOf(n); ok {
			n.op, n.attr, n.in = opAttention, a, in
		}
	}
}

// perRowOf looks through what repeats a value per row along new last axes.
func perRowOf(n *node) *node {
	for {
		switch n.op {
		case backends.OpTypeBroadcastInDim:
			for i, a := range n.attr.([]int) {
				if i != a {
					return n
				}
			}
		case backends.OpTypeReshape:
			d, from := n.shape.Dimensions, n.in[0].shape.Dimensions
			k := min(len(d), len(from))
			if !slices.Equal(d[:k], from[:k]) || product(d[k:]) != 1 || product(from[k:]) != 1 {
				return n
			}
		case backends.OpTypeIdentity:
		default:
			return n
		}
		n = n.in[0]
	}
}

// terms are the operands of a tree of op.
func terms(n *node, op backends.OpType) []*node {
	if n = perRowOf(n); n.op != op {
		return []*node{n}
	}
	return append(terms(n.in[0], op), terms(n.in[1], op)...)
}

// isFill tells whether n is one large negative constant.
func isFill(n *node) bool {
	for n.op == backends.OpTypeBroadcastInDim || n.op == backends.OpTypeReshape {
		n = n.in[0]
	}
	return n.op == backends.OpTypeConstant && n.shape.Size() == 1 && cast[float32](n.attr.([]byte))[0] <= leastFill
}

func attentionOf(n *node) (a attentionAttr, in []*node, ok bool) {
	var q *node
	products, sums := terms(n.in[0], backends.OpTypeAdd), terms(n.in[1], backends.OpTypeAdd)
	if len(products) != len(sums) {
		return a, nil, false
	}
	var top *node
	var tops []*node
	for i, p := range products {
		if p.op != backends.OpTypeDotGeneral || sums[i].op != backends.OpTypeReduceSum || !slices.Equal(p.shape.Dimensions, n.shape.Dimensions) {
			return a, nil, false
		}
		e, v, at := p.in[0], p.in[1], p.attr.(dotAttr)
		if e.op != backends.OpTypeExp || sums[i].in[0] != e || !slices.Equal(sums[i].attr.([]int), []int{4}) || e.in[0].op != backends.OpTypeSub ||
			e.shape.Rank() != 5 || v.shape.Rank() != 4 || !slices.Equal(at.lb, []int{0, 1}) || !slices.Equal(at.lc, []int{4}) || len(at.rb) != 2 || slices.Contains(append(at.rc, at.rb...), 3) {
			return a, nil, false
		}
		w, t := e.in[0].in[0], perRowOf(e.in[0].in[1])
		if i == 0 {
			top = t
			tops = terms(top, backends.OpTypeMax)
			if len(tops) != len(products) {
				return a, nil, false
			}
		}
		if w.op != backends.OpTypeWhere || tops[i].op != backends.OpTypeReduceMax || tops[i].in[0] != w || !slices.Equal(tops[i].attr.([]int), []int{4}) || t != top {
			return a, nil, false
		}
		s := w.in[1]
		if s.op == backends.OpTypeReshape && slices.Equal(s.shape.Dimensions[:4], s.in[0].shape.Dimensions[:min(4, s.in[0].shape.Rank())]) {
			s = s.in[0]
		}
		if s.op != backends.OpTypeDotGeneral || i > 0 && s.in[0] != q || !slices.Equal(w.in[0].shape.Dimensions, w.shape.Dimensions) || !isFill(w.in[2]) {
			return a, nil, false
		}
		q = s.in[0]
		k, kt := s.in[1], s.attr.(dotAttr)
		if q.shape.Rank() != 5 || !slices.Equal(kt.lb, []int{0, 2}) || !slices.Equal(kt.lc, []int{4}) || len(kt.rb) != 2 {
			return a, nil, false
		}
		panels := k.shape.Rank() == 5
		switch {
		case panels:
			if !slices.Equal(kt.rb, []int{0, 1}) || !slices.Equal(kt.rc, []int{3}) || s == w.in[1] || k.shape.Dimensions[4] != simd.PanelWidth {
				return a, nil, false
			}
			a.k = append(a.k, [3]int{0, 1, 2})
		default:
			if k.shape.Rank() != 4 || !slices.Equal(kt.rc, []int{3}) || s != w.in[1] {
				return a, nil, false
			}
			a.k = append(a.k, [3]int{kt.rb[0], kt.rb[1], 6 - 3 - kt.rb[0] - kt.rb[1]})
		}
		a.panels = append(a.panels, panels)
		a.v = append(a.v, [3]int{at.rb[0], at.rb[1], at.rc[0]})
		in = append(in, k, v, w.in[0])
	}
	d, qd := n.shape.Dimensions, q.shape.Dimensions
	if !slices.Equal(d, []int{qd[0], qd[2], qd[1], qd[3], qd[4]}) { // values as wide as keys
		return a, nil, false
	}
	return a, append([]*node{q}, in...), true
}

// attentionStep runs it, for each batch, head and some of the rows a task.
type attentionStep struct {
	b, t, h, g, d int
	q             *value
	qOff          int
	qs            [4]int // strides of B, T, H, G
	out           *value
	segments      []segment
	columns       int // of all segments
	rows          int // of T in a task
}

// segment is a part of the keys; strides are of batch, head and column.
type segment struct {
	n          int
	panels     bool
	k, v       *value
	kOff, vOff int
	ks, vs     [3]int
	mask       view   // [B,H,T,G,n]
	spans      *value // of the mask's rows: from, to, and whether all between is true
	at         [4]int // strides of B, H, T, G in it, in rows
}

// attentionFloats bounds the scores of a task, which stay in L2.
const attentionFloats = 32 << 10

// attention lowers the node.
func (c *compiler) attention(n *node) {
	a := n.attr.(attentionAttr)
	dims := n.shape.Dimensions
	s := &attentionStep{b: dims[0], h: dims[1], t: dims[2], g: dims[3], d: dims[4]}
	last := func(x *node) view { // the last axis is contiguous
		w := c.views[x]
		if k := len(w.dims) - 1; w.dims[k] > 1 && w.strides[k] != 1 {
			return wholeView(c.contiguous(x), x.shape.Dimensions)
		}
		return w
	}
	w := last(n.in[0])
	s.q, s.qOff, s.qs = w.v, w.off, [4]int(w.strides[:4])
	inputs := []*value{w.v}
	for i, panels := range a.panels {
		kn, vn, mn := n.in[3*i+1], n.in[3*i+2], n.in[3*i+3]
		k, v := last(kn), last(vn)
		if panels && (k.strides[3] != simd.PanelWidth || k.dims[2] > 1 && k.strides[2] != s.d*simd.PanelWidth) {
			k = wholeView(c.contiguous(kn), kn.shape.Dimensions)
		}
		g := segment{n: mn.shape.Dimensions[4], panels: panels, k: k.v, kOff: k.off, v: v.v, vOff: v.off, mask: c.views[mn]}
		for j := range 3 {
			g.ks[j], g.vs[j] = k.strides[a.k[i][j]], v.strides[a.v[i][j]]
		}
		g.spans, g.at = c.spans(n, g.mask)
		s.columns += (g.n + simd.PanelWidth) / simd.PanelWidth * simd.PanelWidth
		s.segments = append(s.segments, g)
		inputs = append(inputs, k.v, v.v, g.mask.v, g.spans)
	}
	u := c.newUnit(n)
	u.inputs, u.step = inputs, s
	s.out = c.newValue(n.shape, u)
	c.views[n] = wholeView(s.out, dims)
	s.rows = max(1, min(s.t, 48/s.g, attentionFloats/(s.columns*s.g)))
}

// spanKey tells masks apart.
type spanKey struct {
	v    *value
	off  int
	dims [5]int
	st   [5]int
}

// spans adds a step that finds the span of true elements of every row of a mask;
// rows that are one by broadcasting are one there. One step serves all layers.
func (c *compiler) spans(n *node, m view) (*value, [4]int) {
	key := spanKey{m.v, m.off, [5]int(m.dims), [5]int(m.strides)}
	var dims []int
	var at [4]int
	for i := range 4 {
		d := m.dims[i]
		if m.strides[i] == 0 {
			d = 1
		}
		dims = append(dims, d)
	}
	for i, st := range contiguous(dims) {
		if dims[i] > 1 {
			at[i] = st
		}
	}
	if v := c.masks[key]; v != nil {
		return v, at
	}
	u := c.newUnit(n)
	u.inputs = []*value{m.v}
	v := c.newValue(shapes.Make(dtypes.Int32, 3*product(dims)), u)
	u.step = &spanStep{out: v, mask: m, dims: dims}
	if c.masks == nil {
		c.masks = map[spanKey]*value{}
	}
	c.masks[key] = v
	return v, at
}

// spanStep looks at masks once per call.
type spanStep struct {
	out  *value
	mask view
	dims []int
}

func (s *spanStep) scratch() int { return 0 }

func (s *spanStep) run(x *execution) {
	out := cast[int32](x.bytes(s.out))
	n, step := s.mask.dims[4], s.mask.strides[4]
	for r := range product(s.dims) {
		at := unsafe.Add(x.base[s.mask.v.id], s.mask.off+batchOffset(r, s.dims, s.mask.strides[:4]))
		from, to, count := n, 0, 0
		if step == 1 {
			from, to, count = span(unsafe.Slice((*byte)(at), n))
		} else {
			for j := range n {
				if *(*byte)(unsafe.Add(at, j*step)) != 0 {
					from, to, count = min(from, j), j+1, count+1
				}
			}
		}
		whole := int32(0)
		if count == to-from {
			whole = 1
		}
		out[3*r], out[3*r+1], out[3*r+2] = int32(min(from, to)), int32(to), whole
	}
}

// span is the first true element, the one after the last, and the number of them.
func span(m []byte) (from, to, count int) {
	from = len(m)
	for i := 0; i < len(m); i++ {
		if i+8 <= len(m) {
			switch w := *(*uint64)(unsafe.Pointer(&m[i])); w {
			case 0:
				i += 7
				continue
			case 0x0101010101010101:
				from, to, count = min(from, i), i+8, count+8
				i += 7
				continue
			}
		}
		if m[i] != 0 {
			from, to, count = min(from, i), i+1, count+1
		}
	}
	return
}

func (s *attentionStep) scratch() int {
	rows, pack := s.rows*s.g, 0
	for i := range s.segments {
		if g := &s.segments[i]; !g.panels {
			pack = max(pack, simd.PackedLen(s.d, g.n))
		}
	}
	return evenRows(rows)*(s.columns+2*s.d+1) + 1 + pack + 16
}

// evenRows adds rows so that none falls into a kernel of fewer than four, which sums in
// another order: what a row gives does not depend on its company, nor on where
// segments end.
func evenRows(n int) int {
	if n == 7 { // two tiles
		return 8
	}
	return max(n, 4)
}

func (s *attentionStep) blocks() int { return (s.t + s.rows - 1) / s.rows }

func (s *attentionStep) run(x *execution) {
	x.job = jobRef{step: s}
	x.turns.deal(s.tasks())
	x.pool.run(x, s.tasks())
}

func (s *attentionStep) tasks() int { return s.b * s.h * s.blocks() }

// at is the head, the batch and the first row of a task. Batches follow each other: what
// they share is in cache.
func (s *attentionStep) at(i int) (h, b, t0 int) {
	blocks := s.blocks()
	return i / (blocks * s.b), i / blocks % s.b, i % blocks * s.rows
}

func (s *attentionStep) task(x *execution, _, worker int) {
	i := x.turns.take(worker)
	h, b, t0 := s.at(i)
	nextH, nextB, _ := s.at(min(i+1, s.tasks()-1))
	nt := min(s.rows, s.t-t0)
	used := nt * s.g
	rows := evenRows(used)
	mem := x.workers[worker].scratch
	q, mem := mem[:rows*s.d], mem[rows*s.d:]
	o, mem := mem[:rows*s.d], mem[rows*s.d:]
	z, mem := mem[:used], mem[used:]
	top, mem := mem[:1], mem[1:] // the kernels take pointers
	clear(q[used*s.d:])
	for t := range nt {
		for g := range s.g {
			at := s.qOff + b*s.qs[0] + (t0+t)*s.qs[1] + h*s.qs[2] + g*s.qs[3]
			copy(q[(t*s.g+g)*s.d:][:s.d], unsafe.Slice((*float32)(unsafe.Add(x.base[s.q.id], 4*at)), s.d))
		}
	}
	// The columns that any row sees.
	var spans [8][2]int
	seg, total := spans[:0], 0
	for j := range s.segments {
		from, to := s.segments[j].seen(x, b, h, t0, nt, s.g)
		seg = append(seg, [2]int{from, to})
		total += to - from
	}
	if s.blind(x, b, h, t0, nt) { // its scores are equal, everywhere
		total = 0
		for j := range seg {
			seg[j] = [2]int{0, s.segments[j].n}
			total += s.segments[j].n
		}
	}
	scores, mem := mem[:rows*total], mem[rows*total:]
	col := 0
	for j, span := range seg {
		s.score(x, &s.segments[j], b, h, span, q, scores[col:], total, rows, mem)
		col += span[1] - span[0]
	}
	s.softmax(x, b, h, t0, seg, scores[:used*total], z, top)
	col = 0
	for j, span := range seg {
		g, n := &s.segments[j], span[1]-span[0]
		if n == 0 {
			continue
		}
		at := g.vOff + b*g.vs[0] + h*g.vs[1] + span[0]*g.vs[2]
		// The worker's next keys are fetched meanwhile.
		next := unsafe.Add(x.base[g.k.id], 4*(g.kOff+nextB*g.ks[0]+nextH*g.ks[1]))
		if rows == 4 && simd.Values4(o, s.d, scores[col:], total, from(x, g.v, at), g.vs[2], n, col > 0, next) {
			col += n
			continue
		}
		p := simd.Gemm{M: rows, N: s.d, K: n, A: scores[col:], ARow: total, AK: 1, B: from(x, g.v, at), BK: max(g.vs[2], 1), Add: col > 0, C: o, CRow: s.d}
		p.Run(0, rows, 0, (s.d+simd.PanelWidth-1)/simd.PanelWidth)
		col += n
	}
	out := x.floats(s.out)[((b*s.h+h)*s.t+t0)*s.g*s.d:]
	for r := range used {
		simd.BinaryVS(simd.Div, out[r*s.d:(r+1)*s.d], o[r*s.d:(r+1)*s.d], &z[r])
	}
}

func from(x *execution, v *value, at int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(x.base[v.id], 4*at)), v.size-at)
}

// row is the span of one row.
func (g *segment) row(x *execution, b, h, t, r int) (from, to int, whole bool) {
	m := (*[3]int32)(unsafe.Add(x.base[g.spans.id], 12*(b*g.at[0]+h*g.at[1]+t*g.at[2]+r*g.at[3])))
	return int(m[0]), int(m[1]), m[2] != 0
}

// blind tells whether one of the rows sees nothing.
func (s *attentionStep) blind(x *execution, b, h, t0, nt int) bool {
	groups := 1 // with masks of their own
	for j := range s.segments {
		if s.segments[j].at[3] != 0 {
			groups = s.g
		}
	}
	for t := t0; t < t0+nt; t++ {
		for r := range groups {
			sees := false
			for j := range s.segments {
				from, to, _ := s.segments[j].row(x, b, h, t, r)
				sees = sees || to > from
			}
			if !sees {
				return true
			}
		}
	}
	return false
}

// seen is the span of rows t0 … t0+nt together; from is the begin of a panel.
func (g *segment) seen(x *execution, b, h, t0, nt, rows int) (from, to int) {
	from = g.n
	if g.at[3] == 0 {
		rows = 1
	}
	for t := t0; t < t0+nt; t++ {
		for r := range rows {
			if lo, hi, _ := g.row(x, b, h, t, r); hi > lo {
				from, to = min(from, lo), max(to, hi)
			}
		}
	}
	if to == 0 {
		return 0, 0
	}
	return from / simd.PanelWidth * simd.PanelWidth, to
}

// score computes q·K for a span of a segment.
func (s *attentionStep) score(x *execution, g *segment, b, h int, span [2]int, q, out []float32, ld, rows int, mem []float32) {
	n := span[1] - span[0]
	if n == 0 {
		return
	}
	panels := (n + simd.PanelWidth - 1) / simd.PanelWidth
	p := simd.Gemm{M: rows, N: n, K: s.d, A: q, ARow: s.d, AK: 1, C: out, CRow: ld}
	at := g.kOff + b*g.ks[0] + h*g.ks[1]
	switch {
	case g.panels:
		p.B = from(x, g.k, at+span[0]*s.d)
	case n == 1: // the token at hand: Pack is slow at this
		p.B = mem[:simd.PackedLen(s.d, 1)]
		if rows != 4 { // Scores4 does not look at other columns
			clear(p.B)
		}
		for i, v := range from(x, g.k, at+span[0]*g.ks[2])[:s.d] {
			p.B[i*simd.PanelWidth] = v
		}
	default:
		p.B = mem[:simd.PackedLen(s.d, n)]
		simd.Pack(p.B, from(x, g.k, at+span[0]*g.ks[2]), s.d, n, 1, g.ks[2], 0, panels)
	}
	// The values are fetched meanwhile.
	next := unsafe.Add(x.base[g.v.id], 4*(g.vOff+b*g.vs[0]+h*g.vs[1]+span[0]*g.vs[2]))
	if rows != 4 || !simd.Scores4(out, ld, q, s.d, p.B, n, next) {
		p.Run(0, rows, 0, panels)
	}
}

// softmax turns scores into weights, 0 where the mask is false, and z into their sums.
// What lies behind a row's last column plays no part, so that the result is that of the
// row alone.
func (s *attentionStep) softmax(x *execution, b, h, t0 int, seg [][2]int, scores, z, top []float32) {
	n := len(scores) / len(z)
	whole := true
	for r := range z {
		w := scores[r*n : (r+1)*n]
		end := s.mask(x, b, h, t0+r/s.g, r%s.g, seg, w)
		top[0] = simd.Maximum(w[:end])
		simd.BinaryVS(simd.Sub, w[:end], w[:end], &top[0])
		whole = whole && end == n
		z[r] = float32(end)
	}
	if whole {
		simd.Unary(simd.Exp, scores, scores)
	}
	for r := range z {
		w, end := scores[r*n:(r+1)*n], int(z[r])
		if !whole {
			simd.Unary(simd.Exp, w[:end], w[:end])
			clear(w[end:])
		}
		z[r] = simd.Sum(w[:end])
	}
}

// mask puts -1e30 where a row's mask is false, and returns the end of what it sees.
func (s *attentionStep) mask(x *execution, b, h, t, r int, seg [][2]int, w []float32) int {
	col, end := 0, 0
	any := false
	for j, span := range seg {
		g := &s.segments[j]
		lo, hi, whole := g.row(x, b, h, t, r)
		part := w[col : col+span[1]-span[0]]
		if hi > lo {
			any = true
			fill(part[:lo-span[0]], -1e30)
			fill(part[hi-span[0]:], -1e30)
			end = col + hi - span[0]
			if !whole {
				m := unsafe.Add(x.base[g.mask.v.id], g.mask.off+b*g.mask.strides[0]+h*g.mask.strides[1]+t*g.mask.strides[2]+r*g.mask.strides[3])
				for i := lo; i < hi; i++ {
					if *(*byte)(unsafe.Add(m, i*g.mask.strides[4])) == 0 {
						part[i-span[0]] = -1e30
					}
				}
			}
		} else {
			fill(part, -1e30)
		}
		col += len(part)
	}
	if !any { // all scores are the fill value
		return len(w)
	}
	return end
}
