package native

import (
	"runtime/debug"
	"unsafe"

	"rag2/tensor/simd"
)

// The engines "native:bf16" and "native:f16" keep weights [out,in] of products in
// 16-bit elements: half the memory, and half the traffic where that is the limit. The
// buffer's elements are the rounded ones from the first product on. A checkpoint that
// is 16-bit already comes through BlockBuffer, on any engine of this package.

// half tells whether the elements are 16-bit numbers.
func (q *blocks) half() bool { return q.format == simd.BlockBF16 || q.format == simd.BlockF16 }

// roundWeight rounds a matrix that the step uses whole, as [n,k], to 16 bits.
func (b *Buffer) roundWeight(x *execution, s *dotStep) {
	d := b.shape.Dimensions
	if !b.host || len(d) != 2 || s.b.off != 0 || s.b.row != 1 || s.b.col != s.k || d[0] != s.n || d[1] != s.k || s.k < 32 || s.n < simd.PanelWidth {
		return
	}
	src := unsafe.Slice((*float32)(b.ensureFlat()), s.n*s.k)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blocks != nil {
		return
	}
	p := &roundJob{format: x.exe.backend.half, src: src, n: s.n, k: s.k}
	p.dst = simd.NewHalfPanels(s.n, s.k)
	x.job = jobRef{step: p}
	x.pool.run(x, (s.n+simd.PanelWidth-1)/simd.PanelWidth)
	b.blocks = &blocks{format: p.format, data: p.dst, n: s.n, k: s.k}
	b.packs = nil
	if x.exe.flat[s.b.v.index] {
		return
	}
	b.mem, x.base[s.b.v.id] = nil, nil
	if droppedBytes.Add(int64(b.bytes)) >= 64<<20 {
		droppedBytes.Store(0)
		debug.FreeOSMemory()
	}
}

// roundJob rounds one panel per task.
type roundJob struct {
	format simd.BlockFormat
	dst    []byte
	src    []float32
	n, k   int
}

func (p *roundJob) task(_ *execution, i, _ int) {
	simd.PackHalf(p.format, p.dst, p.src, p.k, p.n, 1, p.k, i, i+1)
}
