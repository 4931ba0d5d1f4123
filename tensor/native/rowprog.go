package native

import (
	"math"
	"slices"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
)

// kind says what a register holds for a tile of rows × columns: one float, one per
// row, or all.
type kind uint8

const (
	uniform kind = iota
	perRow
	vector
)

type instrKind uint8

const (
	iUnary instrKind = iota
	iBinary
	iWhere
	iExpand // a to a larger kind
	iSum
	iMax
	iMin
	iStoreBool // a to output value out
)

// instr is dst = op(a, b, c) on registers.
type instr struct {
	op           instrKind
	f            simd.Op
	dst, a, b, c int
	out          *value
}

// register is a place for one intermediate result of a tile.
type register struct {
	kind  kind
	slot  int     // offset in the worker's scratch; -1 when it is other memory
	out   *value  // it is the output's own memory
	konst float32 // with isConst, a uniform constant
	isK   bool
	input int // 1 + index of the input that fills it
}

// rowInput is an operand from memory.
type rowInput struct {
	view   rowView
	kind   kind
	isBool bool
	reg    int
	// sticky inputs repeat for neighbouring rows and are loaded when they change.
	sticky bool
	direct bool // may be used where it lies, when the tile's rows are dense
}

// rowProgram computes a group tile by tile.
type rowProgram struct {
	g            *group
	rows, width  int
	tileR, tileW int
	fullRow      bool
	inputs       []rowInput
	instrs       []instr
	regsInfo     []register
	nregs        int
	floats       int // scratch
	chunk        int // tiles per task
}

// tileFloats is the size of a vector register: a few of them fit L1.
const tileFloats = 1024

// taskFloats is the number of elements, times instructions, worth handing to another thread.
const taskFloats = 16 << 10

func newRowProgram(g *group) *rowProgram {
	p := &rowProgram{g: g, rows: g.rows, width: g.width}
	for _, m := range g.members {
		p.fullRow = p.fullRow || isReduction(m.n.op)
	}
	switch {
	case p.width >= tileFloats && !p.fullRow:
		n := (p.width + tileFloats - 1) / tileFloats
		p.tileR, p.tileW = 1, (p.width+n-1)/n
	default:
		p.tileR, p.tileW = max(1, min(p.rows, tileFloats/p.width)), p.width
	}
	b := &programBuilder{p: p, g: g, regOf: map[*value]int{}}
	for i := range g.members {
		b.member(&g.members[i])
	}
	b.simplify()
	b.allocate()
	p.nregs = len(p.regsInfo)
	p.chunk = max(1, taskFloats/(p.tileR*p.tileW*max(1, len(p.instrs))))
	return p
}

func isReduction(op backends.OpType) bool {
	return op == backends.OpTypeReduceSum || op == backends.OpTypeReduceMax || op == backends.OpTypeReduceMin
}

// programBuilder translates members to instructions.
type programBuilder struct {
	p     *rowProgram
	g     *group
	regOf map[*value]int
	defs  map[int]bool // registers that an instruction wrote
}

func (b *programBuilder) reg(k kind) int {
	b.p.regsInfo = append(b.p.regsInfo, register{kind: k, slot: -1})
	return len(b.p.regsInfo) - 1
}

func (b *programBuilder) kind(r int) kind { return b.p.regsInfo[r].kind }

func (b *programBuilder) emit(i instr) int {
	b.p.instrs = append(b.p.instrs, i)
	return i.dst
}

// operand is the register of one operand of m.
func (b *programBuilder) operand(m *member, i int) int {
	w := m.in[i]
	if w.v.unit == b.g.u {
		return b.regOf[w.v]
	}
	rv, _ := w.rowsOf(b.p.rows, m.inWidth(b.p.width))
	k := vector
	switch {
	case rv.uniform():
		k = uniform
	case m.inWidth(b.p.width) == 1 && b.p.width > 1 || rv.col == 0 && b.p.width > 1:
		k = perRow
	}
	if k == uniform && w.v.kind == constant && w.v.dtype == dtypes.Float32 {
		return b.constant(cast[float32](w.v.data)[rv.off])
	}
	for _, in := range b.p.inputs {
		o := in.view
		if in.kind == k && o.v == rv.v && o.off == rv.off && o.col == rv.col && slices.Equal(o.dims, rv.dims) && slices.Equal(o.strides, rv.strides) {
			return in.reg
		}
	}
	in := rowInput{view: rv, kind: k, isBool: w.v.dtype == dtypes.Bool, reg: b.reg(k)}
	n := len(rv.strides)
	in.sticky = k == vector && (n == 0 || rv.strides[n-1] == 0) && b.p.tileW == b.p.width
	in.direct = k == vector && !in.isBool && rv.col == 1 || k == vector && !in.isBool && b.p.width == 1
	b.p.inputs = append(b.p.inputs, in)
	b.p.regsInfo[in.reg].input = len(b.p.inputs)
	return in.reg
}

