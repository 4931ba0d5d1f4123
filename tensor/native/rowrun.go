package native

import (
	"unsafe"

	"rag2/tensor/simd"
)

// given replaces an input's memory by rows that another step has at hand.
type given struct {
	v    *value
	data []float32
	ld   int
	r0   int // data begins with this row
	c0   int // and column
}

// rows is the given's part for a tile, when its rows follow each other.
func (g *given) rows(r0, nr, c0, nc int) []float32 {
	at := (r0-g.r0)*g.ld + c0 - g.c0
	return g.data[at : at+(nr-1)*g.ld+nc]
}

// tile runs the program on rows r0 … r0+nr and columns c0 … c0+nc. from replaces an
// input, to an output, whose rows must follow each other without gaps.
func (p *rowProgram) tile(x *execution, w *workerState, mem []float32, r0, nr, c0, nc int, from, to *given) {
	n := nr * nc
	regs := w.regs
	for i := range p.regsInfo {
		r := &p.regsInfo[i]
		if r.isK || r.input > 0 || r.slot < 0 && r.out == nil {
			continue // set elsewhere, or not used
		}
		switch {
		case to != nil && r.out == to.v:
			regs[i] = to.rows(r0, nr, c0, nc)
		case r.out != nil && r.kind == perRow:
			regs[i] = x.floats(r.out)[r0 : r0+nr]
		case r.out != nil:
			at := r0*p.width + c0
			regs[i] = x.floats(r.out)[at : at+n]
		case r.kind == vector:
			regs[i] = mem[r.slot : r.slot+n]
		case r.kind == perRow:
			regs[i] = mem[r.slot : r.slot+nr]
		default:
			regs[i] = mem[r.slot : r.slot+1]
		}
	}
	for i := range p.inputs {
		p.load(x, w, mem, i, r0, nr, c0, nc, from)
	}
	for i := range p.instrs {
		in := &p.instrs[i]
		switch in.op {
		case iBinary:
			p.binary(in.f, regs[in.dst], regs[in.a], regs[in.b], p.regsInfo[in.a].kind, p.regsInfo[in.b].kind, nr, nc)
		case iUnary:
			simd.Unary(in.f, regs[in.dst], regs[in.a])
		case iWhere:
			simd.Where(regs[in.dst], regs[in.a], regs[in.b], regs[in.c])
		case iExpand:
			expand(regs[in.dst], regs[in.a], p.regsInfo[in.a].kind, nc)
		case iSum:
			d, a := regs[in.dst], regs[in.a]
			for r := range d {
				d[r] = simd.Sum(a[r*nc : (r+1)*nc])
			}
		case iMax:
			d, a := regs[in.dst], regs[in.a]
			for r := range d {
				d[r] = simd.Maximum(a[r*nc : (r+1)*nc])
			}
		case iMin:
			d, a := regs[in.dst], regs[in.a]
			for r := range d {
				d[r] = simd.Minimum(a[r*nc : (r+1)*nc])
			}
		case iStoreBool:
			at := r0*p.width + c0
			if p.regsInfo[in.a].kind == perRow {
				at = r0
			}
			out := x.bytes(in.out)[at:]
			for j, v := range regs[in.a] {
				b := byte(0)
				if v != 0 {
					b = 1
				}
				out[j] = b
			}
		}
	}
}

// expand repeats a for every element or row of dst.
func expand(dst, a []float32, from kind, nc int) {
	switch {
	case len(a) == len(dst):
		copy(dst, a)
	case from == uniform:
		fill(dst, a[0])
	default:
		for r := range a {
			fill(dst[r*nc:(r+1)*nc], a[r])
		}
	}
}

