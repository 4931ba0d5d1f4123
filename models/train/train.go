package train

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"rag2/models/exec"
	"rag2/tensor"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
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
}

// Input is one int32 input of a batch.
type Input struct {
	Flat []int32
	Dims []int
}

// Loss writes the network and its mean loss, a scalar, on parameters by name and the
// inputs in their order.
type Loss func(w map[string]*graph.Node, inputs []*graph.Node) *graph.Node

// Trainer updates parameters.
type Trainer struct {
	Params []*Param
	o      Options
	engine backends.Backend
	loss   Loss
	cache  *exec.Cache[string]
	step   int // updates done
	held   int // batches accumulated
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
	return &Trainer{Params: params, o: o, engine: e.Backend(), loss: loss, cache: exec.NewCache[string](16)}, nil
}

// Close frees the compiled graphs.
func (t *Trainer) Close() { t.cache.Close() }

// Step is the number of updates done.
func (t *Trainer) Step() int { return t.step }

// Gradients computes the loss of a batch and the gradients of the parameters that are
// not frozen, in their order.
func (t *Trainer) Gradients(inputs []Input) (loss float64, grads [][]float32, err error) {
	key := ""
	for _, in := range inputs {
		key += fmt.Sprint(in.Dims)
	}
	err = t.cache.Do(key, func() (*exec.Program, error) {
		return exec.Compile(t.engine, "train "+key, func(g *graph.Graph) []*graph.Node {
			w := map[string]*graph.Node{}
			var free []*graph.Node
			for _, p := range t.Params {
				n := graph.Parameter(g, p.Name, shapes.Make(dtypes.Float32, p.Dims...))
				w[p.Name] = n
				if !p.Frozen {
					free = append(free, n)
				}
			}
			var ins []*graph.Node
			for i, in := range inputs {
				ins = append(ins, graph.Parameter(g, fmt.Sprintf("input%d", i), shapes.Make(dtypes.Int32, in.Dims...)))
			}
			l := t.loss(w, ins)
			return append([]*graph.Node{l}, graph.Gradient(l, free...)...)
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
		for _, p := range t.Params {
			if err := up(p.Value, shapes.Make(dtypes.Float32, p.Dims...)); err != nil {
				return err
			}
		}
		for _, x := range inputs {
			if err := up(x.Flat, shapes.Make(dtypes.Int32, x.Dims...)); err != nil {
				return err
			}
		}
		res, err := p.Run(in, nil)
		if err != nil {
			return err
		}
		v, err := exec.Fetch[float32](t.engine, res[0], 1)
		if err != nil {
			return err
		}
		loss = float64(v[0])
		k := 1
		for _, p := range t.Params {
			if p.Frozen {
				continue
			}
			g, err := exec.Fetch[float32](t.engine, res[k], len(p.Value))
			if err != nil {
				return err
			}
			grads = append(grads, g)
			k++
		}
		return nil
	})
	if err == nil && (math.IsNaN(loss) || math.IsInf(loss, 0)) {
		err = fmt.Errorf("%w: the loss is %v at step %d", ErrDiverged, loss, t.step)
	}
	return loss, grads, err
}

// Batch adds a batch's gradients and updates the parameters after every
// Options.Accumulate batches. It returns the batch's loss before the update.
func (t *Trainer) Batch(inputs []Input) (float64, error) {
	loss, grads, err := t.Gradients(inputs)
	if err != nil {
		return loss, err
	}
	free := slices.DeleteFunc(slices.Clone(t.Params), func(p *Param) bool { return p.Frozen })
	for i, p := range free {
		for j, g := range grads[i] {
			p.grad[j] += g
		}
	}
	if t.held++; t.held < t.o.Accumulate {
		return loss, nil
	}
	return loss, t.update(free)
}

func (t *Trainer) update(free []*Param) error {
	scale := 1 / float64(t.held)
	sum := 0.0
	for _, p := range free {
		for _, g := range p.grad {
			sum += float64(g) * float64(g)
		}
	}
	norm := math.Sqrt(sum) * scale
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return fmt.Errorf("%w: the gradient's norm is %v at step %d", ErrDiverged, norm, t.step)
	}
	if t.o.Clip > 0 && norm > t.o.Clip {
		scale *= t.o.Clip / (norm + 1e-6)
	}
	lr := t.o.rate(t.step)
	t.step++
	t.held = 0
	b1, b2 := t.o.Beta1, t.o.Beta2
	c1 := 1 - math.Pow(b1, float64(t.step))
	c2 := math.Sqrt(1 - math.Pow(b2, float64(t.step)))
	for _, p := range free {
		decay := float32(1)
		if !p.NoDecay {
			decay = float32(1 - lr*t.o.WeightDecay)
		}
		for i := range p.Value {
			g := float64(p.grad[i]) * scale
			p.grad[i] = 0
			m := b1*float64(p.m[i]) + (1-b1)*g
			v := b2*float64(p.v[i]) + (1-b2)*g*g
			p.m[i], p.v[i] = float32(m), float32(v)
			p.Value[i] = p.Value[i]*decay - float32(lr/c1*m/(math.Sqrt(v)/c2+t.o.Eps))
		}
	}
	return nil
}
