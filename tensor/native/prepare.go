package native

import (
	"fmt"
	"unsafe"

	"rag2/tensor/simd"
)

// Before its steps run, an execution sees to it that every weight is there in the form
// that its product reads, one weight after the other: the elements of a lazy buffer are
// read, converted and dropped before the next one's.

// weight is what a product reads its right operand from, one of the three; none when
// the buffer may change between calls and is packed for every call.
type weight struct {
	panels []float32
	blocks *blocks
	int8   *simd.Int8Weights
}

// kept tells whether the elements of the step's weight stay in memory anyway.
func (e *Executable) kept(s *dotStep) bool {
	i := s.b.v.index
	return e.flat[i] || e.rows[i]
}

// key names the packed form that the step reads.
func (s *dotStep) key() packKey { return packKey{s.b.off, s.k, s.n, s.b.row, s.b.col} }

// prepare fills in x.weights and the addresses of the parameters.
func (x *execution) prepare() error {
	defer func() { x.passing = nil }()
	e := x.exe
	fail := func(i int, err error) error { return fmt.Errorf("input %q: %w", e.names[i], err) }
	if e.backend.half != 0 { // all of them before anything reads an element
		for _, s := range e.weights {
			b := x.params[s.b.v.index]
			if !b.host {
				continue
			}
			b.mu.Lock()
			err := b.round(x, s)
			b.mu.Unlock()
			if err != nil {
				return fail(s.b.v.index, err)
			}
		}
	}
	for i, s := range e.weights {
		var err error
		if x.weights[i], err = s.prepared(x); err != nil {
			return fail(s.b.v.index, err)
		}
	}
	for _, v := range e.values {
		if v.kind == parameter {
			p, err := x.params[v.index].at(e.flat[v.index], e.rows[v.index])
			if err != nil {
				return fail(v.index, err)
			}
			x.base[v.id] = p
		}
	}
	return nil
}

// at is the flat memory, made when it is needed, or when rows are and nothing else has
// them; otherwise it may be nil.
func (b *Buffer) at(flat, rows bool) (p unsafe.Pointer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if flat || rows && b.blocks == nil && !b.inPanels() {
		err = b.flatten()
	}
	return b.base(), err
}

// prepared is the step's weight.
func (s *dotStep) prepared(x *execution) (w weight, err error) {
	b := x.params[s.b.v.index]
	if !b.host {
		return w, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.blocks; q != nil && s.b.off == 0 && s.b.row == 1 && s.b.col == q.k && s.k == q.k && s.n == q.n {
		w.blocks = q
		return w, nil
	}
	if x.exe.backend.int8 && b.blocks == nil {
		if w.int8, err = b.integers(x, s); w.int8 != nil || err != nil {
			return w, err
		}
	}
	w.panels, err = b.panels(x, s)
	return w, err
}

// panels is the packed form of a weight, made once. The buffer is locked. Flat memory
// that nobody needs beside it goes.
func (b *Buffer) panels(x *execution, s *dotStep) ([]float32, error) {
	key := s.key()
	if p := b.packs[key]; p != nil {
		return p, nil
	}
	whole := b.covers(key) && len(b.packs) == 0
	src, err := b.elements(x, x.exe.flat[s.b.v.index] || !whole)
	if err != nil {
		return nil, err
	}
	dst := b.backend.panelMem.floats(simd.PackedLen(s.k, s.n))
	x.job = jobRef{step: &packPanels{s, dst, src[s.b.off:]}}
	x.pool.run(x, s.panels())
	if b.packs == nil {
		b.packs = map[packKey][]float32{}
	}
	b.packs[key] = dst
	if whole {
		b.whole = key
	}
	if whole && !x.exe.flat[s.b.v.index] {
		b.dropFlat()
	}
	return dst, nil
}

// packPanels packs one panel of a weight per task.
type packPanels struct {
	s        *dotStep
	dst, src []float32
}

func (p *packPanels) task(_ *execution, i, _ int) {
	simd.Pack(p.dst, p.src, p.s.k, p.s.n, p.s.b.row, p.s.b.col, i, i+1)
}

// takeWeight makes the step's weight that of the products which run next.
func (s *dotStep) takeWeight(x *execution) {
	w := &x.weights[s.weight]
	x.panels, x.blocks, x.int8 = w.panels, w.blocks, w.int8
	switch {
	case w.blocks != nil && w.blocks.format.ByFloats():
		s.sumRows(x)
	case w.blocks != nil:
		s.prepareBlocks(x)
		x.begin(s)
	case w.int8 != nil:
		s.prepareInt8(x)
	case w.panels == nil: // it may change between calls
		x.panels = x.side(s, simd.PackedLen(s.k, s.n))
		x.job = jobRef{step: &packPanels{s, x.panels, s.from(x, &s.b, 0)}}
		x.pool.run(x, s.panels())
	}
}

// side is memory of the execution for one step's panels, made when first needed.
func (x *execution) side(s *dotStep, n int) []float32 {
	if x.sides == nil {
		x.sides = map[*dotStep][]float32{}
	}
	if x.sides[s] == nil {
		x.sides[s] = make([]float32, n)
	}
	return x.sides[s]
}
