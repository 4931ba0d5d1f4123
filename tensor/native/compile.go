package native

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// step is one unit's work at run time.
type step interface {
	run(x *execution)
	// scratch is the number of floats that every worker needs.
	scratch() int
}

// unit is what the scheduler orders: a step with the values it reads and writes.
type unit struct {
	id     int // of its last node
	mark   int // of the last search that met it
	g      *group
	step   step
	inputs []*value // except for groups, whose members tell
	writes []*value
}

func (u *unit) reads() []*value {
	if u.g != nil {
		return u.g.external()
	}
	return u.inputs
}

// compiler turns a graph into steps.
type compiler struct {
	b      *Builder
	views  map[*node]view
	uses   map[*node]int
	copies map[*node]*value
	units  []*unit
	values []*value
	dots   map[*value]*dotStep
	masks  map[spanKey]*value // see spans

	mark  int // see unit.mark
	stack []*unit
}

// Compile ends the computation. Sharding is not supported.
func (b *Builder) Compile(outputs []backends.Op, shardings []*backends.ShardingSpec) (exe backends.Executable, err error) {
	for _, s := range shardings {
		if s != nil {
			return nil, errors.New("native: sharding is not supported")
		}
	}
	outs, err := b.inputs(backends.OpTypeInvalid, outputs...)
	if err != nil {
		return nil, err
	}
	if len(outs) == 0 {
		return nil, fmt.Errorf("native: %q has no outputs", b.name)
	}
	b.compiled = true
	c := &compiler{b: b, views: map[*node]view{}, uses: map[*node]int{}, copies: map[*node]*value{}, dots: map[*value]*dotStep{}}
	b.matchAttention()
	b.matchRotate()
	if err := c.lower(outs); err != nil {
		return nil, fmt.Errorf("native: compile %q: %w", b.name, err)
	}
	e := &Executable{backend: b.backend, name: b.name, names: b.names}
	for _, p := range b.params {
		e.inputs = append(e.inputs, p.shape)
	}
	for _, o := range outs {
		e.outputs = append(e.outputs, o.shape)
	}
	if err := c.finish(e); err != nil {
		return nil, fmt.Errorf("native: compile %q: %w", b.name, err)
	}
	return e, nil
}

func (c *compiler) newValue(s shapes.Shape, u *unit) *value {
	v := &value{id: len(c.values), dtype: s.DType, size: s.Size(), unit: u}
	c.values = append(c.values, v)
	if u != nil {
		u.writes = append(u.writes, v)
	}
	return v
}

func (c *compiler) newUnit(n *node) *unit {
	u := &unit{id: n.id}
	c.units = append(c.units, u)
	return u
}

// lower walks the live nodes in order.
func (c *compiler) lower(outs []*node) error {
	live := map[*node]bool{}
	stack := slices.Clone(outs)
	for _, o := range outs {
		c.uses[o]++
	}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if live[n] {
			continue
		}
		live[n] = true
		for _, i := range n.in {
			c.uses[i]++
			stack = append(stack, i)
		}
	}
	for i, p := range c.b.params {
		v := c.newValue(p.shape, nil)
		v.kind, v.index = parameter, i
		c.views[p] = wholeView(v, p.shape.Dimensions)
	}
	for _, n := range c.b.nodes {
		if !live[n] || n.op == backends.OpTypeParameter {
			continue
		}
		if err := c.node(n); err != nil {
			return err
		}
	}
	seen := map[*value]bool{}
	for i, o := range outs {
		w := c.views[o]
		v := w.v
		if !w.identity() || v.kind != temporary || seen[v] {
			v = c.copyOf(o.id, w, o.shape.DType)
		}
		seen[v] = true
		v.kind, v.index = output, i
	}
	return nil
}

// node lowers one op.
func (c *compiler) node(n *node) error {
	dims := n.shape.Dimensions
	var in view
	if len(n.in) > 0 {
		in = c.views[n.in[0]]
	}
	switch n.op {
	case backends.OpTypeConstant:
		c.views[n] = wholeView(c.constant(n.shape, n.attr.([]byte)), dims)
	case backends.OpTypeIota:
		return c.iota(n)
	case backends.OpTypeIdentity:
		c.views[n] = in
	case backends.OpTypeReshape:
		if w, ok := in.reshape(dims); ok {
			c.views[n] = w
		} else {
			c.views[n] = wholeView(c.contiguous(n.in[0]), dims)
		}
	case backends.OpTypeTranspose:
		if w, ok := c.foldTranspose(n); ok {
			c.views[n] = w
		} else {
			c.views[n] = in.transpose(n.attr.([]int))
		}
	case backends.OpTypeBroadcastInDim:
		c.views[n] = in.broadcast(dims, n.attr.([]int))
	case backends.OpTypeSlice:
		a := n.attr.(sliceAttr)
		c.views[n] = in.slice(a.starts, a.strides, dims)
	case backends.OpTypeReverse:
		w := view{in.v, in.off, in.dims, slices.Clone(in.strides)}
		for _, a := range n.attr.([]int) {
			if in.dims[a] > 0 {
				w.off += (in.dims[a] - 1) * in.strides[a]
			}
			w.strides[a] = -in.strides[a]
		}
		// Negative strides are for copying only.
		c.views[n] = wholeView(c.copyOf(n.id, w, n.shape.DType), dims)
	case backends.OpTypeDotGeneral:
		return c.dot(n)
	case opAttention:
		c.attention(n)
	case opRotate:
		c.rotate(n)
	case backends.OpTypeConcatenate:
		c.concatenate(n)
	case backends.OpTypeReduceSum, backends.OpTypeReduceMax, backends.OpTypeReduceMin, backends.OpTypeReduceProduct,
		backends.OpTypeReduceLogicalAnd, backends.OpTypeReduceLogicalOr:
		return c.reduce(n)
	default:
		if isElementwise(n.op) {
			if c.fuse(n) {
				return nil
			}
			return c.elementwise(n)
		}
		return c.indexing(n)
	}
	return nil
}