func fill(dst []float32, v float32) {
	if len(dst) == 0 {
		return
	}
	dst[0] = v
	for n := 1; n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// binary applies f to operands of any kinds.
func (p *rowProgram) binary(f simd.Op, dst, a, b []float32, ka, kb kind, nr, nc int) {
	switch {
	case ka == kb:
		simd.Binary(f, dst, a, b)
	case kb == uniform:
		simd.BinaryVS(f, dst, a, &b[0])
	case ka == uniform:
		simd.BinarySV(f, dst, &a[0], b)
	case ka == vector:
		for r := range nr {
			simd.BinaryVS(f, dst[r*nc:(r+1)*nc], a[r*nc:], &b[r])
		}
	default:
		for r := range nr {
			simd.BinarySV(f, dst[r*nc:(r+1)*nc], &a[r], b[r*nc:])
		}
	}
}

// load fills the register of input i, or points it at memory.
func (p *rowProgram) load(x *execution, w *workerState, mem []float32, i, r0, nr, c0, nc int, from *given) {
	in := &p.inputs[i]
	v := &in.view
	slot := p.regsInfo[in.reg].slot
	if from != nil && v.v == from.v {
		src := from.rows(r0, nr, c0, nc)
		if nr == 1 || from.ld == nc {
			w.regs[in.reg] = src
			return
		}
		dst := mem[slot : slot+nr*nc]
		for r := range nr {
			copy(dst[r*nc:(r+1)*nc], src[r*from.ld:])
		}
		w.regs[in.reg] = dst
		return
	}
	base := x.base[v.v.id]
	switch in.kind {
	case uniform:
		if w.last[i] < 0 {
			mem[slot] = loadOne(base, v.off, in.isBool)
			w.last[i] = 1
		}
		w.regs[in.reg] = mem[slot : slot+1]
		return
	case perRow:
		dst := mem[slot : slot+nr]
		for r := range dst {
			dst[r] = loadOne(base, v.at(r0+r), in.isBool)
		}
		w.regs[in.reg] = dst
		return
	}
	n := nr * nc
	if in.direct && (nr == 1 || v.dense(p.width)) {
		at := v.at(r0) + c0
		w.regs[in.reg] = unsafe.Slice((*float32)(unsafe.Add(base, 4*at)), n)
		return
	}
	dst := mem[slot : slot+n]
	w.regs[in.reg] = dst
	if in.sticky {
		at := v.at(r0)
		if at == w.last[i] && p.sameRows(v, r0, nr) {
			return
		}
		w.last[i] = -1
		if p.sameRows(v, r0, nr) && // a whole tile serves shorter ones too
			nr == p.tileR {
			w.last[i] = at
		}
	}
	for r := range nr {
		d := dst[r*nc : (r+1)*nc]
		at := v.at(r0+r) + c0*v.col
		if in.isBool {
			src := unsafe.Add(base, at)
			if v.col == 1 {
				simd.BoolsToFloat(d, unsafe.Slice((*byte)(src), nc))
				continue
			}
			for j := range d {
				d[j] = float32(*(*byte)(unsafe.Add(src, j*v.col)))
			}
			continue
		}
		src := unsafe.Add(base, 4*at)
		if v.col == 1 {
			copy(d, unsafe.Slice((*float32)(src), nc))
			continue
		}
		for j := range d {
			d[j] = *(*float32)(unsafe.Add(src, 4*j*v.col))
		}
	}
}

// sameRows tells whether rows r0 … r0+nr of the input are one row.
func (p *rowProgram) sameRows(v *rowView, r0, nr int) bool {
	k := len(v.dims) - 1
	if k < 0 || nr == 1 {
		return true
	}
	if v.strides[k] != 0 {
		return false
	}
	if v.fixedRows() {
		return true
	}
	return r0/v.dims[k] == (r0+nr-1)/v.dims[k]
}

func loadOne(base unsafe.Pointer, at int, isBool bool) float32 {
	if isBool {
		return float32(*(*byte)(unsafe.Add(base, at)))
	}
	return *(*float32)(unsafe.Add(base, 4*at))
}
