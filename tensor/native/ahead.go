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
	task, end int     // of the attention's tasks, in order
	part      int     // the next of the task's: keys and values of each segment
	cache     stretch // the part at hand
	weight    stretch // see begin
}

// stretch is memory to be fetched: left bytes, from bytes behind base, which stays a
// pointer to what is there.
type stretch struct {
	base       unsafe.Pointer
	from, left int
}

// take is where the next n bytes begin.
func (s *stretch) take(n int) unsafe.Pointer {
	p := unsafe.Add(s.base, s.from)
	s.from, s.left = s.from+n, s.left-n
	return p
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
		a := ahead{weight: x.workers[i].ahead.weight}
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
			at := p * q.format.PanelBytes(q.k)
			a.weight = stretch{unsafe.Pointer(unsafe.SliceData(q.data)), at, min(firstBytes, len(q.data)-at)}
		}
	}
}

// next is where the n bytes begin that the worker fetches next, or nil.
func (w *workerState) next(x *execution, n int) unsafe.Pointer {
	a := &w.ahead
	if n == 0 {
		return nil
	}
	if a.weight.left > 0 {
		return a.weight.take(n)
	}
	for a.cache.left <= 0 || 2*a.cache.left < n { // so little of a part is not worth it
		if a.task == a.end {
			return nil
		}
		if s := x.coming; a.part < 2*len(s.segments) {
			a.cache = s.cached(x, a.task, a.part/2, a.part%2)
			a.part++
			continue
		}
		a.task, a.part = a.task+1, 0
	}
	return a.cache.take(n)
}

// cached is the memory of keys (0) or values (1) that a task reads of a segment of a
// parameter. Tasks of a head's further rows read what those of the first do.
func (s *attentionStep) cached(x *execution, task, segment, what int) stretch {
	g := &s.segments[segment]
	h, b, t0 := s.at(task)
	v, at, st := g.k, g.kOff, &g.ks
	if what == 1 {
		v, at, st = g.v, g.vOff, &g.vs
	}
	if v.kind != parameter || t0 > 0 || what == 0 && !g.panels || what == 1 && st[2] != s.d {
		return stretch{}
	}
	from, to := g.seen(x, b, h, t0, min(s.rows, s.t-t0), s.g)
	if what == 0 {
		to = (to + simd.PanelWidth - 1) / simd.PanelWidth * simd.PanelWidth
	}
	return stretch{x.base[v.id], 4 * (at + b*st[0] + h*st[1] + from*s.d), 4 * s.d * (to - from)}
}
