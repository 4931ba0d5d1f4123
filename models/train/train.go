package train

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"rag2/tensor"
	"rag2/tensor/exec"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/dtypes/bfloat16"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"golang.org/x/sync/errgroup"
)

// ErrDiverged reports a loss or a gradient that is not a finite number.
var ErrDiverged = errors.New("training diverged")

// Options steer the optimiser. The zero value of a field is its default.
type Options struct {
	LR          float64 // peak; 0 = 3e-5
	Steps       int     // updates in all; the rate falls linearly to 0 at the end
	Warmup      int     // updates in which the rate rises linearly from 0
	WeightDecay float64
	Beta1       float64 // 0 = 0.9
	Beta2       float64 // 0 = 0.999
	Eps         float64 // 0 = 1e-8
	Clip        float64 // of the global norm; 0 = none
	Accumulate  int     // batches an update; 0 = 1
	// Storage is how the network sees the weights: "float32" (or ""), or "bfloat16",
	// rounded to 8 bits of mantissa on the way to the engine. The master weights, the
	// optimiser's state and the arithmetic stay float32: on the native engine as on XLA
	// bfloat16 halves what is copied to the device, and the weights that come out are
	// exact in bfloat16 files up to the last update.
	Storage string
	// Dropout is the share of activations that Dropout drops while training.
	Dropout float64
	Seed    uint64 // of dropout
}

// Validate fills defaults and lists what is wrong.
func (o *Options) Validate() error {
	for p, v := range map[*float64]float64{&o.LR: 3e-5, &o.Beta1: 0.9, &o.Beta2: 0.999, &o.Eps: 1e-8} {
		if *p == 0 {
			*p = v
		}
	}
	if o.Accumulate == 0 {
		o.Accumulate = 1
	}
	var errs []error
	for name, v := range map[string]float64{"learning rate": o.LR, "weight decay": o.WeightDecay, "clip": o.Clip, "eps": o.Eps} {
		if !(v >= 0 && v < 1e6) {
			errs = append(errs, fmt.Errorf("%s is %g", name, v))
		}
	}
	if !(o.Beta1 >= 0 && o.Beta1 < 1 && o.Beta2 >= 0 && o.Beta2 < 1) {
		errs = append(errs, fmt.Errorf("betas are %g and %g", o.Beta1, o.Beta2))
	}
	if o.Storage != "" && o.Storage != "float32" && o.Storage != "bfloat16" {
		errs = append(errs, fmt.Errorf("weights stored as %q; float32 or bfloat16", o.Storage))
	}
	if !(o.Dropout >= 0 && o.Dropout < 1) {
		errs = append(errs, fmt.Errorf("dropout is %g", o.Dropout))
	}
	if o.Steps < 1 || o.Warmup < 0 || o.Warmup >= o.Steps || o.Accumulate < 1 {
		errs = append(errs, fmt.Errorf("%d steps, %d of warm-up, %d batches a step", o.Steps, o.Warmup, o.Accumulate))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("training options: %w", err)
	}
	return nil
}

// rate is the learning rate of an update, from 0.
func (o *Options) rate(step int) float64 {
	if step < o.Warmup {
		return o.LR * float64(step) / float64(o.Warmup)
	}
	return o.LR * max(0, float64(o.Steps-step)/float64(o.Steps-o.Warmup))
}

// Param is a parameter with its optimiser state.
type Param struct {
	Name    string
	Dims    []int
	Value   []float32
	Frozen  bool // takes part in the network and keeps its value
	NoDecay bool // biases and norms

	m, v, grad []float32
	lora       *lowRank // added to Value where the network uses it
}

// Input is one int32 input of a batch.
type Input struct {
	Flat []int32
	Dims []int
}

// Loss writes the network and its mean loss, a scalar, on parameters by name and the
// inputs in their order.
type Loss func(w map[string]*graph.Node, inputs []*graph.Node, h Hooks) *graph.Node

// Hooks are what training puts into a network; see bert.Config and t5.Config. nil
// functions change nothing.
type Hooks struct {
	Drop   func(x *graph.Node) *graph.Node
	Linear func(x, w *graph.Node) *graph.Node
}

// Trainer updates parameters.
type Trainer struct {
	Params []*Param
	o      Options
	engine backends.Backend
	loss   Loss
	cache  *exec.Cache[string]
	step   int     // updates done
	batch  int     // batches done
	held   int     // batches accumulated
	norm   float64 // of the last update's gradient, before clipping

	kept map[*Param]backends.Buffer // frozen parameters on the engine
}