func (c *compiler) constant(s shapes.Shape, data []byte) *value {
	v := c.newValue(s, nil)
	v.kind, v.data = constant, data
	return v
}

// iota is a constant vector seen along its axis.
func (c *compiler) iota(n *node) error {
	axis := n.attr.(int)
	d := n.shape.Dimensions[axis]
	ix := make([]int64, max(d, 1))
	for i := range ix {
		ix[i] = int64(i)
	}
	data := make([]uint64, max(d, 1))
	out := bytesOf(data)[:d*elemSize(n.shape.DType)]
	src := bytesOf(ix)[:8*d]
	if n.shape.DType == dtypes.Int64 {
		copy(out, src)
	} else {
		convertFunc(dtypes.Int64, n.shape.DType)(out, [][]byte{src})
	}
	v := c.constant(shapes.Make(n.shape.DType, d), out)
	c.views[n] = wholeView(v, []int{d}).broadcast(n.shape.Dimensions, []int{axis})
	return nil
}

// contiguous returns a value that holds n's elements in order.
func (c *compiler) contiguous(n *node) *value {
	w := c.views[n]
	if w.identity() {
		return w.v
	}
	if v := c.copies[n]; v != nil {
		return v
	}
	v := c.copyOf(n.id, w, n.shape.DType)
	c.copies[n] = v
	return v
}

// copyOf adds a copy of a view.
func (c *compiler) copyOf(id int, w view, d dtypes.DType) *value {
	u := &unit{id: id, inputs: []*value{w.v}}
	c.units = append(c.units, u)
	v := c.newValue(shapes.Make(d, w.dims...), u)
	dims, ds, ss := collapse2(w.dims, contiguous(w.dims), w.strides)
	u.step = &copyStep{parts: []copyPart{{dst: v, src: w.v, from: w.off, dims: dims, dstStrides: ds, srcStrides: ss}}, size: elemSize(d)}
	return v
}

func (c *compiler) concatenate(n *node) {
	axis, _ := n.attr.(int)
	u := c.newUnit(n)
	v := c.newValue(n.shape, u)
	s := &copyStep{size: elemSize(n.shape.DType)}
	strides := contiguous(n.shape.Dimensions)
	at := 0
	for _, i := range n.in {
		w := c.views[i]
		u.inputs = append(u.inputs, w.v)
		p := copyPart{dst: v, src: w.v, from: w.off}
		if len(strides) > 0 {
			p.to = at * strides[axis]
			at += i.shape.Dimensions[axis]
		}
		p.dims, p.dstStrides, p.srcStrides = collapse2(w.dims, strides, w.strides)
		s.parts = append(s.parts, p)
	}
	u.step = s
	c.views[n] = wholeView(v, n.shape.Dimensions)
}

// generic adds a step on contiguous inputs.
func (c *compiler) generic(n *node, f genericFunc, in ...*value) {
	u := c.newUnit(n)
	u.inputs = in
	v := c.newValue(n.shape, u)
	u.step = &genericStep{out: v, in: in, f: f}
	c.views[n] = wholeView(v, n.shape.Dimensions)
}

// elementwise lowers an op that no row program takes.
func (c *compiler) elementwise(n *node) error {
	d := n.in[len(n.in)-1].shape.DType // Where: not the condition's
	var f genericFunc
	if n.op == backends.OpTypeWhere && (d == dtypes.Float16 || d == dtypes.BFloat16) {
		f = whereFunc[uint16]
	} else {
		var err error
		if f, err = genericElementwise(n.op, d, n.shape.DType); err != nil {
			return err
		}
	}
	var in []*value
	for _, i := range n.in {
		if slices.Equal(i.shape.Dimensions, n.shape.Dimensions) {
			in = append(in, c.contiguous(i))
			continue
		}
		in = append(in, c.copyOf(i.id, c.views[i].to(n.shape.Dimensions), i.shape.DType))
	}
	c.generic(n, f, in...)
	return nil
}

