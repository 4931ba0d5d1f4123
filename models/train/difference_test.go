package train

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rag2/tensor/exec"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// opCase is one op, or a few, on floats of a given dtype.
type opCase struct {
	name string
	dims [][]int // of the inputs
	f    func(x []*graph.Node) *graph.Node
	keep func(v float64) float64 // moves inputs to where the op is smooth
}

func opCases() []opCase {
	one := [][]int{{3, 5}}
	two := [][]int{{3, 5}, {3, 5}}
	unary := func(name string, f func(x *graph.Node) *graph.Node, keep func(float64) float64) opCase {
		return opCase{name, one, func(x []*graph.Node) *graph.Node { return f(x[0]) }, keep}
	}
	positive := func(v float64) float64 { return 0.3 + math.Abs(v) }
	away := func(v float64) float64 { return v + math.Copysign(0.1, v) } // from the kink at 0
	cmp := func(x []*graph.Node) *graph.Node {
		return graph.LessThan(graph.Iota(x[0].Graph(), shapes.Make(dtypes.Int32, 3, 5), 1), graph.Scalar(x[0].Graph(), dtypes.Int32, 2))
	}
	index := func(g *graph.Graph) *graph.Node { return graph.Const(g, [][]int32{{2}, {0}, {2}, {1}}) }
	cs := []opCase{
		unary("exp", graph.Exp, nil), unary("log", graph.Log, positive), unary("sqrt", graph.Sqrt, positive), unary("tanh", graph.Tanh, nil), unary("erf", graph.Erf, nil),
		unary("neg", graph.Neg, nil), unary("abs", graph.Abs, away), unary("reshape", func(x *graph.Node) *graph.Node { return graph.Reshape(x, 5, 3) }, nil),
		unary("transpose", func(x *graph.Node) *graph.Node { return graph.Transpose(x, 0, 1) }, nil),
		unary("slice", func(x *graph.Node) *graph.Node { return graph.Slice(x, graph.AxisRange(1, 3), graph.AxisRange(0, 4)) }, nil),
		unary("broadcast", func(x *graph.Node) *graph.Node { return graph.BroadcastToDims(graph.Reshape(x, 3, 1, 5), 3, 4, 5) }, nil),
		unary("reduce sum", func(x *graph.Node) *graph.Node { return graph.ReduceSum(x, 0) }, nil),
		unary("reduce mean", func(x *graph.Node) *graph.Node { return graph.ReduceAndKeep(x, graph.ReduceMean, -1) }, nil),
		unary("reduce max", func(x *graph.Node) *graph.Node { return graph.ReduceMax(x, -1) }, nil),
		unary("softmax", func(x *graph.Node) *graph.Node { return graph.Softmax(x, -1) }, nil),
		unary("log sum exp", logSumExp, nil),
		unary("scalars", func(x *graph.Node) *graph.Node { return graph.AddScalar(graph.MulScalar(x, 3), 2) }, nil),
		unary("where", func(x *graph.Node) *graph.Node {
			return graph.Where(graph.BroadcastToDims(cmp([]*graph.Node{x}), 3, 5), x, graph.MulScalar(x, -2))
		}, nil),
		unary("gather", func(x *graph.Node) *graph.Node { return graph.Gather(x, index(x.Graph())) }, nil),
		unary("convert", func(x *graph.Node) *graph.Node { return graph.ConvertDType(x, x.DType()) }, nil),
		{"add", [][]int{{3, 5}, {1, 5}}, func(x []*graph.Node) *graph.Node { return graph.Add(x[0], x[1]) }, nil},
		{"sub", [][]int{{3, 1}, {3, 5}}, func(x []*graph.Node) *graph.Node { return graph.Sub(x[0], x[1]) }, nil},
		{"mul", two, func(x []*graph.Node) *graph.Node { return graph.Mul(x[0], x[1]) }, nil},
		{"div", [][]int{{3, 5}, {3, 1}}, func(x []*graph.Node) *graph.Node { return graph.Div(x[0], x[1]) }, positive},
		{"max", two, func(x []*graph.Node) *graph.Node { return graph.Max(x[0], x[1]) }, nil},
		{"relu", one, func(x []*graph.Node) *graph.Node { return graph.Max(x[0], graph.ZerosLike(x[0])) }, away},
		{"concatenate", two, func(x []*graph.Node) *graph.Node { return graph.Concatenate(x, 1) }, nil},
	}
	for _, eq := range []struct {
		eq   string
		a, b []int
	}{{"ab,cb->ac", []int{3, 5}, []int{4, 5}}, {"ba,bc->ac", []int{3, 5}, []int{3, 4}}, {"bthd,bshd->bhts", []int{2, 3, 2, 4}, []int{2, 5, 2, 4}}, {"bhts,bshd->bthd", []int{2, 2, 3, 5}, []int{2, 5, 2, 4}},
		{"abc,cdb->ad", []int{2, 3, 4}, []int{4, 5, 3}}, {"ab,ab->", []int{3, 4}, []int{3, 4}}, {"a,b->ab", []int{3}, []int{4}}, {"ab,ab->ab", []int{3, 4}, []int{3, 4}}} {
		cs = append(cs, opCase{"dot " + eq.eq, [][]int{eq.a, eq.b}, func(x []*graph.Node) *graph.Node { return graph.Einsum(eq.eq, x[0], x[1]) }, nil})
	}
	return cs
}

