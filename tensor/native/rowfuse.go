package native

import "rag2/tensor/simd"

// fuse replaces runs of instructions that go through a row again and again, as the
// models write softmax and normalisation, by one that does so once or twice. What lies
// between must have no other reader.
func (b *programBuilder) fuse() {
	p := b.p
	def, uses := make([]*instr, len(p.regsInfo)), make([]int, len(p.regsInfo))
	for i := range p.instrs {
		in := &p.instrs[i]
		if in.dst >= 0 {
			def[in.dst] = in
		}
		for _, r := range in.operands() {
			uses[r]++
		}
	}
	// inner is the instruction that wrote r, when it is such a one and n operands read it.
	inner := func(r, n int, op instrKind, f simd.Op) *instr {
		if in := def[r]; in != nil && in.op == op && in.f == f && uses[r] == n && p.regsInfo[r].out == nil {
			return in
		}
		return nil
	}
	for i := range p.instrs {
		in := &p.instrs[i]
		switch {
		case in.op == iSum:
			if q := inner(in.a, 1, iBinary, simd.Mul); q != nil && q.a == q.b {
				*in = instr{op: iSumSquares, dst: in.dst, a: q.a}
			}
		case in.op == iBinary && in.f == simd.Div:
			if a, ok := softmax(in, inner, p); ok {
				*in = instr{op: iSoftmax, dst: in.dst, a: a}
			}
		case in.op == iBinary && in.f == simd.Mul:
			for _, o := range [][2]int{{in.a, in.b}, {in.b, in.a}} {
				if s, ok := b.scaled(o[0], o[1], inner); ok {
					s.dst = in.dst
					*in = s
					break
				}
			}
		case in.op == iBinary && in.f == simd.Add:
			for _, o := range [][2]int{{in.a, in.b}, {in.b, in.a}} {
				s := def[o[0]]
				if s != nil && s.op == iScale && s.d < 0 && uses[o[0]] == 1 && p.regsInfo[o[0]].out == nil && b.kind(o[1]) == vector && o[1] != o[0] {
					dst := in.dst
					*in = *s
					in.dst, in.d = dst, o[1]
					break
				}
			}
		}
	}
}

type innerFunc func(r, n int, op instrKind, f simd.Op) *instr

// softmax matches exp(a−max(a)) / Σ exp(a−max(a)); its operand.
func softmax(in *instr, inner innerFunc, p *rowProgram) (int, bool) {
	e := inner(in.a, 2, iUnary, simd.Exp)
	sum := inner(in.b, 1, iSum, 0)
	if e == nil || sum == nil || sum.a != in.a {
		return 0, false
	}
	d := inner(e.a, 1, iBinary, simd.Sub)
	if d == nil {
		return 0, false
	}
	m := inner(d.b, 1, iMax, 0)
	return d.a, m != nil && m.a == d.a && p.regsInfo[d.a].kind == vector
}

// scaled matches (x·s)·gain and (x/s)·gain with one s for each row.
func (b *programBuilder) scaled(y, gain int, inner innerFunc) (instr, bool) {
	if b.kind(y) != vector || b.kind(gain) != vector || y == gain {
		return instr{}, false
	}
	for _, f := range []simd.Op{simd.Mul, simd.Div} {
		in := inner(y, 1, iBinary, f)
		if in == nil {
			continue
		}
		if b.kind(in.a) == vector && b.kind(in.b) == perRow {
			return instr{op: iScale, f: f, a: in.a, b: in.b, c: gain, d: -1}, true
		}
		if f == simd.Mul && b.kind(in.b) == vector && b.kind(in.a) == perRow {
			return instr{op: iScale, f: f, a: in.b, b: in.a, c: gain, d: -1}, true
		}
	}
	return instr{}, false
}
