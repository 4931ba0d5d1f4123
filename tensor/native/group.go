package native

import (
	"slices"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
)

// A group is a set of float32 and boolean nodes that one row program computes. Its
// space is rows × width; a member is either a vector (rows × width elements) or a
// scalar per row (rows elements: what a reduction gives and what is made of it).
type group struct {
	u           *unit
	rows, width int
	fixed       bool // a reduction depends on the width
	members     []member
	index       map[*value]int // of the member that writes it
	kept        map[*value]bool
	ext         []*value // once built
}

type member struct {
	n      *node
	v      *value
	scalar bool
	in     []view
	dims   []int
}

var simdOps = map[backends.OpType]simd.Op{
	backends.OpTypeAdd: simd.Add, backends.OpTypeSub: simd.Sub, backends.OpTypeMul: simd.Mul, backends.OpTypeDiv: simd.Div,
	backends.OpTypeMax: simd.Max, backends.OpTypeMin: simd.Min, backends.OpTypePow: simd.Pow, backends.OpTypeRem: simd.Rem,
	backends.OpTypeEqual: simd.Equal, backends.OpTypeNotEqual: simd.NotEqual, backends.OpTypeLessThan: simd.Less,
	backends.OpTypeLessOrEqual: simd.LessEqual, backends.OpTypeGreaterThan: simd.Greater, backends.OpTypeGreaterOrEqual: simd.GreaterEqual,
	backends.OpTypeLogicalAnd: simd.And, backends.OpTypeLogicalOr: simd.Or, backends.OpTypeLogicalXor: simd.Xor,
	backends.OpTypeNeg: simd.Neg, backends.OpTypeAbs: simd.Abs, backends.OpTypeSqrt: simd.Sqrt, backends.OpTypeRsqrt: simd.Rsqrt,
	backends.OpTypeExp: simd.Exp, backends.OpTypeTanh: simd.Tanh, backends.OpTypeErf: simd.Erf, backends.OpTypeLogistic: simd.Logistic,
	backends.OpTypeLog: simd.Log, backends.OpTypeLog1p: simd.Log1p, backends.OpTypeExpm1: simd.Expm1, backends.OpTypeSin: simd.Sin,
	backends.OpTypeCos: simd.Cos, backends.OpTypeFloor: simd.Floor, backends.OpTypeCeil: simd.Ceil, backends.OpTypeRound: simd.Round,
	backends.OpTypeSign: simd.Sign, backends.OpTypeLogicalNot: simd.Not, backends.OpTypeIsFinite: simd.IsFinite, backends.OpTypeIsNaN: simd.IsNaN,
}

var integerOps = []backends.OpType{backends.OpTypeBitwiseAnd, backends.OpTypeBitwiseOr, backends.OpTypeBitwiseXor, backends.OpTypeBitwiseNot}

// isElementwise tells whether the op works element by element.
func isElementwise(op backends.OpType) bool {
	_, ok := simdOps[op]
	return ok || op == backends.OpTypeWhere || op == backends.OpTypeConvertDType || slices.Contains(integerOps, op)
}

func fusable(d dtypes.DType) bool { return d == dtypes.Float32 || d == dtypes.Bool }

// fuse takes an elementwise node into a group; false when its dtypes do not fit.
func (c *compiler) fuse(n *node) bool {
	if !fusable(n.shape.DType) || n.shape.Size() == 0 {
		return false
	}
	if _, ok := simdOps[n.op]; !ok && n.op != backends.OpTypeWhere && n.op != backends.OpTypeConvertDType {
		return false
	}
	dims := n.shape.Dimensions
	m := member{n: n, dims: dims}
	for _, i := range n.in {
		if !fusable(i.shape.DType) {
			return false
		}
		m.in = append(m.in, c.views[i].to(dims))
	}
	width := 1
	if len(dims) > 0 {
		width = dims[len(dims)-1]
	}
	c.join(m, 0, width)
	return true
}

