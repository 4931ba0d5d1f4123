package native

import (
	"fmt"
	"sync"
	"unsafe"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// Executable is a compiled computation. It may run several times at once.
type Executable struct {
	backend         *Backend
	name            string
	names           []string
	inputs, outputs []shapes.Shape

	steps   []step
	coming  []*attentionStep // at an attention, the one after it
	values  []*value
	outVals []*value
	arena   int        // bytes
	flat    []bool     // parameters that some step reads as flat memory
	rows    []bool     // parameters of which some step gathers rows
	weights []*dotStep // the products with parameters that may be packed
	inPlace []int      // see inPlace
	scratch int        // floats per worker
	gemm    int        // of which for products
	regs    int
	args    int

	mu   sync.Mutex
	idle []*execution
	dead bool
}

// execution is the memory of one running call.
type execution struct {
	exe      *Executable
	pool     *pool
	base     []unsafe.Pointer // of each value
	params   []*Buffer
	weights  []weight  // of exe.weights, as they are to be read
	passing  []float32 // elements of a weight on their way
	arena    []uint64
	workers  []workerState
	args     [][]byte
	job      jobRef
	coming   *attentionStep // the next, see ahead
	turns    turns
	panels   []float32   // of the weight of the step that runs
	blocks   *blocks     // or its blocks
	rows16   simd.Rows16 // A in 16 bits
	of16     rowsOfA
	sums     []float32         // of A's rows by blocks of columns
	int8     *simd.Int8Weights // or its integers
	rows     simd.Int8Rows     // A in integers
	rowsOf   rowsOfA
	shared   []float32 // A in the order of products
	sharedA  rowsOfA
	sharedAs simd.BlockFormat       // for weights of this format
	shares   bool                   // the step that runs reads it
	sides    map[*dotStep][]float32 // panels of weights that are not kept
}

// workerState is what one worker writes to.
type workerState struct {
	scratch []float32
	gemm    []float32 // of the products
	regs    [][]float32
	last    []int // row offsets of sticky inputs
	ahead   ahead
	_       [64]byte
}

// parallel is a step with tasks.
type parallel interface {
	task(x *execution, i, worker int)
}

// jobRef is the step whose tasks run.
type jobRef struct{ step parallel }

func (x *execution) task(i, worker int) { x.job.step.task(x, i, worker) }

// bytes is the memory of a value.
func (x *execution) bytes(v *value) []byte {
	return unsafe.Slice((*byte)(x.base[v.id]), v.bytes())
}

func (x *execution) floats(v *value) []float32 {
	return unsafe.Slice((*float32)(x.base[v.id]), v.size)
}

// Finalize drops the plan and its memory. Running calls end undisturbed.
func (e *Executable) Finalize() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dead, e.idle = true, nil
}

// Inputs are the parameters' names and shapes.
func (e *Executable) Inputs() ([]string, []shapes.Shape) { return e.names, e.inputs }

// Outputs are the results' shapes.
func (e *Executable) Outputs() []shapes.Shape { return e.outputs }

func (e *Executable) take() (*execution, error) {
	e.mu.Lock()
	if e.dead || e.backend.IsFinalized() {
		e.mu.Unlock()
		return nil, errFinalized
	}
	var x *execution
	if n := len(e.idle); n > 0 {
		x = e.idle[n-1]
		e.idle = e.idle[:n-1]
	}
	e.mu.Unlock()
	if x == nil {
		x = e.newExecution()
	}
	e.attach(x)
	return x, nil
}

// give ends an execution. Its large memory goes back to the backend, so that idle
// executables hold little.
func (e *Executable) give(x *execution) {
	clear(x.params)
	clear(x.weights)
	for _, v := range e.values {
		if v.kind != constant {
			x.base[v.id] = nil // or the memory would live on
		}
	}
	for i := range x.workers {
		w := &x.workers[i]
		w.scratch, w.gemm, w.ahead = nil, nil, ahead{}
		clear(w.regs)
	}
	e.backend.giveArena(x.arena)
	x.arena = nil
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.dead && len(e.idle) < e.backend.pool.threads() {
		e.idle = append(e.idle, x)
	}
}

func (e *Executable) newExecution() *execution {
	x := &execution{exe: e, pool: e.backend.pool, base: make([]unsafe.Pointer, len(e.values)), params: make([]*Buffer, len(e.inputs)), weights: make([]weight, len(e.weights)),
		workers: make([]workerState, e.backend.pool.threads()), args: make([][]byte, 0, e.args)}
	x.turns.taken = make([]turn, len(x.workers))
	for i := range x.workers {
		x.workers[i] = workerState{regs: make([][]float32, e.regs), last: make([]int, e.regs)}
	}
	for _, v := range e.values {
		if v.kind == constant {
			x.base[v.id] = unsafe.Pointer(unsafe.SliceData(v.data))
		}
	}
	return x
}

// attach gives an execution its arena: the temporaries, then every worker's scratch.
func (e *Executable) attach(x *execution) {
	round := func(n int) int { return (n + arenaAlign - 1) / arenaAlign * arenaAlign }
	scratch, gemm := round(4*e.scratch+64), round(4*e.gemm)
	x.arena = e.backend.takeArena((round(e.arena) + len(x.workers)*(scratch+gemm) + arenaAlign) / 8) // no pointer to the end is made
	start := unsafe.Pointer(unsafe.SliceData(x.arena))
	for _, v := range e.values {
		if v.kind == temporary {
			x.base[v.id] = unsafe.Add(start, v.off)
		}
	}
	at := round(e.arena)
	for i := range x.workers {
		x.workers[i].scratch = unsafe.Slice((*float32)(unsafe.Add(start, at)), scratch/4)
		x.workers[i].gemm = unsafe.Slice((*float32)(unsafe.Add(start, at+scratch)), gemm/4)
		at += scratch + gemm
	}
}

// Execute runs the computation. Buffers marked in donate are finalized.
func (e *Executable) Execute(inputs []backends.Buffer, donate []bool, _ backends.DeviceNum) (out []backends.Buffer, err error) {
	if len(inputs) != len(e.inputs) || (donate != nil && len(donate) != len(inputs)) {
		return nil, fmt.Errorf("native: %q: %d inputs, %d donation marks; it has %d parameters", e.name, len(inputs), len(donate), len(e.inputs))
	}
	x, err := e.take()
	if err != nil {
		return nil, err
	}
	defer e.give(x)
	for i, in := range inputs {
		b, err := e.backend.buffer(in)
		if err != nil {
			return nil, fmt.Errorf("native: %q: input %q: %w", e.name, e.names[i], err)
		}
		if !b.shape.Equal(e.inputs[i]) {
			return nil, fmt.Errorf("native: %q: input %q is %s, %s is needed", e.name, e.names[i], b.shape, e.inputs[i])
		}
		x.params[i] = b
	}
	if err := x.prepare(); err != nil {
		return nil, fmt.Errorf("native: %q: %w", e.name, err)
	}
	out = make([]backends.Buffer, len(e.outputs))
	for i := range e.outputs {
		b := e.output(i, x, donate)
		out[i] = b
		x.base[e.outVals[i].id] = b.base()
	}
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("native: %q: %v", e.name, r)
		}
	}()
	x.rowsOf, x.of16, x.sharedA = rowsOfA{}, rowsOfA{}, rowsOfA{}
	x.look(nil)
	for i, s := range e.steps {
		s.run(x)
		if _, ok := s.(*attentionStep); ok {
			x.look(e.coming[i])
		}
	}
	for i, d := range donate {
		if d {
			if err := e.backend.BufferFinalize(inputs[i]); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