// opRun compiles a computation on inputs of a dtype; the result runs it.
func opRun(t *testing.T, b backends.Backend, d dtypes.DType, dims [][]int, build func(x []*graph.Node) []*graph.Node) func(values [][]float64) [][]float64 {
	t.Helper()
	p, err := exec.Compile(b, "difference", func(g *graph.Graph) []*graph.Node {
		var in []*graph.Node
		for i := range dims {
			in = append(in, graph.Parameter(g, string(rune('a'+i)), shapes.Make(d, dims[i]...)))
		}
		return build(in)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Finalize)
	return func(values [][]float64) (out [][]float64) {
		var in []backends.Buffer
		for i, v := range values {
			var flat any = v
			if d == dtypes.Float32 {
				flat = convert[float32](v)
			}
			buf, err := exec.Upload(b, flat, shapes.Make(d, dims[i]...))
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, buf)
		}
		res, err := p.Run(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res {
			s, err := b.BufferShape(r)
			if err != nil {
				t.Fatal(err)
			}
			var v []float64
			if d == dtypes.Float64 {
				v, err = exec.Fetch[float64](b, r, s.Size())
			} else {
				var f []float32
				f, err = exec.Fetch[float32](b, r, s.Size())
				v = convert[float64](f)
			}
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, v)
		}
		for _, x := range in {
			_ = b.BufferFinalize(x)
		}
		return out
	}
}

func convert[T, F float32 | float64](v []F) []T {
	out := make([]T, len(v))
	for i, x := range v {
		out[i] = T(x)
	}
	return out
}

// collect gathers the types of the ops below a node that give floats.
func collect(n *graph.Node, ops map[graph.NodeType]bool, seen map[*graph.Node]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	if n.DType().IsFloat() {
		ops[n.Type()] = true
	}
	for _, i := range n.Inputs() {
		collect(i, ops, seen)
	}
}

// Gradients in float32 against central differences in float64, for every op that the
// networks and losses of training use.
func TestFiniteDifferences(t *testing.T) {
	ops := map[graph.NodeType]bool{}
	exact := engines(t)["native"].Backend()
	for name, e := range engines(t) {
		for _, c := range opCases() {
			rng := rand.New(rand.NewPCG(8, 8))
			var values [][]float64
			for _, d := range c.dims {
				v := make([]float64, shapes.Make(dtypes.Float64, d...).Size())
				for i := range v {
					if v[i] = rng.NormFloat64(); c.keep != nil {
						v[i] = c.keep(v[i])
					}
					v[i] = float64(float32(v[i]))
				}
				values = append(values, v)
			}
			// A weighted sum, so that no element's gradient cancels.
			loss := func(x []*graph.Node) *graph.Node {
				y := c.f(x)
				w := graph.ConvertDType(graph.Sin(graph.Iota(y.Graph(), shapes.Make(dtypes.Float64, y.Shape().Size()), 0)), y.DType())
				return graph.ReduceAllSum(graph.Mul(graph.Reshape(y, y.Shape().Size()), graph.AddScalar(w, 2)))
			}
			grads := opRun(t, e.Backend(), dtypes.Float32, c.dims, func(x []*graph.Node) []*graph.Node {
				l := loss(x)
				collect(l, ops, map[*graph.Node]bool{})
				return append([]*graph.Node{l}, graph.Gradient(l, x...)...)
			})(values)[1:]
			at := opRun(t, exact, dtypes.Float64, c.dims, func(x []*graph.Node) []*graph.Node { return []*graph.Node{loss(x)} })
			for i := range values {
				diff, norm := 0.0, 0.0
				for k, old := range values[i] {
					const h = 1e-5
					values[i][k] = old + h
					up := at(values)[0][0]
					values[i][k] = old - h
					want := (up - at(values)[0][0]) / (2 * h)
					values[i][k] = old
					diff += (want - grads[i][k]) * (want - grads[i][k])
					norm += want * want
				}
				if rel := math.Sqrt(diff / norm); !(rel <= 1e-4) {
					t.Errorf("%s: %s: gradient of input %d differs by %.2g", name, c.name, i, rel)
				}
			}
		}
	}
	// What the networks use and no case has.
	used := map[graph.NodeType]bool{}
	e := engines(t)["native"]
	_, open := load(t)
	x := open()
	_, y := openT5(t, "t5")
	relu := *y
	relu.Config.Act = "relu"
	pair := &PairFilter{BERT: x}
	for _, n := range []struct {
		params []*Param
		loss   Loss
		inputs int
	}{{x.Params, x.GroupLoss(4), 3}, {x.Params, x.PairLoss(), 4}, {x.Params, pair.Loss, 4}, {y.Params, y.Loss, 3}, {y.Params, relu.Loss, 3}} {
		p, err := exec.Compile(e.Backend(), "used", func(g *graph.Graph) []*graph.Node {
			w := map[string]*graph.Node{}
			for _, p := range n.params {
				w[p.Name] = graph.Parameter(g, p.Name, shapes.Make(dtypes.Float32, p.Dims...))
			}
			var ins []*graph.Node
			for i := range n.inputs {
				dims := []int{4, 8}
				if i > 1 || i == 1 && n.inputs == 3 && n.params[0] == y.Params[0] {
					dims = dims[:1]
				}
				ins = append(ins, graph.Parameter(g, "in"+string(rune('0'+i)), shapes.Make(dtypes.Int32, dims...)))
			}
			l := n.loss(w, ins, Hooks{})
			collect(l, used, map[*graph.Node]bool{})
			return []*graph.Node{l}
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Finalize()
	}
	for _, op := range slices.Sorted(maps.Keys(used)) {
		if !ops[op] {
			t.Errorf("op %s is used in training and has no case", op)
		}
	}
}
