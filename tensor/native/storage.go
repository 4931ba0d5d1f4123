package native

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// A buffer's storage is independent of its shape and dtype. Apart from flat memory a
// float32 matrix may be held as packed panels only (a weight whose flat copy nobody
// needs was packed), or as quantised blocks. Products and row gathers read those
// directly; for anything else the flat form is made again.

// blocks is a float32 matrix [n,k] stored as GGUF blocks in panels of 16 rows.
type blocks struct {
	format simd.BlockFormat
	data   []byte
	n, k   int
}

func (q *blocks) panel(p int) []byte {
	size := q.format.PanelBytes(q.k)
	return q.data[p*size : (p+1)*size]
}

// BlockBuffer makes a float32 buffer [n,k] from GGUF blocks of type Q4_0, Q4_1, Q8_0,
// Q4_K or Q6_K, or from elements of type BF16 or F16, kept as they are: products with
// it (contracting k) read them directly, and so do gathers of rows. Its elements are
// the values stored. Types that KeepsBlocks denies are refused.
func (b *Backend) BlockBuffer(ggufType string, data []byte, s shapes.Shape) (backends.Buffer, error) {
	if b.IsFinalized() {
		return nil, errFinalized
	}
	if s.DType != dtypes.Float32 || s.Rank() != 2 {
		return nil, fmt.Errorf("native: blocks as %s; a float32 matrix is needed", s)
	}
	if !b.KeepsBlocks(ggufType) {
		return nil, fmt.Errorf("native: weights of type %s are not kept as they are by this engine", ggufType)
	}
	n, k := s.Dimensions[0], s.Dimensions[1]
	var f simd.BlockFormat
	var panels []byte
	var err error
	if ggufType == "BF16" && b.half == simd.BlockBF16Pairs {
		f = b.half
		panels, err = simd.ImportHalf(f, data, n, k, b.panelMem.bytes)
	} else {
		f, panels, err = simd.ImportBlocks(ggufType, data, n, k, b.panelMem.bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("native: %w", err)
	}
	return &Buffer{backend: b, shape: s.Clone(), bytes: 4 * n * k, host: true, blocks: &blocks{f, panels, n, k}}, nil
}

// KeepsBlocks tells whether BlockBuffer takes a storage type. The int8 engine has
// elements of 16 bits quantised instead.
func (b *Backend) KeepsBlocks(ggufType string) bool {
	switch ggufType {
	case "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K":
		return true
	case "BF16", "F16":
		return !b.int8
	}
	return false
}

// LazyBuffer makes a float32 buffer whose elements read writes to dst, in order. They
// are read when an execution first needs them, and where panels, integers or 16-bit
// elements are all that it needs, they are read to a passing place: no more than one
// weight is in memory twice. read may be called again, from any goroutine, until the
// buffer is finalized; its error is that of the Execute, or other call, that needs the
// elements.
func (b *Backend) LazyBuffer(s shapes.Shape, read func(dst []float32) error) (backends.Buffer, error) {
	if b.IsFinalized() {
		return nil, errFinalized
	}
	if err := checkDevice(0, s); err != nil {
		return nil, err
	}
	if s.DType != dtypes.Float32 {
		return nil, fmt.Errorf("native: a lazy buffer of %s; float32 is needed", s.DType)
	}
	return &Buffer{backend: b, shape: s.Clone(), bytes: 4 * s.Size(), host: true, source: read}, nil
}

// ensureFlat gives the buffer flat memory, whatever else it holds.
func (b *Buffer) ensureFlat() (unsafe.Pointer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.flatten()
	return b.base(), err
}

// flatten is ensureFlat under the lock.
func (b *Buffer) flatten() error {
	if b.mem != nil {
		return nil
	}
	mem := make([]uint64, max(1, (b.bytes+7)/8))
	dst := unsafe.Slice((*float32)(unsafe.Pointer(&mem[0])), b.bytes/4)
	switch {
	case b.blocks != nil:
		for r := range b.blocks.n {
			b.row(dst[r*b.blocks.k:(r+1)*b.blocks.k], r)
		}
	case b.inPanels():
		key := b.whole
		p := b.packs[key]
		for j := range key.n {
			for i := range key.k {
				dst[i*key.strideK+j*key.strideN] = p[(j/simd.PanelWidth*key.k+i)*simd.PanelWidth+j%simd.PanelWidth]
			}
		}
	default:
		if err := b.source(dst); err != nil {
			return err
		}
	}
	b.mem = mem
	return nil
}

// elements are those of a float32 buffer, under the lock; when kept is false they may
// lie in memory of the execution that the next call reuses.
func (b *Buffer) elements(x *execution, kept bool) ([]float32, error) {
	if b.mem == nil && !kept && b.source != nil && b.blocks == nil && !b.inPanels() {
		if n := b.bytes / 4; len(x.passing) < n {
			x.passing = nil // before the next is made
			x.passing = make([]float32, n)
		}
		dst := x.passing[:b.bytes/4]
		return dst, b.source(dst)
	}
	if err := b.flatten(); err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(b.base()), b.bytes/4), nil
}

