package native

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/notimplemented"
	"github.com/gomlx/gomlx/backends/shapeinference"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// node is an op of the graph.
type node struct {
	b     *Builder
	id    int
	op    backends.OpType
	shape shapes.Shape
	in    []*node
	attr  any
}

// Builder records a computation.
type Builder struct {
	notimplemented.Builder
	backend  *Backend
	name     string
	nodes    []*node
	params   []*node
	names    []string
	compiled bool
}

var _ backends.Builder = (*Builder)(nil)

// Name is the computation's name.
func (b *Builder) Name() string { return b.name }

func (b *Builder) add(op backends.OpType, s shapes.Shape, attr any, in ...*node) *node {
	n := &node{b: b, id: len(b.nodes), op: op, shape: s, in: in, attr: attr}
	b.nodes = append(b.nodes, n)
	return n
}

// inputs checks that ops are of this builder.
func (b *Builder) inputs(op backends.OpType, ops ...backends.Op) ([]*node, error) {
	if b.compiled {
		return nil, fmt.Errorf("native: %s added to %q, which is compiled", op, b.name)
	}
	out := make([]*node, len(ops))
	for i, o := range ops {
		n, ok := o.(*node)
		if !ok || n == nil || n.b != b {
			return nil, fmt.Errorf("native: operand %d of %s is not of this computation", i, op)
		}
		out[i] = n
	}
	return out, nil
}

// OpShape is the shape of an op's result.
func (b *Builder) OpShape(op backends.Op) (shapes.Shape, error) {
	n, err := b.inputs(backends.OpTypeInvalid, op)
	if err != nil {
		return shapes.Invalid(), err
	}
	return n[0].shape, nil
}

// Parameter adds an input.
func (b *Builder) Parameter(name string, s shapes.Shape, sharding *backends.ShardingSpec) (backends.Op, error) {
	if sharding != nil {
		return nil, fmt.Errorf("native: parameter %q: sharding is not supported", name)
	}
	if _, err := b.inputs(backends.OpTypeParameter); err != nil {
		return nil, err
	}
	if err := checkShape(s); err != nil {
		return nil, fmt.Errorf("parameter %q: %w", name, err)
	}
	n := b.add(backends.OpTypeParameter, s.Clone(), len(b.params))
	b.params = append(b.params, n)
	b.names = append(b.names, name)
	return n, nil
}

// Constant adds a constant with the values of flat.
func (b *Builder) Constant(flat any, dims ...int) (backends.Op, error) {
	if _, err := b.inputs(backends.OpTypeConstant); err != nil {
		return nil, err
	}
	d := dtypes.InvalidDType
	if t := reflect.TypeOf(flat); t != nil && t.Kind() == reflect.Slice {
		d = dtypes.FromGoType(t.Elem())
	}
	if !dtypeOK(d) {
		return nil, fmt.Errorf("native: constant of %T is not supported", flat)
	}
	s := shapes.Make(d, dims...)
	src, err := flatBytes(flat, d, s.Size())
	if err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeConstant, s, alignedCopy(src)), nil
}

// alignedCopy copies bytes to memory aligned for every dtype.
func alignedCopy(src []byte) []byte {
	m := make([]uint64, (len(src)+7)/8+1)
	dst := unsafe.Slice((*byte)(unsafe.Pointer(&m[0])), len(src))
	copy(dst, src)
	return dst
}

// Identity returns x.
func (b *Builder) Identity(x backends.Op) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeIdentity, x)
	if err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeIdentity, in[0].shape, nil, in[0]), nil
}

// Iota counts up along one axis.
func (b *Builder) Iota(s shapes.Shape, axis int) (backends.Op, error) {
	if _, err := b.inputs(backends.OpTypeIota); err != nil {
		return nil, err
	}
	if err := checkShape(s); err != nil {
		return nil, err
	}
	if axis < 0 || axis >= s.Rank() || s.DType == dtypes.Bool {
		return nil, fmt.Errorf("native: Iota of %s along axis %d", s, axis)
	}
	return b.add(backends.OpTypeIota, s.Clone(), axis), nil
}

// Reshape changes the dimensions.
func (b *Builder) Reshape(x backends.Op, dims ...int) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeReshape, x)
	if err != nil {
		return nil, err
	}
	s, err := shapeinference.ReshapeOp(in[0].shape, dims)
	if err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeReshape, s, nil, in[0]), nil
}

// Transpose permutes the axes.
func (b *Builder) Transpose(x backends.Op, permutation ...int) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeTranspose, x)
	if err != nil {
		return nil, err
	}
	s, err := shapeinference.TransposeOp(in[0].shape, permutation)
	if err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeTranspose, s, slices.Clone(permutation), in[0]), nil
}

// BroadcastInDim repeats x along new and size-1 axes.
func (b *Builder) BroadcastInDim(x backends.Op, out shapes.Shape, axes []int) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeBroadcastInDim, x)
	if err != nil {
		return nil, err
	}
	if out.DType != in[0].shape.DType {
		return nil, fmt.Errorf("native: BroadcastInDim from %s to %s", in[0].shape, out)
	}
	if err := shapeinference.BroadcastInDimOp(in[0].shape, out, axes); err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeBroadcastInDim, out.Clone(), slices.Clone(axes), in[0]), nil
}

// sliceAttr are the bounds of a Slice.
type sliceAttr struct{ starts, strides []int }

// Slice takes a box of x.
func (b *Builder) Slice(x backends.Op, starts, limits, strides []int) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeSlice, x)
	if err != nil {
		return nil, err
	}
	if strides == nil {
		strides = slices.Repeat([]int{1}, in[0].shape.Rank())
	}
	s, err := shapeinference.SliceOp(in[0].shape, starts, limits, strides)
	if err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeSlice, s, sliceAttr{slices.Clone(starts), slices.Clone(strides)}, in[0]), nil
}

