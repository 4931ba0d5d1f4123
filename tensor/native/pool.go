package native

import (
	"sync"
	"sync/atomic"
	"time"

	"rag2/tensor/simd"
)

// job is work cut into tasks that may run in any order on any worker.
type job interface {
	// task runs task i; worker, 0 ≤ worker < threads, owns its scratch memory
	// during the call.
	task(i, worker int)
}

// tasks makes a function a job.
type tasks func(i int)

func (f tasks) task(i, _ int) { f(i) }

// pool runs the tasks of one job at a time on the caller and its workers. A second
// caller meanwhile runs its job alone. Workers spin for a while after a job, since
// the next one usually follows at once, then park.
type pool struct {
	n    int
	busy sync.Mutex // held by the caller whose job the workers help with

	gen    atomic.Uint32 // odd while a job is open
	next   atomic.Int64
	total  atomic.Int64
	active atomic.Int32 // workers inside the job
	waits  atomic.Bool  // the caller sleeps until active is 0
	idle   chan struct{}
	job    job
	parked atomic.Int32
	wake   chan struct{}
	quit   atomic.Bool
	start  sync.Once
	done   sync.WaitGroup
	failed atomic.Pointer[failure]
}

type failure struct{ value any }

// spinFor is how long a worker looks for work before it parks. A pause takes 40 to 400
// ns, by processor, so that the time is measured: spinning longer than a forward
// pass's gaps takes the core from whoever could use it.
const spinFor = 200 * time.Microsecond

// awaitFor is how long a caller spins for the last workers: a task of one short query's
// products takes 100 to 200 µs, and a caller that slept through it comes back so late
// that the whole pass took a quarter longer.
const awaitFor = 300 * time.Microsecond

func newPool(threads int) *pool {
	return &pool{n: max(1, threads), wake: make(chan struct{}, threads), idle: make(chan struct{}, 1)}
}

func (p *pool) threads() int { return p.n }

// launch starts the workers, when first needed.
func (p *pool) launch() {
	for w := 1; w < p.n; w++ {
		p.done.Add(1)
		go p.worker(w)
	}
}

func (p *pool) close() {
	p.busy.Lock()
	defer p.busy.Unlock()
	p.quit.Store(true)
	for range p.n {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
	p.start.Do(func() {})
	p.done.Wait()
}

// run executes tasks 0 … n-1 of j and returns when all are done. A panic of a task
// is raised again here.
func (p *pool) run(j job, n int) {
	if n == 1 || p.n == 1 || !p.busy.TryLock() {
		for i := range n {
			j.task(i, 0)
		}
		return
	}
	defer p.busy.Unlock()
	p.start.Do(p.launch)
	p.job = j
	p.next.Store(0)
	p.total.Store(int64(n))
	p.gen.Add(1) // opens the job
	for range min(int(p.parked.Load()), n-1) {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
	p.help(0)
	p.gen.Add(1) // no worker enters from here on
	p.await()
	p.job = nil
	if f := p.failed.Swap(nil); f != nil {
		panic(f.value)
	}
}

// await returns when no worker is inside the job. The last task is mostly a matter of
// microseconds; a worker whose core was taken away is not waited for spinning, which
// would keep the core from it.
func (p *pool) await() {
	for start, i := time.Now(), 0; p.active.Load() != 0; i++ {
		if i%8 == 7 && time.Since(start) > awaitFor {
			p.waits.Store(true)
			if p.active.Load() != 0 || !p.waits.CompareAndSwap(true, false) {
				<-p.idle // whoever leaves last takes the flag and sends
			}
			return
		}
		pause()
	}
}

// leave is a worker's way out of a job.
func (p *pool) leave() {
	if p.active.Add(-1) == 0 && p.waits.CompareAndSwap(true, false) {
		p.idle <- struct{}{}
	}
}

// help takes tasks until none is left.
func (p *pool) help(worker int) {
	defer func() {
		if r := recover(); r != nil {
			p.failed.Store(&failure{r})
			p.next.Store(p.total.Load())
		}
	}()
	for {
		i := p.next.Add(1) - 1
		if i >= p.total.Load() {
			return
		}
		p.job.task(int(i), worker)
	}
}

func (p *pool) worker(w int) {
	defer p.done.Done()
	seen := uint32(0)
	for {
		idle := time.Now()
		for {
			if p.quit.Load() {
				return
			}
			if g := p.gen.Load(); g&1 == 1 && g != seen {
				p.active.Add(1)
				if p.gen.Load() == g { // still open, and stays so while active
					p.help(w)
					seen = g
				}
				p.leave()
				idle = time.Now()
				continue
			}
			if time.Since(idle) > spinFor {
				break
			}
			pause()
		}
		p.parked.Add(1)
		if p.gen.Load()&1 == 0 && !p.quit.Load() {
			<-p.wake
		}
		p.parked.Add(-1)
	}
}

func pause() { simd.Pause() }