// row reads row r of a matrix that has no flat memory.
func (b *Buffer) row(dst []float32, r int) {
	if q := b.blocks; q != nil {
		simd.BlockRow(q.format, dst, q.panel(r/simd.PanelWidth), r%simd.PanelWidth)
		return
	}
	key := b.whole
	p := b.packs[key]
	if key.strideK == 1 {
		simd.UnpackColumn(dst, p, key.k, r)
		return
	}
	for j := range dst { // the rows run along k
		dst[j] = p[(j/simd.PanelWidth*key.k+r)*simd.PanelWidth+j%simd.PanelWidth]
	}
}

// inPanels tells whether a packed copy holds every element.
func (b *Buffer) inPanels() bool { return b.whole.n > 0 }

// covers tells whether a packed copy holds all of a matrix.
func (b *Buffer) covers(key packKey) bool {
	d := b.shape.Dimensions
	return len(d) == 2 && key.off == 0 && key.k*key.n == d[0]*d[1] && min(key.strideK, key.strideN) == 1 && max(key.strideK, key.strideN) == d[1]
}

// dropFlat frees the flat memory, because the elements are elsewhere or can be read
// again.
func (b *Buffer) dropFlat() {
	if b.mem == nil {
		return
	}
	b.mem = nil
	if droppedBytes.Add(int64(b.bytes)) >= 64<<20 {
		droppedBytes.Store(0)
		debug.FreeOSMemory()
	}
}

// droppedBytes is what dropFlat freed since the last collection: while weights are
// packed, garbage must not pile up to the size of the model.
var droppedBytes atomic.Int64

// gatherStep is a gather of whole rows of a matrix.
type gatherStep struct {
	out, table, indices *value
	rows, width, count  int
	read                func(b []byte, i int) int
}

func (s *gatherStep) scratch() int { return 0 }

func (s *gatherStep) run(x *execution) {
	out, ix := x.floats(s.out), x.bytes(s.indices)
	var b *Buffer
	if s.table.kind == parameter && x.base[s.table.id] == nil {
		b = x.params[s.table.index]
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.mem != nil { // made again meanwhile
			x.base[s.table.id], b = b.base(), nil
		}
	}
	for i := range s.count {
		r := max(0, min(s.read(ix, i), s.rows-1))
		dst := out[i*s.width : (i+1)*s.width]
		if b != nil {
			b.row(dst, r)
			continue
		}
		copy(dst, unsafe.Slice((*float32)(unsafe.Add(x.base[s.table.id], 4*r*s.width)), s.width))
	}
}

// rowGather recognises such a gather.
func rowGather(a gatherAttr, table, indices, out shapes.Shape) bool {
	return table.DType == dtypes.Float32 && table.Rank() == 2 && len(a.collapsed) == 1 && a.collapsed[0] == 0 && len(a.starts) == 1 && a.starts[0] == 0 &&
		a.sizes[1] == table.Dimensions[1] && len(a.offset) == 1 && a.offset[0] == out.Rank()-1 && a.vector == indices.Rank()-1 && out.Size() > 0
}

// quantized computes rows m0 … m1 and panels p0 … p1 into c when the weight is in
// blocks or integers.
func (s *dotStep) quantized(x *execution, w *workerState, c []float32, cRow, m0, m1, p0, p1 int) bool {
	switch {
	case x.blocks != nil:
		s.blockTask(x, w, c, cRow, m0, m1, p0, p1)
		if bias := s.biasOf(x); bias != nil && !x.blocks.sumsBias() {
			for r := range m1 - m0 {
				row := c[r*cRow:][:min(s.n, p1*simd.PanelWidth)-p0*simd.PanelWidth]
				simd.Binary(simd.Add, row, row, bias[p0*simd.PanelWidth:])
			}
		}
	case x.int8 != nil:
		x.int8.Run(&x.rows, s.biasOf(x), c, cRow, m0, m1, p0, p1)
	default:
		return false
	}
	return true
}