// fuseReduce takes a float32 reduction of the last axes into a group.
func (c *compiler) fuseReduce(n *node, count int) bool {
	axes, dims := n.attr.([]int), n.in[0].shape.Dimensions
	switch n.op {
	case backends.OpTypeReduceSum, backends.OpTypeReduceMax, backends.OpTypeReduceMin:
	default:
		return false
	}
	if n.shape.DType != dtypes.Float32 || axes[0] != len(dims)-len(axes) || n.in[0].shape.Size() == 0 {
		return false
	}
	in := c.views[n.in[0]]
	if _, ok := in.rowsOf(n.shape.Size(), count); !ok {
		in = wholeView(c.contiguous(n.in[0]), dims)
	}
	c.join(member{n: n, scalar: true, in: []view{in}, dims: dims}, count, count)
	return true
}

// join adds m to the groups of its operands, joined, or to the latest of them that
// takes it, or to a new group. reduce is the width that m needs, or 0.
func (c *compiler) join(m member, reduce, width int) {
	var from []*group
	for _, w := range m.in {
		if u := w.v.unit; u != nil && u.g != nil && !slices.Contains(from, u.g) {
			from = append(from, u.g)
		}
	}
	slices.SortFunc(from, func(a, b *group) int { return b.u.id - a.u.id })
	tries := [][]*group{from}
	if len(from) > 1 {
		for _, g := range from {
			tries = append(tries, []*group{g})
		}
	}
	for _, set := range tries {
		if len(set) > 0 && c.tryJoin(m, reduce, width, set) {
			return
		}
	}
	g := &group{u: c.newUnit(m.n), index: map[*value]int{}, kept: map[*value]bool{}, width: width, fixed: reduce > 0}
	g.rows = product(m.dims) / width
	g.u.g = g
	c.enter(g, m)
}

func (c *compiler) enter(g *group, m member) {
	g.u.id = max(g.u.id, m.n.id)
	m.v = c.newValue(m.n.shape, nil)
	m.v.unit = g.u
	g.index[m.v] = len(g.members)
	g.members = append(g.members, m)
	c.views[m.n] = wholeView(m.v, m.n.shape.Dimensions)
	g.ext = nil
}

const maxMembers = 256

func (c *compiler) tryJoin(m member, reduce, width int, set []*group) bool {
	total := product(m.dims) // of the operands, for a reduction
	rows, fixed, members := 0, reduce > 0, 0
	for _, g := range set {
		members += len(g.members)
		if g.fixed {
			if fixed && (g.width != width || rows != 0 && g.rows != rows) {
				return false
			}
			fixed, width, rows = true, g.width, g.rows
		}
	}
	if members >= maxMembers {
		return false
	}
	if !fixed {
		for _, g := range set {
			if g.rows*g.width != total {
				return false
			}
			width = min(width, g.width)
		}
		for _, g := range set {
			if g.width%width != 0 {
				return false
			}
		}
	}
	if rows == 0 {
		if total%width != 0 {
			return false
		}
		rows = total / width
	}
	for _, g := range set {
		if g.rows*g.width != rows*width {
			return false
		}
		if !g.fixed && g.width != width && !g.adapts(rows, width) {
			return false
		}
	}
	if reduce == 0 {
		switch total {
		case rows * width:
		case rows:
			m.scalar = true
		default:
			return false
		}
	} else if total != rows*width {
		return false
	}
	inSet := func(v *value) (member, bool) {
		for _, g := range set {
			if v.unit == g.u {
				return g.members[g.index[v]], true
			}
		}
		return member{}, false
	}
	for _, w := range m.in {
		p, ok := inSet(w.v)
		if !ok {
			if _, ok := w.rowsOf(rows, m.inWidth(width)); !ok {
				return false
			}
			continue
		}
		switch {
		case !p.scalar:
			if (m.scalar && reduce == 0) || !w.identity() {
				return false
			}
		case m.scalar:
			if reduce > 0 || !w.identity() {
				return false
			}
		default:
			if !rowIdentity(w, rows, width) {
				return false
			}
		}
	}
	if len(set) > 1 && !joinable(set, rows, width, inSet) {
		return false
	}
	if c.cyclic(m, set) {
		return false
	}
	g := set[0]
	for _, o := range set[1:] {
		for _, p := range o.members {
			p.v.unit = g.u
			g.index[p.v] = len(g.members)
			g.members = append(g.members, p)
		}
		g.u.id = max(g.u.id, o.u.id)
		c.units = slices.DeleteFunc(c.units, func(u *unit) bool { return u == o.u })
	}
	if len(set) > 1 { // members in the order of the graph
		slices.SortFunc(g.members, func(a, b member) int { return a.n.id - b.n.id })
		for i, p := range g.members {
			g.index[p.v] = i
		}
	}
	g.rows, g.width, g.fixed = rows, width, fixed
	c.enter(g, m)
	return true
}