// Reverse mirrors x along axes.
func (b *Builder) Reverse(x backends.Op, axes ...int) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeReverse, x)
	if err != nil {
		return nil, err
	}
	for _, a := range axes {
		if a < 0 || a >= in[0].shape.Rank() {
			return nil, fmt.Errorf("native: Reverse of axis %d of %s", a, in[0].shape)
		}
	}
	return b.add(backends.OpTypeReverse, in[0].shape, slices.Clone(axes), in[0]), nil
}

// Concatenate joins operands along an axis.
func (b *Builder) Concatenate(axis int, operands ...backends.Op) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeConcatenate, operands...)
	if err != nil {
		return nil, err
	}
	var ss []shapes.Shape
	for _, n := range in {
		ss = append(ss, n.shape)
	}
	s, err := shapeinference.ConcatenateOp(ss, axis)
	if err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeConcatenate, s, axis, in...), nil
}

// ConvertDType converts the elements; floats to integers truncate.
func (b *Builder) ConvertDType(x backends.Op, d dtypes.DType) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeConvertDType, x)
	if err != nil {
		return nil, err
	}
	if !dtypeOK(d) {
		return nil, fmt.Errorf("native: ConvertDType to %s is not supported", d)
	}
	s := in[0].shape.Clone()
	s.DType = d
	if d == in[0].shape.DType {
		return b.add(backends.OpTypeIdentity, s, nil, in[0]), nil
	}
	return b.add(backends.OpTypeConvertDType, s, nil, in[0]), nil
}

// Where picks elements by a condition; scalars are broadcast.
func (b *Builder) Where(cond, onTrue, onFalse backends.Op) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeWhere, cond, onTrue, onFalse)
	if err != nil {
		return nil, err
	}
	if in[1].shape.DType != in[2].shape.DType {
		return nil, fmt.Errorf("native: Where between %s and %s", in[1].shape, in[2].shape)
	}
	s, err := shapeinference.WhereOp(in[0].shape, in[1].shape, in[2].shape)
	if err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeWhere, s.Clone(), nil, in...), nil
}

// Clamp limits x to [lo, hi]; lo and hi are scalars or shaped like x.
func (b *Builder) Clamp(lo, x, hi backends.Op) (backends.Op, error) {
	y, err := b.Max(x, lo)
	if err != nil {
		return nil, err
	}
	return b.Min(y, hi)
}

// dotAttr are the axes of a DotGeneral.
type dotAttr struct{ lc, lb, rc, rb []int }

// DotGeneral sums products over the contracting axes.
func (b *Builder) DotGeneral(l backends.Op, lc, lb []int, r backends.Op, rc, rb []int) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeDotGeneral, l, r)
	if err != nil {
		return nil, err
	}
	ls, rs := in[0].shape, in[1].shape
	if isHalf(ls.DType) && ls.DType == rs.DType {
		return b.inFloat32(ls.DType, in, func(x []backends.Op) (backends.Op, error) { return b.DotGeneral(x[0], lc, lb, x[1], rc, rb) })
	}
	fail := func(why string) (backends.Op, error) {
		return nil, fmt.Errorf("native: DotGeneral of %s (contracting %v, batch %v) and %s (%v, %v): %s", ls, lc, lb, rs, rc, rb, why)
	}
	if ls.DType != rs.DType || ls.DType == dtypes.Bool {
		return fail("dtypes")
	}
	if len(lc) != len(rc) || len(lb) != len(rb) {
		return fail("numbers of axes differ")
	}
	check := func(s shapes.Shape, axes ...[]int) bool {
		seen := map[int]bool{}
		for _, l := range axes {
			for _, a := range l {
				if a < 0 || a >= s.Rank() || seen[a] {
					return false
				}
				seen[a] = true
			}
		}
		return true
	}
	if !check(ls, lc, lb) || !check(rs, rc, rb) {
		return fail("an axis is out of range or repeated")
	}
	var dims []int
	for i := range lb {
		if ls.Dimensions[lb[i]] != rs.Dimensions[rb[i]] {
			return fail("batch dimensions differ")
		}
		dims = append(dims, ls.Dimensions[lb[i]])
	}
	for i := range lc {
		if ls.Dimensions[lc[i]] != rs.Dimensions[rc[i]] {
			return fail("contracting dimensions differ")
		}
	}
	for a, d := range ls.Dimensions {
		if !slices.Contains(lc, a) && !slices.Contains(lb, a) {
			dims = append(dims, d)
		}
	}
	for a, d := range rs.Dimensions {
		if !slices.Contains(rc, a) && !slices.Contains(rb, a) {
			dims = append(dims, d)
		}
	}
	a := dotAttr{slices.Clone(lc), slices.Clone(lb), slices.Clone(rc), slices.Clone(rb)}
	return b.add(backends.OpTypeDotGeneral, shapes.Make(ls.DType, dims...), a, in...), nil
}

// Dot multiplies vectors and matrices.
func (b *Builder) Dot(l, r backends.Op) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeDot, l, r)
	if err != nil {
		return nil, err
	}
	if lr, rr := in[0].shape.Rank(), in[1].shape.Rank(); lr < 1 || lr > 2 || rr < 1 || rr > 2 {
		return nil, fmt.Errorf("native: Dot of %s and %s", in[0].shape, in[1].shape)
	}
	return b.DotGeneral(l, []int{in[0].shape.Rank() - 1}, nil, r, []int{0}, nil)
}