func (b *programBuilder) constant(v float32) int {
	for i, r := range b.p.regsInfo {
		if r.isK && (r.konst == v || r.konst != r.konst && v != v) && (v != 0 || 1/r.konst == 1/v) {
			return i
		}
	}
	r := b.reg(uniform)
	b.p.regsInfo[r].konst, b.p.regsInfo[r].isK = v, true
	return r
}

// expand gives r as kind k.
func (b *programBuilder) expand(r int, k kind) int {
	if b.kind(r) >= k {
		return r
	}
	return b.emit(instr{op: iExpand, dst: b.reg(k), a: r})
}

func (b *programBuilder) member(m *member) {
	in := make([]int, len(m.in))
	k := uniform
	for i := range in {
		in[i] = b.operand(m, i)
		k = max(k, b.kind(in[i]))
	}
	before := len(b.p.instrs)
	var r int
	switch op := m.n.op; op {
	case backends.OpTypeReduceSum, backends.OpTypeReduceMax, backends.OpTypeReduceMin:
		f := map[backends.OpType]instrKind{backends.OpTypeReduceSum: iSum, backends.OpTypeReduceMax: iMax, backends.OpTypeReduceMin: iMin}[op]
		a := b.expand(in[0], vector)
		before = len(b.p.instrs)
		r = b.emit(instr{op: f, dst: b.reg(perRow), a: a})
	case backends.OpTypeConvertDType:
		r = in[0]
		if m.n.shape.DType == dtypes.Bool && m.n.in[0].shape.DType != dtypes.Bool {
			zero := b.constant(0)
			r = b.emit(instr{op: iBinary, f: simd.NotEqual, dst: b.reg(k), a: in[0], b: zero})
		}
	case backends.OpTypeWhere:
		for i := range in {
			in[i] = b.expand(in[i], k)
		}
		before = len(b.p.instrs)
		r = b.emit(instr{op: iWhere, dst: b.reg(k), a: in[0], b: in[1], c: in[2]})
	default:
		f := simdOps[op]
		if f.IsBinary() {
			r = b.emit(instr{op: iBinary, f: f, dst: b.reg(k), a: in[0], b: in[1]})
		} else {
			r = b.emit(instr{op: iUnary, f: f, dst: b.reg(k), a: in[0]})
		}
	}
	b.regOf[m.v] = r
	if !b.g.kept[m.v] {
		return
	}
	want := vector
	if m.scalar {
		want = perRow
	}
	isBool := m.v.dtype == dtypes.Bool
	own := len(b.p.instrs) > before && b.kind(r) == want // written by its own instruction
	if b.kind(r) < want {
		r = b.expand(r, want)
		own = true
	}
	switch {
	case isBool:
		b.emit(instr{op: iStoreBool, dst: -1, a: r, out: m.v})
	case own && b.p.regsInfo[r].out == nil:
		b.p.regsInfo[r].out = m.v
	default: // a copy
		d := b.emit(instr{op: iExpand, dst: b.reg(want), a: r})
		b.p.regsInfo[d].out = m.v
	}
}

// simplify puts one instruction for GELU and drops what nothing uses.
func (b *programBuilder) simplify() {
	p := b.p
	def := map[int]*instr{}
	for i := range p.instrs {
		if in := &p.instrs[i]; in.dst >= 0 {
			def[in.dst] = in
		}
	}
	// times matches x·k for a constant near k.
	times := func(r int, f simd.Op, k float32) (int, bool) {
		in := def[r]
		if in == nil || in.op != iBinary || in.f != f {
			return 0, false
		}
		for _, o := range [][2]int{{in.a, in.b}, {in.b, in.a}} {
			if c := p.regsInfo[o[1]]; c.isK && c.konst > k*0.999999 && c.konst < k*1.000001 {
				return o[0], true
			}
		}
		return 0, false
	}
	gelu := func(half, sum int) (int, bool) {
		x, ok := times(half, simd.Mul, 0.5)
		if !ok {
			return 0, false
		}
		e, ok := times(sum, simd.Add, 1)
		if !ok || def[e] == nil || def[e].op != iUnary || def[e].f != simd.Erf {
			return 0, false
		}
		y, ok := times(def[e].a, simd.Mul, 1/math.Sqrt2)
		return x, ok && x == y
	}
	for i := range p.instrs {
		in := &p.instrs[i]
		if in.op != iBinary || in.f != simd.Mul {
			continue
		}
		x, ok := gelu(in.a, in.b)
		if !ok {
			x, ok = gelu(in.b, in.a)
		}
		if ok {
			*in = instr{op: iUnary, f: simd.Gelu, dst: in.dst, a: x}
		}
	}
	used := make([]bool, len(p.regsInfo))
	var out []instr
	for i := len(p.instrs) - 1; i >= 0; i-- {
		in := p.instrs[i]
		if in.dst >= 0 && !used[in.dst] && p.regsInfo[in.dst].out == nil {
			continue
		}
		for _, r := range in.operands() {
			used[r] = true
		}
		out = append(out, in)
	}
	slices.Reverse(out)
	p.instrs = out
}

