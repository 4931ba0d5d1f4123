package llama

import (
	"fmt"
	"sync"

	"rag2/tensor/exec"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// minCapacity is the least number of tokens that a cache has room for; it doubles.
const minCapacity = 256

// panel is the number of tokens whose keys are stored together, see kvCache.
const panel = 16

// kvCache holds keys and values of one or several sequences in memory shared with the
// engine where it has such, [slots, layers, 2, KV, capacity·D] float32: first keys, in panels of 16
// tokens [capacity/16, D, 16] (as a product with them reads them), then values
// [capacity, D].
type kvCache struct {
	m               *Model
	slots, capacity int
	buf             backends.Buffer
	flat            []float32 // the same memory
	// apart says that the engine shares no memory (a GPU): flat is the host's, and buf a copy,
	// see append.
	apart   bool
	release func()     // gives the memory back to the budget
	mu      sync.Mutex // a prefix may be uploaded for several sequences
}

// roomFor is the capacity for n tokens.
func roomFor(n int) int {
	size := minCapacity
	for size < n {
		size *= 2
	}
	return size
}

func (m *Model) newCache(slots, capacity int) (*kvCache, error) {
	c := m.Config
	k := &kvCache{m: m, slots: slots, capacity: capacity}
	what := fmt.Sprintf("the cache of %d × %d tokens", slots, capacity)
	var err error
	if k.release, err = m.weights.Reserve(what, int64(k.shape().Memory())); err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	if !m.backend.HasSharedBuffers() {
		k.apart, k.flat = true, make([]float32, slots*c.Layers*2*k.head()*c.KVHeads)
		return k, nil
	}
	var flat any
	if cerr := exec.Catch("allocate cache", func() { k.buf, flat, err = m.backend.NewSharedBuffer(0, k.shape()) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		k.close()
		return nil, fmt.Errorf("llama: %s: %w", what, err)
	}
	k.flat = flat.([]float32)
	if want := slots * c.Layers * 2 * k.head() * c.KVHeads; len(k.flat) != want {
		k.close()
		return nil, fmt.Errorf("llama: the engine gave %d floats of cache for %d", len(k.flat), want)
	}
	return k, nil
}

func (k *kvCache) shape() shapes.Shape {
	c := k.m.Config
	return shapes.Make(dtypes.Float32, k.slots, c.Layers, 2, c.KVHeads, k.head())
}

// buffer is the cache on the device.
func (k *kvCache) buffer() (backends.Buffer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.buf == nil {
		var err error
		if k.buf, err = exec.Upload(k.m.backend, k.flat, k.shape()); err != nil {
			return nil, fmt.Errorf("llama: cache of %d × %d tokens: %w", k.slots, k.capacity, err)
		}
	}
	return k.buf, nil
}

// changed drops the device's copy of a cache that is apart.
func (k *kvCache) changed() {
	if k.apart && k.buf != nil {
		_ = k.m.backend.BufferFinalize(k.buf)
		k.buf = nil
	}
}

// head is the number of floats of one head's keys or values.
func (k *kvCache) head() int { return k.capacity * k.m.Config.HeadDim }

func (k *kvCache) close() {
	if k == nil {
		return
	}
	if k.buf != nil {
		_ = k.m.backend.BufferFinalize(k.buf)
	}
	k.release()
	k.buf, k.flat, k.release = nil, nil, func() {}
}

// store writes keys and values of n tokens at position pos of a slot. kv are those of
// rows row … row+n of [layers, 2, rows, KV, D].
func (k *kvCache) store(slot, pos int, kv []float32, rows, row, n int) {
	if k.apart && k.buf != nil && n == 1 {
		k.append(slot, pos, kv, rows, row)
	} else {
		k.changed()
	}
	c := k.m.Config
	d := c.HeadDim
	for l := range 2 * c.Layers {
		for h := range c.KVHeads {
			dst := k.flat[((slot*2*c.Layers+l)*c.KVHeads+h)*k.head():][:k.head()]
			for t := range n {
				src := kv[((l*rows+row+t)*c.KVHeads+h)*d:][:d]
				at := pos + t
				if l%2 == 1 {
					copy(dst[at*d:(at+1)*d], src)
					continue
				}
				p := dst[at/panel*panel*d+at%panel:]
				for i, v := range src {
					p[i*panel] = v
				}
			}
		}
	}
}

// copySlot takes over the first n tokens of another cache's slot.
func (k *kvCache) copySlot(slot int, from *kvCache, fromSlot, n int) {
	k.changed()
	c := k.m.Config
	n = (n + panel - 1) / panel * panel * c.HeadDim
	for i := range 2 * c.Layers * c.KVHeads {
		copy(k.flat[(slot*2*c.Layers*c.KVHeads+i)*k.head():][:n], from.flat[(fromSlot*2*c.Layers*c.KVHeads+i)*from.head():][:n])
	}
}
