package native

import (
	"slices"

	"rag2/tensor/simd"
)

// fuseEpilogues lets DotGenerals run the row program that is the only reader of
// their result, on pieces that are still in cache.
func (c *compiler) fuseEpilogues() {
	readers := map[*value][]*unit{}
	for _, u := range c.units {
		for _, v := range u.reads() {
			readers[v] = append(readers[v], u)
		}
	}
	for i := len(c.units) - 1; i >= 0; i-- {
		u := c.units[i]
		if s, ok := u.step.(*dotStep); ok && len(readers[s.c]) == 1 && s.c.kind == temporary {
			c.epilogue(u, s, readers[s.c][0])
		}
	}
	c.fuseChains(readers)
	for _, u := range c.units {
		switch s := u.step.(type) {
		case *dotStep:
			s.plan(c, u, c.b.backend.pool.threads())
		case *chainStep:
			s.plan(c.b.backend.pool.threads())
		}
	}
}

func (c *compiler) epilogue(u *unit, s *dotStep, g *unit) {
	p, ok := g.step.(*rowProgram)
	nb := product(s.batch)
	if !ok || p.rows*p.width != nb*s.m*s.n {
		return
	}
	if p.width != s.n { // without reductions the width is free
		if p.fullRow || !p.g.adapts(nb*s.m, s.n) {
			return
		}
		p.g.rows, p.g.width = nb*s.m, s.n
		p = newRowProgram(p.g)
	}
	if s.cRow != s.n || !slices.Equal(s.cBatch, contiguous(append(slices.Clone(s.batch), s.m*s.n))[:len(s.batch)]) {
		return
	}
	if p.fullRow && (s.n > 4096 || nb == 1 && s.m < 96) {
		return
	}
	for _, in := range p.inputs {
		if in.view.v == s.c && (in.view.off != 0 || in.kind != vector || !in.view.dense(s.n)) {
			return
		}
	}
	c0 := s.c
	s.epi = p
	if s.takeBias() {
		s.c, s.epi = p.regsInfo[p.instrs[0].dst].out, nil
	}
	for _, v := range g.inputs {
		if v != c0 && !slices.Contains(u.inputs, v) {
			u.inputs = append(u.inputs, v)
		}
	}
	u.writes = g.writes
	for _, v := range g.writes {
		v.unit = u
	}
	u.id = max(u.id, g.id)
	g.step, g.g, g.inputs, g.writes = nil, nil, nil, nil
}

// takeBias lets the product begin its sums with a parameter that the program adds to
// every row of C and to nothing else; true when that was all of the program. Products of
// activations are left as they are: whether what is added is the same for all rows may
// depend on the batch, and a row's result must not.
func (s *dotStep) takeBias() (all bool) {
	p := s.epi
	if product(s.batch) != 1 || s.b.v.kind != parameter {
		return false
	}
	input := func(r int) *rowInput {
		if i := p.regsInfo[r].input; i > 0 {
			return &p.inputs[i-1]
		}
		return nil
	}
	for i := range p.instrs {
		in := p.instrs[i]
		if in.op != iBinary || in.f != simd.Add {
			continue
		}
		of, bias := input(in.a), input(in.b)
		if bias != nil && bias.view.v == s.c {
			of, bias = bias, of
		}
		if of == nil || bias == nil || of.view.v != s.c || bias.view.v.kind != parameter || bias.view.v == s.a.v || bias.view.v == s.b.v ||
			bias.kind != vector || bias.isBool || !bias.view.fixedRows() || bias.view.col != 1 || p.uses(of.reg) != 1 {
			continue
		}
		last := len(p.instrs) == 1 && p.regsInfo[in.dst].out != nil
		if p.regsInfo[in.dst].out != nil && !last {
			return false
		}
		s.bias = operand{v: bias.view.v, off: bias.view.off}
		if last {
			return true
		}
		p.instrs = slices.Delete(p.instrs, i, i+1)
		for j := range p.instrs {
			p.instrs[j].rename(in.dst, of.reg)
		}
		if p.uses(bias.reg) == 0 {
			p.dropInput(p.regsInfo[bias.reg].input - 1)
		}
		return false
	}
	return false
}

// uses counts the operands that are register r.
func (p *rowProgram) uses(r int) (n int) {
	for i := range p.instrs {
		for _, o := range p.instrs[i].operands() {
			if o == r {
				n++
			}
		}
	}
	return n
}

// dropInput lets an input that nothing reads go; its register stays, unused.
func (p *rowProgram) dropInput(i int) {
	p.inputs = slices.Delete(p.inputs, i, i+1)
	for j := range p.regsInfo {
		if r := &p.regsInfo[j]; r.input > i+1 {
			r.input--
		} else if r.input == i+1 {
			r.input, r.slot = 0, -1
		}
	}
}