// joinable tells whether the groups use each other's values only in place.
func joinable(set []*group, rows, width int, inSet func(*value) (member, bool)) bool {
	for _, g := range set {
		for _, m := range g.members {
			for _, w := range m.in {
				p, ok := inSet(w.v)
				if !ok || w.v.unit == g.u {
					continue
				}
				if p.scalar && !m.scalar {
					ok = rowIdentity(w, rows, width)
				} else {
					ok = p.scalar == (m.scalar && m.inWidth(width) == 1) && w.identity()
				}
				if !ok {
					return false
				}
			}
		}
	}
	return true
}

// inWidth is the width of the member's operands.
func (m *member) inWidth(width int) int {
	if m.scalar && len(m.in) > 0 && product(m.dims) == m.n.shape.Size() {
		return 1
	}
	return width
}

// rowIdentity tells whether w, of rows × width elements, is one value per row in order.
func rowIdentity(w view, rows, width int) bool {
	r, ok := w.rowsOf(rows, width)
	if !ok || r.off != 0 || r.col != 0 && width > 1 {
		return false
	}
	return rows == 1 || len(r.dims) == 1 && r.strides[0] == 1
}

// adapts tells whether the operands from outside allow another width.
func (g *group) adapts(rows, width int) bool {
	for i := range g.members {
		m := &g.members[i]
		for _, w := range m.in {
			if w.v.unit == g.u {
				continue
			}
			if _, ok := w.rowsOf(rows, m.inWidth(width)); !ok {
				return false
			}
		}
	}
	return true
}

// cyclic tells whether the groups and m together would depend on themselves by way
// of another unit.
func (c *compiler) cyclic(m member, set []*group) bool {
	c.mark += 2
	inside, seen := c.mark, c.mark+1
	for _, g := range set {
		g.u.mark = inside
	}
	stack := c.stack[:0]
	push := func(v *value) {
		if u := v.unit; u != nil && u.mark < inside {
			u.mark = seen
			stack = append(stack, u)
		}
	}
	for _, w := range m.in {
		push(w.v)
	}
	for _, g := range set {
		for _, v := range g.external() {
			push(v)
		}
	}
	found := false
	for len(stack) > 0 && !found {
		u := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, v := range u.reads() {
			if v.unit != nil && v.unit.mark == inside {
				found = true
				break
			}
			push(v)
		}
	}
	c.stack = stack[:0]
	return found
}

// external lists what the group reads from memory.
func (g *group) external() []*value {
	if g.ext == nil {
		g.ext = []*value{}
		for _, m := range g.members {
			for _, w := range m.in {
				if w.v.unit != g.u && !slices.Contains(g.ext, w.v) {
					g.ext = append(g.ext, w.v)
				}
			}
		}
	}
	return g.ext
}

// widen takes the largest width that all operands allow, when nothing fixes it.
func (g *group) widen() {
	if g.fixed {
		return
	}
	total := g.rows * g.width
	dims := g.members[0].dims
	for i := range dims {
		if w := product(dims[i:]); w > g.width && w%g.width == 0 && g.adapts(total/w, w) {
			g.rows, g.width = total/w, w
			return
		}
	}
}

// build compiles the group.
func (g *group) build(u *unit) step {
	g.widen()
	u.inputs = g.external()
	for _, m := range g.members {
		if g.kept[m.v] {
			u.writes = append(u.writes, m.v)
		}
	}
	return newRowProgram(g)
}
