package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"rag2/tensor/exec"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
)

// Case is a computation with its inputs.
type Case struct {
	Name    string
	Inputs  []*tensors.Tensor
	Build   func(in []*graph.Node) []*graph.Node
	Tol     float64 // relative to the largest magnitude of an output; 0 = 2e-6
	NaN     bool    // XLA:CPU ignores NaN here, against its documentation
	Bits    bool    // random bits, which are XLA's and not simplego's
	Buffers bool    // inputs are uploaded, as models do with weights; GoMLX's tensors share memory
	Donate  []int   // inputs that are given away
	Crash   bool    // XLA:CPU ends the process here (plug-in 0.106)
	Half    bool    // needs 16-bit floats, where simplego fails beyond recovery
}

// Run builds, compiles and executes the case. Faults, also those that GoMLX reports
// by panics, are errors.
func (c *Case) Run(b backends.Backend) (out []*tensors.Tensor, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("%s: %v", c.Name, r)
		}
	}()
	if c.Buffers || len(c.Donate) > 0 {
		return c.runBuffers(b)
	}
	g := graph.NewGraph(b, c.Name)
	var in []*graph.Node
	for i, t := range c.Inputs {
		in = append(in, graph.Parameter(g, fmt.Sprintf("p%d", i), t.Shape()))
	}
	g.Compile(c.Build(in)...)
	defer g.Finalize()
	args := make([]any, len(c.Inputs))
	for i, t := range c.Inputs { // a tensor belongs to one backend
		if args[i], err = t.LocalClone(); err != nil {
			return nil, err
		}
	}
	return g.Run(args...), nil
}

// runBuffers is Run with buffers that are uploaded, of which some are given away.
func (c *Case) runBuffers(b backends.Backend) (out []*tensors.Tensor, err error) {
	p, err := exec.Compile(b, c.Name, func(g *graph.Graph) []*graph.Node {
		var in []*graph.Node
		for i, t := range c.Inputs {
			in = append(in, graph.Parameter(g, fmt.Sprintf("p%d", i), t.Shape()))
		}
		return c.Build(in)
	})
	if err != nil {
		return nil, err
	}
	defer p.Finalize()
	bufs, donate := make([]backends.Buffer, len(c.Inputs)), make([]bool, len(c.Inputs))
	for i, t := range c.Inputs {
		t.ConstFlatData(func(flat any) { bufs[i], err = exec.Upload(b, flat, t.Shape()) })
		if err != nil {
			return nil, err
		}
		donate[i] = slices.Contains(c.Donate, i)
	}
	res, err := p.Run(bufs, donate)
	if err != nil {
		return nil, err
	}
	for _, r := range res {
		s, err := b.BufferShape(r)
		if err != nil {
			return nil, err
		}
		t := tensors.FromShape(s)
		t.MutableFlatData(func(flat any) { err = b.BufferToFlatData(r, flat) })
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// Compare runs all cases on got and want. Cases that want cannot build ("not
// implemented") are left out and counted.
func Compare(t *testing.T, got, want func() backends.Backend, cases []Case) (skipped int) {
	t.Helper()
	for _, c := range cases {
		ref, err := c.Run(want())
		if err != nil {
			if s := strings.ToLower(err.Error()); strings.Contains(s, "not implemented") || strings.Contains(s, "unsupported") || strings.Contains(s, "not supported") || strings.Contains(s, "registered") || strings.Contains(s, "requires the same dtype") {
				skipped++
				continue
			}
			t.Errorf("oracle: %v", err)
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			out, err := c.Run(got())
			if err != nil {
				t.Fatal(err)
			}
			for i := range ref {
				if err := Equal(out[i], ref[i], c.Tol); err != nil {
					t.Errorf("output %d: %v", i, err)
				}
			}
		})
	}
	return skipped
}

// Equal compares two tensors: NaN equals NaN, infinities must agree, other numbers
// may differ by tol times the largest finite magnitude.
func Equal(got, want *tensors.Tensor, tol float64) error {
	if tol == 0 {
		tol = 2e-6
	}
	if !got.Shape().Equal(want.Shape()) {
		return fmt.Errorf("shape %s, want %s", got.Shape(), want.Shape())
	}
	g, w := numbers(got), numbers(want)
	scale := 0.0
	for _, x := range w {
		if !math.IsInf(x, 0) && math.Abs(x) > scale {
			scale = math.Abs(x)
		}
	}
	if !want.DType().IsFloat() {
		tol = 0
	}
	for i := range w {
		if g[i] == w[i] || g[i] != g[i] && w[i] != w[i] {
			continue
		}
		if d := math.Abs(g[i] - w[i]); !(d <= tol*scale) {
			return fmt.Errorf("element %d of %s is %g, want %g (scale %g)", i, want.Shape(), g[i], w[i], scale)
		}
	}
	return nil
}

// numbers reads a tensor of any supported dtype.
func numbers(t *tensors.Tensor) (out []float64) {
	t.ConstFlatData(func(flat any) {
		switch v := flat.(type) {
		case []float32:
			for _, x := range v {
				out = append(out, float64(x))
			}
		case []float64:
			out = append(out, v...)
		case []int32:
			for _, x := range v {
				out = append(out, float64(x))
			}
		case []int64:
			for _, x := range v {
				out = append(out, float64(x))
			}
		case []uint8:
			for _, x := range v {
				out = append(out, float64(x))
			}
		case []bool:
			for _, x := range v {
				f := 0.0
				if x {
					f = 1
				}
				out = append(out, f)
			}
		default:
			panic(fmt.Sprintf("conformance: %T", flat))
		}
	})
	return
}

// source makes inputs.
type source struct{ r *rand.Rand }

func newSource(seed uint64) *source { return &source{rand.New(rand.NewPCG(seed, 7))} }

// f32 are normal numbers.
func (s *source) f32(dims ...int) *tensors.Tensor {
	n := shapes.Make(dtypes.Float32, dims...).Size()
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(s.r.NormFloat64())
	}
	return tensors.FromFlatDataAndDimensions(v, dims...)
}

