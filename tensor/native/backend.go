package native

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"rag2/tensor"
	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/notimplemented"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
)

// Name is the engine's name.
const Name = "native"

func init() {
	tensor.Register(Name, func(tensor.Options) (backends.Backend, error) { return New(0), nil })
	tensor.Register(Name+":int8", func(tensor.Options) (backends.Backend, error) { return NewInt8(0), nil })
	tensor.Register(Name+":bf16", func(tensor.Options) (backends.Backend, error) { return NewHalf(0, simd.BlockBF16), nil })
	tensor.Register(Name+":f16", func(tensor.Options) (backends.Backend, error) { return NewHalf(0, simd.BlockF16), nil })
}

// errFinalized reports the use of a backend, buffer or executable that was freed.
var errFinalized = errors.New("native: used after it was finalized")

// Backend implements backends.Backend on the CPU.
type Backend struct {
	pool      *pool
	int8      bool
	half      simd.BlockFormat // of weights; 0 = as they come
	panelMem  panelMemory
	finalized atomic.Bool

	mu        sync.Mutex
	free      map[int][][]uint64 // by length
	freeBytes int
	arenas    [][]uint64 // of ended executions, any of them serves any executable
}

var _ backends.Backend = (*Backend)(nil)

// New makes a backend that uses at most threads threads; 0 = GOMAXPROCS.
func New(threads int) *Backend {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	return &Backend{pool: newPool(threads), free: map[int][][]uint64{}}
}

// NewInt8 makes a backend that multiplies with weights quantised to integers.
func NewInt8(threads int) *Backend {
	b := New(threads)
	b.int8 = true
	return b
}

// NewHalf makes a backend that keeps the weights of products in 16-bit elements,
// simd.BlockBF16 or simd.BlockF16, rounded to nearest; sums stay float32. With BlockBF16 on
// a CPU with AVX512-BF16 the activations that these weights multiply are rounded too.
func NewHalf(threads int, f simd.BlockFormat) *Backend {
	b := New(threads)
	b.half = f
	if f == simd.BlockBF16 && simd.Level >= simd.BF16 {
		b.half = simd.BlockBF16Pairs
	}
	return b
}

// Name is "native".
func (b *Backend) Name() string { return Name }

// String is "native".
func (b *Backend) String() string { return Name }

// Description names the instruction set and the number of threads.
func (b *Backend) Description() string {
	kind := "f32"
	switch {
	case b.int8:
		kind = "int8"
	case b.half == simd.BlockBF16Pairs:
		kind = "bf16 products"
	case b.half == simd.BlockBF16:
		kind = "bf16 weights"
	case b.half == simd.BlockF16:
		kind = "f16 weights"
	}
	return fmt.Sprintf("rag2 native engine (%s, %s, %d threads)", kind, simd.Level, b.pool.threads())
}

// Parallel calls f(0) … f(n-1) in any order, on the threads that run computations: they
// are still awake after one, and stay so until the next.
func (b *Backend) Parallel(n int, f func(i int)) { b.pool.run(tasks(f), n) }

// NumDevices is 1.
func (b *Backend) NumDevices() int { return 1 }

// DeviceDescription describes the CPU.
func (b *Backend) DeviceDescription(backends.DeviceNum) string {
	return fmt.Sprintf("%s/%s, %s, %d threads", runtime.GOOS, runtime.GOARCH, simd.Level, b.pool.threads())
}

// Capabilities lists the ops that Builder has and the dtypes.
func (b *Backend) Capabilities() backends.Capabilities {
	c := backends.Capabilities{Operations: map[backends.OpType]bool{}, DTypes: map[dtypes.DType]bool{}}
	for _, o := range supportedOps() {
		c.Operations[o] = true
	}
	for _, d := range supportedDTypes {
		c.DTypes[d] = true
	}
	return c
}

// Builder starts a computation.
func (b *Backend) Builder(name string) backends.Builder {
	bl := &Builder{backend: b, name: name}
	bl.Builder.ErrFn = func(op backends.OpType) error {
		return fmt.Errorf("native: op %s: %w", op, notimplemented.NotImplementedError)
	}
	return bl
}

// Finalize stops the workers and drops the free memory. Nothing may be running.
func (b *Backend) Finalize() {
	if b.finalized.Swap(true) {
		return
	}
	b.pool.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free, b.freeBytes, b.arenas = nil, 0, nil
}

// IsFinalized tells whether Finalize was called.
func (b *Backend) IsFinalized() bool { return b.finalized.Load() }

// maxFree bounds the memory kept for reuse.
const maxFree = 256 << 20

// alloc returns memory of n bytes whose content is arbitrary.
func (b *Backend) alloc(n int) []uint64 {
	words := max(1, (n+7)/8)
	b.mu.Lock()
	if l := b.free[words]; len(l) > 0 {
		m := l[len(l)-1]
		b.free[words] = l[:len(l)-1]
		b.freeBytes -= 8 * words
		b.mu.Unlock()
		return m
	}
	b.mu.Unlock()
	return make([]uint64, words)
}

// release gives memory back.
func (b *Backend) release(m []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free == nil || b.freeBytes+8*len(m) > maxFree {
		return
	}
	b.free[len(m)] = append(b.free[len(m)], m)
	b.freeBytes += 8 * len(m)
}

// takeArena returns at least n words of arbitrary content. When no arena that was
// given back is long enough, the longest makes place for a new one.
func (b *Backend) takeArena(n int) []uint64 {
	b.mu.Lock()
	best := -1
	for i, a := range b.arenas {
		if best < 0 || (len(a) >= n) != (len(b.arenas[best]) >= n) && len(a) >= n || len(a) >= n && len(a) < len(b.arenas[best]) || len(b.arenas[best]) < n && len(a) > len(b.arenas[best]) {
			best = i
		}
	}
	var a []uint64
	if best >= 0 {
		a = b.arenas[best]
		b.arenas = slices.Delete(b.arenas, best, best+1)
	}
	b.mu.Unlock()
	if len(a) < n || a == nil {
		a = hugeWords(max(n, 8))
	}
	return a
}

func (b *Backend) giveArena(a []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.finalized.Load() && len(b.arenas) < b.pool.threads() {
		b.arenas = append(b.arenas, a)
	}
}
