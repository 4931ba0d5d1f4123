package native

import (
	"slices"
	"unsafe"

	"rag2/tensor/simd"
)

// Products of several rows with weights in blocks are bound by multiplications, attention
// to caches by memory. So products fetch, beside their weights, what the same worker reads
// in the attention that follows: at eight streams of 128 tokens this is 1.6 MB a layer
// beside 2.2 MB of weights.

// ahead is a worker's way through the caches that the next attention reads.
type ahead struct {
	task, end  int // of the attention's tasks, in order
	part       int // the next of the task's: keys and values of each segment
	from, left int // bytes of the part at hand
	base       unsafe.Pointer
	first      unsafe.Pointer // see begin
	firstLeft  int
}

// coming gives at every attention the one after it, if its masks' spans are those of the
// first, so known by then.
func coming(steps []step) []*attentionStep {
	out, last := make([]*attentionStep, len(steps)), -1
	for i, st := range steps {
		s, ok := st.(*attentionStep)
		if !ok {
			continue
		}
		if last >= 0 && slices.EqualFunc(s.segments, steps[last].(*attentionStep).segments, func(a, b segment) bool { return a.spans == b.spans }) {
			out[last] = s
		}
		last = i
	}
	return out
}

// look prepares all workers for an attention (nil: there is none).
func (x *execution) look(s *attentionStep) {
	x.coming = s
	for i := range x.workers {
		a := ahead{first: x.workers[i].ahead.first, firstLeft: x.workers[i].ahead.firstLeft}
		if s != nil {
			a.task, a.end = share(i, s.tasks(), len(x.workers))
		}
		x.workers[i].ahead = a
	}
}

// firstBytes is what of a weight's piece the product kernels do not fetch themselves.
const firstBytes = 8 << 10

// begin has the workers fetch, before anything else, the beginnings of their pieces of the
// weight after that of s, which would be waited for.
func (x *execution) begin(s *dotStep) {
	if s.weight+1 == len(x.weights) {
		return
	}
	next, q := x.exe.weights[s.weight+1], x.weights[s.weight+1].blocks
	if q == nil || next.m == 1 || next.tm > 1 { // one row is bound by memory
		return
	}
	for i := range x.workers {
		from, to := share(i, next.tn, len(x.workers))
		if a := &x.workers[i].ahead; from < to {
			p, _ := next.piece(from)
			a.first, a.firstLeft = unsafe.Pointer(unsafe.SliceData(q.panel(p))), firstBytes
		}
	}
}

// next is where the n bytes begin that the worker fetches next, or nil.
func (w *workerState) next(x *execution, n int) unsafe.Pointer {
	a := &w.ahead
	if n == 0 {
		return nil
	}
	if a.firstLeft > 0 {
		p := a.first
		a.first, a.firstLeft = unsafe.Add(p, n), a.firstLeft-n
		return p
	}
	for 2*a.left < n { // what little is left of a part is not worth it
		if a.task == a.end {
			return nil
		}
		s := x.coming
		if a.part == 2*len(s.segments) {
			a.task, a.part = a.task+1, 0
			continue
		}
		a.base, a.left = s.cached(x, a.task, a.part/2, a.part%2)
		a.from = 0
		a.part++
	}
	p := unsafe.Add(a.base, a.from)
	a.from, a.left = a.from+n, a.left-n
	return p
}

// cached is the memory of keys (0) or values (1) that a task reads of a segment of a
// parameter.
func (s *attentionStep) cached(x *execution, task, segment, what int) (unsafe.Pointer, int) {
	g := &s.segments[segment]
	h, b, t0 := s.at(task)
	v, at, st := g.k, g.kOff, &g.ks
	if what == 1 {
		v, at, st = g.v, g.vOff, &g.vs
	}
	if v.kind != parameter || what == 0 && !g.panels || what == 1 && st[2] != s.d {
		return nil, 0
	}
	from, to := g.seen(x, b, h, t0, min(s.rows, s.t-t0), s.g)
	to = (to + simd.PanelWidth - 1) / simd.PanelWidth * simd.PanelWidth
	return unsafe.Add(x.base[v.id], 4*(at+b*st[0]+h*st[1]+from*s.d)), 4 * s.d * (to - from)
}
