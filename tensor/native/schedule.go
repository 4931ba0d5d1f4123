package native

import (
	"container/heap"
	"errors"
	"slices"

	"rag2/tensor/simd"
)

// finish builds the groups' programs, orders the units and lays out the arena.
func (c *compiler) finish(e *Executable) error {
	for _, u := range c.units { // group values that are read from memory
		for _, v := range u.reads() {
			if v.unit != nil && v.unit.g != nil {
				v.unit.g.kept[v] = true
			}
		}
	}
	for _, v := range c.values {
		if v.kind == output && v.unit.g != nil {
			v.unit.g.kept[v] = true
		}
	}
	for _, u := range c.units {
		if u.g != nil {
			u.step = u.g.build(u)
		}
	}
	c.fuseEpilogues()
	order, err := c.order()
	if err != nil {
		return err
	}
	e.values = c.values
	e.outVals = make([]*value, len(e.outputs))
	for _, v := range c.values {
		if v.kind == output {
			e.outVals[v.index] = v
		}
	}
	e.flat, e.rows = flatParams(order, len(e.inputs))
	e.inPlace = inPlace(order, e.outVals)
	last := make([]int, len(c.values)) // step that uses the value last
	for i, u := range order {
		e.steps = append(e.steps, u.step)
		e.scratch = max(e.scratch, u.step.scratch())
		for _, v := range u.inputs {
			last[v.id] = i
		}
		for _, v := range u.writes {
			last[v.id] = max(last[v.id], i)
		}
		e.args = max(e.args, len(u.inputs))
		switch s := u.step.(type) {
		case *rowProgram:
			e.regs = max(e.regs, s.nregs)
		case *dotStep:
			e.regs = max(e.regs, s.regs())
			e.gemm = simd.GemmScratch
			if s.mode == packWeight {
				s.weight = len(e.weights)
				e.weights = append(e.weights, s)
			}
		case *chainStep:
			e.regs = max(e.regs, s.first.regs())
		}
	}
	e.coming = coming(e.steps)
	var a arena
	for i, u := range order {
		for _, v := range u.writes {
			if v.kind == temporary {
				v.off = a.alloc(v.bytes())
			}
		}
		free := func(l []*value) {
			for _, v := range l {
				if v.kind == temporary && v.unit != nil && last[v.id] == i {
					a.free(v.off, v.bytes())
					last[v.id] = -1 // once
				}
			}
		}
		free(u.inputs)
		free(u.writes)
	}
	e.arena = a.size
	return nil
}

// flatParams tells which parameters are read as flat memory, not only as the right
// operand of a product or by a gather of rows, and which are gathered from.
func flatParams(order []*unit, n int) (flat, rows []bool) {
	flat, rows = make([]bool, n), make([]bool, n)
	for _, u := range order {
		for _, v := range u.inputs {
			if v.kind != parameter {
				continue
			}
			switch s := u.step.(type) {
			case *dotStep:
				if s.mode == packWeight && s.b.v == v && s.a.v != v && (s.epi == nil || !s.epi.reads(v)) {
					continue
				}
			case *gatherStep:
				if s.table == v && s.indices != v {
					rows[v.index] = true
					continue
				}
			}
			flat[v.index] = true
		}
	}
	return flat, rows
}

// order sorts the units so that each follows what it reads, otherwise as the graph
// was written.
func (c *compiler) order() ([]*unit, error) {
	waiting := map[*unit]int{}
	readers := map[*unit][]*unit{}
	var ready unitHeap
	n := 0
	for _, u := range c.units {
		if u.step == nil {
			continue // merged into another
		}
		n++
		from := map[*unit]bool{}
		for _, v := range u.inputs {
			if v.unit != nil && v.unit != u && !from[v.unit] {
				from[v.unit] = true
				waiting[u]++
				readers[v.unit] = append(readers[v.unit], u)
			}
		}
		if waiting[u] == 0 {
			ready = append(ready, u)
		}
	}
	heap.Init(&ready)
	var out []*unit
	for len(ready) > 0 {
		u := heap.Pop(&ready).(*unit)
		out = append(out, u)
		for _, r := range readers[u] {
			if waiting[r]--; waiting[r] == 0 {
				heap.Push(&ready, r)
			}
		}
	}
	if len(out) != n {
		return nil, errors.New("the plan has a cycle")
	}
	return out, nil
}

type unitHeap []*unit

func (h unitHeap) Len() int           { return len(h) }
func (h unitHeap) Less(i, j int) bool { return h[i].id < h[j].id }
func (h unitHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *unitHeap) Push(x any)        { *h = append(*h, x.(*unit)) }
func (h *unitHeap) Pop() any {
	o := *h
	u := o[len(o)-1]
	*h = o[:len(o)-1]
	return u
}

// arena hands out ranges of one block, the smallest gap that fits.
type arena struct {
	size int
	gaps [][2]int // from, to; sorted, not touching
}

const arenaAlign = 64

func (a *arena) alloc(n int) int {
	n = (max(n, 1) + arenaAlign - 1) / arenaAlign * arenaAlign
	best := -1
	for i, g := range a.gaps {
		if l := g[1] - g[0]; l >= n && (best < 0 || l < a.gaps[best][1]-a.gaps[best][0]) {
			best = i
		}
	}
	if best >= 0 {
		at := a.gaps[best][0]
		if a.gaps[best][0] += n; a.gaps[best][0] == a.gaps[best][1] {
			a.gaps = slices.Delete(a.gaps, best, best+1)
		}
		return at
	}
	at := a.size
	if k := len(a.gaps) - 1; k >= 0 && a.gaps[k][1] == a.size { // grow the last gap
		at = a.gaps[k][0]
		a.gaps = a.gaps[:k]
	}
	a.size = at + n
	return at
}

func (a *arena) free(at, n int) {
	n = (max(n, 1) + arenaAlign - 1) / arenaAlign * arenaAlign
	i, _ := slices.BinarySearchFunc(a.gaps, at, func(g [2]int, at int) int { return g[0] - at })
	a.gaps = slices.Insert(a.gaps, i, [2]int{at, at + n})
	if i+1 < len(a.gaps) && a.gaps[i][1] == a.gaps[i+1][0] {
		a.gaps[i][1] = a.gaps[i+1][1]
		a.gaps = slices.Delete(a.gaps, i+1, i+2)
	}
	if i > 0 && a.gaps[i-1][1] == a.gaps[i][0] {
		a.gaps[i-1][1] = a.gaps[i][1]
		a.gaps = slices.Delete(a.gaps, i, i+1)
	}
}
