package native

import (
	"unsafe"

	"rag2/tensor/simd"
)

func bytesOf[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

func addTo(dst, src []float32) { simd.Binary(simd.Add, dst, dst, src) }

// genericStep runs a function on whole arrays, on the calling thread.
type genericStep struct {
	out *value
	in  []*value
	f   genericFunc
}

func (s *genericStep) scratch() int { return 0 }

func (s *genericStep) run(x *execution) {
	in := x.args[:0]
	for _, v := range s.in {
		in = append(in, x.bytes(v))
	}
	s.f(x.bytes(s.out), in)
	clear(in)
}

// copyPart copies one strided array; offsets and strides in elements.
type copyPart struct {
	dst, src               *value
	to, from               int
	dims                   []int
	dstStrides, srcStrides []int
}

// copyStep copies parts, in parallel over their first axes.
type copyStep struct {
	parts []copyPart
	size  int
}

func (s *copyStep) scratch() int { return 0 }

// copyBytes is what is worth a hand-over.
const copyBytes = 64 << 10

// pieces is the number of pieces of one part.
func (s *copyStep) pieces(p *copyPart) int {
	if len(p.dims) == 0 {
		return 1
	}
	return max(1, min(p.dims[0], product(p.dims)*s.size/copyBytes))
}

func (s *copyStep) run(x *execution) {
	n, bytes := 0, 0
	for i := range s.parts {
		n += s.pieces(&s.parts[i])
		bytes += product(s.parts[i].dims) * s.size
	}
	if n == 1 || bytes < 2*copyBytes {
		for i := range s.parts {
			s.piece(x, &s.parts[i], 0, 1)
		}
		return
	}
	x.job = jobRef{step: s}
	x.pool.run(x, n)
}

func (s *copyStep) task(x *execution, i, _ int) {
	for j := range s.parts {
		p := &s.parts[j]
		n := s.pieces(p)
		if i < n {
			s.piece(x, p, i, n)
			return
		}
		i -= n
	}
}

func (s *copyStep) piece(x *execution, p *copyPart, i, n int) {
	dst := unsafe.Add(x.base[p.dst.id], p.to*s.size)
	src := unsafe.Add(x.base[p.src.id], p.from*s.size)
	if len(p.dims) == 0 {
		copyRun(dst, 1, src, 1, 1, s.size)
		return
	}
	lo, hi := p.dims[0]*i/n, p.dims[0]*(i+1)/n
	for j := lo; j < hi; {
		if len(p.dims) == 1 {
			copyRun(unsafe.Add(dst, j*p.dstStrides[0]*s.size), p.dstStrides[0], unsafe.Add(src, j*p.srcStrides[0]*s.size), p.srcStrides[0], hi-j, s.size)
			return
		}
		copyStrided(unsafe.Add(dst, j*p.dstStrides[0]*s.size), p.dstStrides[1:], unsafe.Add(src, j*p.srcStrides[0]*s.size), p.srcStrides[1:], p.dims[1:], s.size)
		j++
	}
}

// reduceStep reduces the middle axis of [outer, n, inner].
type reduceStep struct {
	out, in         *value
	f               func(out []byte, x []byte, outer, n, inner int)
	outer, n, inner int
	size            int
	addRows         bool // float32 sum: rows are added with vectors
}

func (s *reduceStep) scratch() int { return 0 }

func (s *reduceStep) run(x *execution) {
	if !s.addRows || s.inner < 8 {
		s.f(x.bytes(s.out), x.bytes(s.in), s.outer, s.n, s.inner)
		return
	}
	x.job = jobRef{step: s}
	x.pool.run(x, s.outer*s.columns())
}

// columns is the number of pieces that the inner axis is cut into.
func (s *reduceStep) columns() int { return max(1, min(8, s.inner/64)) }

func (s *reduceStep) task(x *execution, i, _ int) {
	k := s.columns()
	lo, hi := s.inner*(i%k)/k, s.inner*(i%k+1)/k
	i /= k
	out, in := cast[float32](x.bytes(s.out)), cast[float32](x.bytes(s.in))
	acc := out[i*s.inner+lo : i*s.inner+hi]
	clear(acc)
	for r := range s.n {
		at := (i*s.n + r) * s.inner
		addTo(acc, in[at+lo:at+hi])
	}
}
