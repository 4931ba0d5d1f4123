package native

import (
	"slices"

	"rag2/tensor/simd"
)

// chainStep is attention: a product, a row program on its rows and a second product
// of the result, piece by piece, so that the matrix between them never leaves cache.
type chainStep struct {
	first, second *dotStep
	tm            int
}

// fuseChains finds them. A chain's middle value has one reader, the second product.
func (c *compiler) fuseChains(readers map[*value][]*unit) {
	for _, u := range c.units {
		first, ok := u.step.(*dotStep)
		if !ok || first.epi == nil || len(u.writes) != 1 {
			continue
		}
		v := u.writes[0]
		if v.kind != temporary || len(readers[v]) != 1 {
			continue
		}
		t := readers[v][0]
		second, ok := t.step.(*dotStep)
		if !ok || second.epi != nil || second.a.v != v || second.b.v == v || second.m != first.m || second.k != first.n || first.n > 4096 {
			continue
		}
		nb := product(first.batch)
		a := second.a
		want := contiguous(append(slices.Clone(second.batch), first.m*first.n))[:len(second.batch)]
		if product(second.batch) != nb || nb == 1 || a.off != 0 || (a.row != first.n && a.row != 0) || (a.col != 1 && a.col != 0) || !slices.Equal(a.batch, want) {
			continue
		}
		ch := &chainStep{first: first, second: second}
		if first.m > 1 && a.row == 0 || first.n > 1 && a.col == 0 || first.packLen() > 1<<18 || second.packLen() > 1<<18 {
			continue
		}
		for _, in := range u.inputs {
			if !slices.Contains(t.inputs, in) {
				t.inputs = append(t.inputs, in)
			}
		}
		t.inputs = slices.DeleteFunc(t.inputs, func(x *value) bool { return x == v })
		t.step, t.id = ch, max(t.id, u.id)
		u.step, u.inputs, u.writes = nil, nil, nil
	}
}

func (s *dotStep) packLen() int { return simd.PackedLen(s.k, s.n) }

func (s *chainStep) plan(threads int) {
	for _, d := range []*dotStep{s.first, s.second} {
		d.mode = packTask
		if (d.b.col == 1 || d.n == 1) && (d.b.row != 0 || d.k == 1) && d.m <= 12 {
			d.mode = packDirect
		}
	}
	s.second.aGiven = true
	s.second.packAt = s.first.packFloats()
	s.tm = 1
	if nb := product(s.first.batch); nb < 4*threads {
		s.tm = max(1, min(s.first.m/24, 8*threads/nb))
	}
}

// chainFloats bounds the piece of the matrix between the products.
const chainFloats = 16 << 10

func (s *chainStep) rows() int {
	return min(s.first.m, max(6, chainFloats/s.first.n/6*6))
}

func (s *chainStep) scratch() int {
	return s.first.packFloats() + s.second.packFloats() + 2*(s.rows()*s.first.n+16) + s.first.epi.floats + 16
}

func (s *chainStep) run(x *execution) {
	x.job = jobRef{step: s}
	x.pool.run(x, product(s.first.batch)*s.tm)
}

func (s *chainStep) task(x *execution, i, worker int) {
	w := &x.workers[worker]
	f, d := s.first, s.second
	part := i % s.tm
	i /= s.tm
	m0, m1 := f.m*part/s.tm, f.m*(part+1)/s.tm
	g, h := f.gemm(x, w, i), d.gemm(x, w, i)
	rows := s.rows()
	mem := w.scratch[f.packFloats()+d.packFloats():]
	size := (rows*f.n + 15) / 16 * 16
	one, two, mem := mem[:size], mem[size:2*size], mem[2*size:]
	panels := func(n int) int { return (n + simd.PanelWidth - 1) / simd.PanelWidth }
	f.epi.begin(w, mem)
	c := x.floats(d.c)[batchOffset(i, d.batch, d.cBatch):]
	for r := m0; r < m1; r += rows {
		end := min(m1, r+rows)
		f.product(&g, one, r, end, 0, panels(f.n))
		from := given{v: f.c, data: one, ld: f.n, r0: i*f.m + r}
		to := given{v: d.a.v, data: two, ld: f.n, r0: i*f.m + r}
		f.epilogue(x, w, mem, &from, &to, i*f.m+r, i*f.m+end, 0, f.n)
		h.M, h.A, h.ARow, h.AK = end-r, two, f.n, 1
		h.C, h.CRow = c[r*d.cRow:], d.cRow
		h.Run(0, h.M, 0, panels(d.n))
	}
}