// allocate gives scratch to the registers, reusing it when a register is dead.
func (b *programBuilder) allocate() {
	p := b.p
	last := make([]int, len(p.regsInfo))
	for i, in := range p.instrs {
		for _, r := range in.operands() {
			last[r] = i
		}
		if in.dst >= 0 {
			last[in.dst] = max(last[in.dst], i)
		}
	}
	round := func(n int) int { return (n + 7) / 8 * 8 }
	size := map[kind]int{vector: round(p.tileR * p.tileW), perRow: round(p.tileR), uniform: 8}
	free := map[kind][]int{}
	take := func(k kind) int {
		if l := free[k]; len(l) > 0 {
			free[k] = l[:len(l)-1]
			return l[len(l)-1]
		}
		p.floats += size[k]
		return p.floats - size[k]
	}
	for i := range p.inputs { // for the whole tile
		p.regsInfo[p.inputs[i].reg].slot = take(p.inputs[i].kind)
	}
	for i := range p.regsInfo {
		if r := &p.regsInfo[i]; r.isK {
			r.slot = take(uniform)
		}
	}
	for i, in := range p.instrs {
		for _, r := range in.operands() {
			x := &p.regsInfo[r]
			if last[r] == i && x.slot >= 0 && x.input == 0 && !x.isK {
				// What it is expanded to may be longer, never the same slot.
				free[x.kind] = append(free[x.kind], x.slot)
				last[r] = -1
			}
		}
		if in.dst >= 0 {
			d := &p.regsInfo[in.dst]
			if d.out == nil {
				d.slot = take(d.kind)
				if last[in.dst] == i { // never used
					free[d.kind] = append(free[d.kind], d.slot)
				}
			}
		}
	}
}

func (i *instr) operands() []int {
	switch i.op {
	case iBinary:
		return []int{i.a, i.b}
	case iWhere:
		return []int{i.a, i.b, i.c}
	}
	return []int{i.a}
}

// rename replaces an operand.
func (i *instr) rename(from, to int) {
	for _, o := range []*int{&i.a, &i.b, &i.c}[:len(i.operands())] {
		if *o == from {
			*o = to
		}
	}
}

func (p *rowProgram) scratch() int { return p.floats }

func (p *rowProgram) tiles() (rows, cols int) {
	return (p.rows + p.tileR - 1) / p.tileR, (p.width + p.tileW - 1) / p.tileW
}

func (p *rowProgram) run(x *execution) {
	r, c := p.tiles()
	n := r * c
	tasks := (n + p.chunk - 1) / p.chunk
	if tasks <= 1 {
		p.task(x, 0, 0)
		return
	}
	x.job = jobRef{step: p}
	x.pool.run(x, tasks)
}

func (p *rowProgram) task(x *execution, i, worker int) {
	w := &x.workers[worker]
	p.begin(w, w.scratch)
	r, c := p.tiles()
	for t := i * p.chunk; t < min(r*c, (i+1)*p.chunk); t++ {
		r0, c0 := t/c*p.tileR, t%c*p.tileW
		p.tile(x, w, w.scratch, r0, min(p.tileR, p.rows-r0), c0, min(p.tileW, p.width-c0), nil, nil)
	}
}

// begin prepares a worker for tiles: constants, and no input loaded.
func (p *rowProgram) begin(w *workerState, mem []float32) {
	for i := range p.inputs {
		w.last[i] = -1
	}
	for i := range p.regsInfo {
		if r := &p.regsInfo[i]; r.isK {
			w.regs[i] = mem[r.slot : r.slot+1]
			mem[r.slot] = r.konst
		}
	}
}

// reads tells whether v is an input.
func (p *rowProgram) reads(v *value) bool {
	for i := range p.inputs {
		if p.inputs[i].view.v == v {
			return true
		}
	}
	return false
}
