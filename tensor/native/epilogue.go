package native

import "slices"

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
	s.epi = p
	for _, v := range g.inputs {
		if v != s.c && !slices.Contains(u.inputs, v) {
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
