package exec

import (
	"errors"
	"fmt"
	"sync"

	"rag2/tensor"
)

// ErrMemory reports a model that does not fit the memory that is free: it is refused before
// it is loaded, since running out of memory ends the process.
var ErrMemory = errors.New("not enough memory")

// Memory that models of this process were promised and have not taken yet, and what they
// have taken, by backend.
var budget = struct {
	sync.Mutex
	pending, loaded map[any]int64
}{pending: map[any]int64{}, loaded: map[any]int64{}}

// freeMemory is Engine.Info's, replaced by tests.
var freeMemory = func(e *tensor.Engine) int64 {
	i := e.Info()
	if f := e.MemoryFraction(); f > 0 && i.MemoryTotal > 0 { // reserved as a whole when it started
		return int64(f*float64(i.MemoryTotal)) - budget.loaded[e.Backend()]
	}
	return i.MemoryFree
}

// promise reserves n bytes of the engine's memory for what, or says that they are not
// there. Of a machine whose memory is not known nothing is refused.
func promise(e *tensor.Engine, what string, n int64) error {
	budget.Lock()
	defer budget.Unlock()
	b := e.Backend()
	free := freeMemory(e)
	if left := free - budget.pending[b]; free > 0 && n > left {
		const gib = 1 << 30
		err := fmt.Errorf("%w: %s takes %.1f GiB on %s, %.1f GiB are free", ErrMemory, what, float64(n)/gib, e.Name(), float64(max(0, left))/gib)
		if p := budget.pending[b]; p > 0 {
			err = fmt.Errorf("%w beside %.1f GiB of models that were opened before", err, float64(p)/gib)
		}
		return fmt.Errorf("%w; use a smaller or quantised model, shorter or fewer texts at once, or another engine", err)
	}
	budget.pending[b] += n
	return nil
}

// cacheChecked is the size from which caches ask for their memory: reading what is free takes
// longer than smaller ones are worth.
const cacheChecked = 64 << 20

// Reserve takes n bytes of the device's memory beside the weights, for a cache of keys and
// values say, or gives ErrMemory. The function gives them back.
func (x *Weights) Reserve(what string, n int64) (release func(), err error) {
	if n < cacheChecked {
		return func() {}, nil
	}
	if err := promise(x.engine, what, n); err != nil {
		return nil, err
	}
	keep(x.engine, n)
	return func() { forget(x.engine, 0, n) }, nil
}

// keep notes that promised bytes were taken.
func keep(e *tensor.Engine, n int64) {
	budget.Lock()
	defer budget.Unlock()
	budget.pending[e.Backend()] -= n
	budget.loaded[e.Backend()] += n
}

// forget gives bytes back.
func forget(e *tensor.Engine, pending, loaded int64) {
	budget.Lock()
	defer budget.Unlock()
	for m, n := range map[*map[any]int64]int64{&budget.pending: pending, &budget.loaded: loaded} {
		if (*m)[e.Backend()] -= n; (*m)[e.Backend()] <= 0 {
			delete(*m, e.Backend())
		}
	}
}