// New makes a trainer; params are updated in place.
func New(e *tensor.Engine, params []*Param, loss Loss, o Options) (*Trainer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	for _, p := range params {
		n := 1
		for _, d := range p.Dims {
			n *= d
		}
		if n != len(p.Value) {
			return nil, fmt.Errorf("parameter %s: %d values for shape %v", p.Name, len(p.Value), p.Dims)
		}
		if !p.Frozen {
			p.m, p.v, p.grad = make([]float32, n), make([]float32, n), make([]float32, n)
		}
	}
	return &Trainer{Params: params, o: o, engine: e.Backend(), loss: loss, cache: exec.NewCache[string](16), kept: map[*Param]backends.Buffer{}}, nil
}

// Close frees the compiled graphs and what is on the engine.
func (t *Trainer) Close() {
	t.cache.Close()
	for _, b := range t.kept {
		_ = t.engine.BufferFinalize(b)
	}
	clear(t.kept)
}

// Step is the number of updates done.
func (t *Trainer) Step() int { return t.step }

// free lists the parameters that are trained.
func (t *Trainer) free() []*Param {
	return slices.DeleteFunc(slices.Clone(t.Params), func(p *Param) bool { return p.Frozen })
}

// run compiles build for the shapes of the inputs, unless it was, and runs it on the
// parameters as they are. what tells graphs apart.
func (t *Trainer) run(what string, inputs []Input, build func(w map[string]*graph.Node, free, ins []*graph.Node, h Hooks) []*graph.Node, use func([]backends.Buffer) error) error {
	key := what
	for _, in := range inputs {
		key += fmt.Sprint(in.Dims)
	}
	stored := dtypes.Float32
	if t.o.Storage == "bfloat16" {
		stored = dtypes.BFloat16
	}
	return t.cache.Do(key, func() (*exec.Program, error) {
		return exec.Compile(t.engine, "train "+key, func(g *graph.Graph) []*graph.Node {
			w := map[string]*graph.Node{}
			var free []*graph.Node
			for _, p := range t.Params {
				n := graph.Parameter(g, p.Name, shapes.Make(stored, p.Dims...))
				if stored != dtypes.Float32 {
					n = graph.ConvertDType(n, dtypes.Float32)
				}
				w[p.Name] = n
				if !p.Frozen {
					free = append(free, n)
				}
			}
			var h Hooks
			if low := lowRanks(t.Params, w); len(low) > 0 {
				h.Linear = low.linear
			}
			var ins []*graph.Node
			for i, in := range inputs {
				ins = append(ins, graph.Parameter(g, fmt.Sprintf("input%d", i), shapes.Make(dtypes.Int32, in.Dims...)))
			}
			return build(w, free, ins, h)
		})
	}, func(p *exec.Program) error {
		var in []backends.Buffer
		defer func() {
			for _, b := range in {
				_ = t.engine.BufferFinalize(b)
			}
		}()
		up := func(flat any, s shapes.Shape) error {
			b, err := exec.Upload(t.engine, flat, s)
			if err == nil {
				in = append(in, b)
			}
			return err
		}
		var all []backends.Buffer
		for _, p := range t.Params {
			if b := t.kept[p]; b != nil {
				all = append(all, b)
				continue
			}
			var flat any = p.Value
			if stored != dtypes.Float32 {
				flat = toBF16(p.Value)
			}
			if err := up(flat, shapes.Make(stored, p.Dims...)); err != nil {
				return err
			}
			all = append(all, in[len(in)-1])
			if p.Frozen {
				t.kept[p] = in[len(in)-1]
				in = in[:len(in)-1]
			}
		}
		for _, x := range inputs {
			if err := up(x.Flat, shapes.Make(dtypes.Int32, x.Dims...)); err != nil {
				return err
			}
			all = append(all, in[len(in)-1])
		}
		res, err := p.Run(all, nil)
		if err != nil {
			return err
		}
		return use(res)
	})
}

// toBF16 rounds to the nearest, ties to even.
func toBF16(v []float32) []bfloat16.BFloat16 {
	out := make([]bfloat16.BFloat16, len(v))
	for i, x := range v {
		out[i] = bfloat16.FromBits(uint16(roundBF16(x) >> 16))
	}
	return out
}