// positive are in (0.1, 2.1).
func (s *source) positive(dims ...int) *tensors.Tensor {
	n := shapes.Make(dtypes.Float32, dims...).Size()
	v := make([]float32, n)
	for i := range v {
		v[i] = 0.1 + 2*s.r.Float32()
	}
	return tensors.FromFlatDataAndDimensions(v, dims...)
}

// odd are special values among ordinary ones.
func (s *source) odd(dims ...int) *tensors.Tensor {
	n := shapes.Make(dtypes.Float32, dims...).Size()
	special := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), 1e30}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(s.r.NormFloat64())
		if s.r.IntN(3) == 0 {
			v[i] = special[s.r.IntN(len(special))]
		}
	}
	return tensors.FromFlatDataAndDimensions(v, dims...)
}

func (s *source) i32(limit int, dims ...int) *tensors.Tensor {
	n := shapes.Make(dtypes.Int32, dims...).Size()
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(s.r.IntN(limit))
	}
	return tensors.FromFlatDataAndDimensions(v, dims...)
}

func (s *source) signed(limit int, dims ...int) *tensors.Tensor {
	n := shapes.Make(dtypes.Int32, dims...).Size()
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(s.r.IntN(2*limit+1) - limit)
		if v[i] == 0 {
			v[i] = 1
		}
	}
	return tensors.FromFlatDataAndDimensions(v, dims...)
}

// Ops names the ops that the case is made of.
func (c *Case) Ops(b backends.Backend) (ops []string, err error) {
	err = exec.Catch(c.Name, func() {
		g := graph.NewGraph(b, c.Name)
		defer g.Finalize()
		var in []*graph.Node
		for i, t := range c.Inputs {
			in = append(in, graph.Parameter(g, fmt.Sprintf("p%d", i), t.Shape()))
		}
		c.Build(in)
		for _, n := range g.Nodes() {
			ops = append(ops, n.Type().String())
		}
	})
	return ops, err
}