// reduce lowers a reduction: of size-1 axes a view, of the last axes part of a row
// program, otherwise a loop.
func (c *compiler) reduce(n *node) error {
	axes := n.attr.([]int)
	in, dims := c.views[n.in[0]], n.in[0].shape.Dimensions
	count := 1
	for _, a := range axes {
		count *= dims[a]
	}
	if count == 1 {
		if w, ok := in.reshape(n.shape.Dimensions); ok {
			c.views[n] = w
		} else {
			c.views[n] = wholeView(c.contiguous(n.in[0]), n.shape.Dimensions)
		}
		return nil
	}
	if c.fuseReduce(n, count) {
		return nil
	}
	// Reduced axes that are neighbours need no copy; others are moved last.
	var rest []int
	for a := range dims {
		if !slices.Contains(axes, a) {
			rest = append(rest, a)
		}
	}
	f, err := numericReduce(n.op, n.shape.DType)
	if err != nil {
		return err
	}
	outer, inner := 1, 1
	var v *value
	if axes[len(axes)-1]-axes[0] == len(axes)-1 {
		v = c.contiguous(n.in[0])
		outer, inner = product(dims[:axes[0]]), product(dims[axes[len(axes)-1]+1:])
	} else {
		v = c.copyOf(n.in[0].id, in.transpose(append(slices.Clone(rest), axes...)), n.shape.DType)
		outer = n.shape.Size()
	}
	u := c.newUnit(n)
	u.inputs = []*value{v}
	out := c.newValue(n.shape, u)
	s := &reduceStep{out: out, in: v, f: f, outer: outer, n: count, inner: inner, size: elemSize(n.shape.DType)}
	s.addRows = n.op == backends.OpTypeReduceSum && n.shape.DType == dtypes.Float32
	u.step = s
	c.views[n] = wholeView(out, n.shape.Dimensions)
	return nil
}

// indexing lowers the ops that move elements.
func (c *compiler) indexing(n *node) error {
	x := n.in[0].shape
	size := elemSize(x.DType)
	var f genericFunc
	var err error
	ix := func(from int) (d []dtypes.DType) {
		for _, i := range n.in[from:] {
			d = append(d, i.shape.DType)
		}
		return
	}
	switch n.op {
	case backends.OpTypeGather:
		if a := n.attr.(gatherAttr); rowGather(a, x, n.in[1].shape, n.shape) {
			u := c.newUnit(n)
			u.inputs = []*value{c.contiguous(n.in[0]), c.contiguous(n.in[1])}
			out := c.newValue(n.shape, u)
			u.step = &gatherStep{out: out, table: u.inputs[0], indices: u.inputs[1], rows: x.Dimensions[0], width: x.Dimensions[1],
				count: n.in[1].shape.Size(), read: indexReader(n.in[1].shape.DType)}
			c.views[n] = wholeView(out, n.shape.Dimensions)
			return nil
		}
		f = gatherFunc(n.attr.(gatherAttr), x.Dimensions, n.in[1].shape.Dimensions, n.shape.Dimensions, n.in[1].shape.DType, size)
	case backends.OpTypeScatterSum, backends.OpTypeScatterMax, backends.OpTypeScatterMin:
		a, id, ud := n.attr.(scatterAttr), n.in[1].shape, n.in[2].shape
		ok := false
		if n.op == backends.OpTypeScatterSum {
			f, ok = rowScatter(a, x.Dimensions, id.Dimensions, ud.Dimensions, x.DType, id.DType)
		}
		if !ok {
			f, err = scatterFunc(n.op, a, x.Dimensions, id.Dimensions, ud.Dimensions, x.DType, id.DType)
		}
	case backends.OpTypePad:
		f = padFunc(n.attr.([]backends.PadAxis), x.Dimensions, n.shape.Dimensions, size)
	case backends.OpTypeDynamicSlice:
		f = dynamicSliceFunc(x.Dimensions, n.shape.Dimensions, ix(1), size)
	case backends.OpTypeDynamicUpdateSlice:
		f = dynamicUpdateFunc(x.Dimensions, n.in[1].shape.Dimensions, ix(2), size)
	case backends.OpTypeRNGBitGenerator:
		f = rngFunc(n.attr)
	case backends.OpTypeArgMinMax:
		a := n.attr.(argAttr)
		f, err = argFunc(x.DType, n.shape.DType, a.min, product(x.Dimensions[:a.axis]), x.Dimensions[a.axis], product(x.Dimensions[a.axis+1:]))
	default:
		err = fmt.Errorf("op %s has no implementation", n.op)
	}
	if err != nil {
		return err
	}
	var in []*value
	for _, i := range n.in {
		in = append(in, c.contiguous(i))
	}
	c.generic(n, f, in...)
	if n.op == backends.OpTypeDynamicUpdateSlice && in[0].kind == parameter {
		c.views[n].v.over = in[0]
	}
	return nil
}