// Gradients computes the loss of a batch and the gradients of the parameters that are
// not frozen, in their order.
func (t *Trainer) Gradients(inputs []Input) (loss float64, grads [][]float32, err error) {
	given := inputs
	if t.o.Dropout > 0 {
		// Every batch has masks of its own, which a resumed run draws again.
		given = append(slices.Clone(inputs), Input{[]int32{int32(t.o.Seed), int32(t.o.Seed >> 32), int32(t.batch)}, []int{3}})
	}
	err = t.run("loss", given, func(w map[string]*graph.Node, free, ins []*graph.Node, h Hooks) []*graph.Node {
		if t.o.Dropout > 0 {
			h.Drop = dropper(ins[len(ins)-1], t.o.Dropout)
		}
		l := t.loss(w, ins[:len(inputs)], h)
		return append([]*graph.Node{l}, graph.Gradient(l, free...)...)
	}, func(res []backends.Buffer) error {
		v, err := exec.Fetch[float32](t.engine, res[0], 1)
		if err != nil {
			return err
		}
		loss = float64(v[0])
		for i, p := range t.free() {
			g, err := exec.Fetch[float32](t.engine, res[i+1], len(p.Value))
			if err != nil {
				return err
			}
			grads = append(grads, g)
		}
		return nil
	})
	if err == nil && (math.IsNaN(loss) || math.IsInf(loss, 0)) {
		err = fmt.Errorf("%w: the loss is %v at step %d", ErrDiverged, loss, t.step)
	}
	return loss, grads, err
}

// Evaluate runs a network on the parameters as they are, without dropout; n is the size
// of its float32 result. what names the network: one name, one network.
func (t *Trainer) Evaluate(what string, inputs []Input, n int, build Loss) (out []float32, err error) {
	err = t.run("eval "+what, inputs, func(w map[string]*graph.Node, _, ins []*graph.Node, h Hooks) []*graph.Node {
		return []*graph.Node{build(w, ins, h)}
	}, func(res []backends.Buffer) (err error) {
		out, err = exec.Fetch[float32](t.engine, res[0], n)
		return err
	})
	return out, err
}

// Batch adds a batch's gradients and updates the parameters after every
// Options.Accumulate batches. It returns the batch's loss before the update.
func (t *Trainer) Batch(inputs []Input) (float64, error) {
	loss, grads, err := t.Gradients(inputs)
	if err != nil {
		return loss, err
	}
	free := t.free()
	for i, p := range free {
		for j, g := range grads[i] {
			p.grad[j] += g
		}
	}
	t.batch++
	if t.held++; t.held < t.o.Accumulate {
		return loss, nil
	}
	return loss, t.update(free)
}

// update is one step of AdamW, in torch's order of operations.
func (t *Trainer) update(free []*Param) error {
	scale := 1 / float64(t.held)
	sum := 0.0
	for _, p := range free {
		for _, g := range p.grad {
			sum += float64(g) * float64(g)
		}
	}
	t.norm = math.Sqrt(sum) * scale
	if math.IsNaN(t.norm) || math.IsInf(t.norm, 0) {
		return fmt.Errorf("%w: the gradient's norm is %v at step %d", ErrDiverged, t.norm, t.step)
	}
	if t.o.Clip > 0 && t.norm > t.o.Clip {
		scale *= t.o.Clip / (t.norm + 1e-6)
	}
	lr := t.o.rate(t.step)
	t.step++
	t.held = 0
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range free {
		for at := 0; at < len(p.Value); at += updateChunk {
			g.Go(func() error {
				p.adam(&t.o, at, min(at+updateChunk, len(p.Value)), scale, lr, t.step)
				return nil
			})
		}
	}
	return g.Wait()
}

// updateChunk is the number of elements that one goroutine updates at a time.
const updateChunk = 1 << 16

// adam updates elements from … to.
func (p *Param) adam(o *Options, from, to int, scale, lr float64, step int) {
	b1, b2 := o.Beta1, o.Beta2
	c1 := 1 - math.Pow(b1, float64(step))
	c2 := math.Sqrt(1 - math.Pow(b2, float64(step)))
	decay := float32(1)
	if !p.NoDecay {
		decay = float32(1 - lr*o.WeightDecay)
	}
	for i := from; i < to; i++ {
		g := float64(p.grad[i]) * scale
		p.grad[i] = 0
		m := b1*float64(p.m[i]) + (1-b1)*g
		v := b2*float64(p.v[i]) + (1-b2)*g*g
		p.m[i], p.v[i] = float32(m), float32(v)
		p.Value[i] = p.Value[i]*decay - float32(lr/c1*m/(math.Sqrt(v)/c2+o.Eps))
	}
}
