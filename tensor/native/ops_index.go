package native

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/shapeinference"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

func (b *Builder) reduce(op backends.OpType, x backends.Op, axes []int) (backends.Op, error) {
	in, err := b.inputs(op, x)
	if err != nil {
		return nil, err
	}
	if d := in[0].shape.DType; isHalf(d) {
		return b.inFloat32(d, in, func(x []backends.Op) (backends.Op, error) { return b.reduce(op, x[0], axes) })
	}
	rank := in[0].shape.Rank()
	if len(axes) == 0 {
		for a := range rank {
			axes = append(axes, a)
		}
	}
	axes = slices.Clone(axes)
	slices.Sort(axes)
	for i, a := range axes {
		if a < 0 || a >= rank || (i > 0 && a == axes[i-1]) {
			return nil, fmt.Errorf("native: %s of %s over axes %v", op, in[0].shape, axes)
		}
	}
	logical := op == backends.OpTypeReduceLogicalAnd || op == backends.OpTypeReduceLogicalOr
	if logical != (in[0].shape.DType == dtypes.Bool) {
		return nil, fmt.Errorf("native: %s of %s", op, in[0].shape)
	}
	if len(axes) == 0 {
		return b.Identity(x)
	}
	s, err := shapeinference.ReduceOp(in[0].shape, axes)
	if err != nil {
		return nil, err
	}
	return b.add(op, s, axes, in[0]), nil
}

// ReduceSum adds up over axes, all when none is given.
func (b *Builder) ReduceSum(x backends.Op, axes ...int) (backends.Op, error) {
	return b.reduce(backends.OpTypeReduceSum, x, axes)
}

// ReduceProduct multiplies over axes.
func (b *Builder) ReduceProduct(x backends.Op, axes ...int) (backends.Op, error) {
	return b.reduce(backends.OpTypeReduceProduct, x, axes)
}

// ReduceMax is the largest element over axes, NaN if there is one.
func (b *Builder) ReduceMax(x backends.Op, axes ...int) (backends.Op, error) {
	return b.reduce(backends.OpTypeReduceMax, x, axes)
}

// ReduceMin is the smallest element over axes, NaN if there is one.
func (b *Builder) ReduceMin(x backends.Op, axes ...int) (backends.Op, error) {
	return b.reduce(backends.OpTypeReduceMin, x, axes)
}

// ReduceLogicalAnd tells whether all are true.
func (b *Builder) ReduceLogicalAnd(x backends.Op, axes ...int) (backends.Op, error) {
	return b.reduce(backends.OpTypeReduceLogicalAnd, x, axes)
}

// ReduceLogicalOr tells whether any is true.
func (b *Builder) ReduceLogicalOr(x backends.Op, axes ...int) (backends.Op, error) {
	return b.reduce(backends.OpTypeReduceLogicalOr, x, axes)
}

type argAttr struct {
	axis int
	min  bool
}

// ArgMinMax is the index of the first extreme element, or of the first NaN.
func (b *Builder) ArgMinMax(x backends.Op, axis int, out dtypes.DType, isMin bool) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeArgMinMax, x)
	if err != nil {
		return nil, err
	}
	if d := in[0].shape.DType; isHalf(d) {
		return b.inFloat32(d, in, func(x []backends.Op) (backends.Op, error) { return b.ArgMinMax(x[0], axis, out, isMin) })
	}
	s, err := shapeinference.ArgMinMaxOp(in[0].shape, axis, out)
	if err != nil {
		return nil, err
	}
	if !dtypeOK(out) || in[0].shape.Dimensions[axis] == 0 {
		return nil, fmt.Errorf("native: ArgMinMax of %s as %s", in[0].shape, out)
	}
	return b.add(backends.OpTypeArgMinMax, s, argAttr{axis, isMin}, in[0]), nil
}

type gatherAttr struct {
	vector                    int
	offset, collapsed, starts []int
	sizes                     []int
}

// Gather takes slices of x at computed places; see backends.StandardOps.
func (b *Builder) Gather(x, indices backends.Op, vector int, offset, collapsed, starts, sizes []int, _ bool) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeGather, x, indices)
	if err != nil {
		return nil, err
	}
	ix := in[1]
	if !ix.shape.DType.IsInt() {
		return nil, fmt.Errorf("native: Gather with indices %s", ix.shape)
	}
	if vector == ix.shape.Rank() { // the implied axis of size 1
		r, err := b.Reshape(ix, append(slices.Clone(ix.shape.Dimensions), 1)...)
		if err != nil {
			return nil, err
		}
		ix = r.(*node)
	}
	if vector < 0 || vector >= ix.shape.Rank() {
		return nil, fmt.Errorf("native: Gather along index axis %d of %s", vector, ix.shape)
	}
	s, err := gatherShape(in[0].shape, ix.shape, vector, offset, collapsed, starts, sizes)
	if err != nil {
		return nil, err
	}
	a := gatherAttr{vector, slices.Clone(offset), slices.Clone(collapsed), slices.Clone(starts), slices.Clone(sizes)}
	return b.add(backends.OpTypeGather, s, a, in[0], ix), nil
}

// gatherShape checks the arguments; an index axis beyond the operand's rank is fine
// here, where GoMLX's own inference refuses it.
func gatherShape(x, ix shapes.Shape, vector int, offset, collapsed, starts, sizes []int) (shapes.Shape, error) {
	bad := func(why string) (shapes.Shape, error) {
		return shapes.Invalid(), fmt.Errorf("native: Gather of %s with indices %s: %s", x, ix, why)
	}
	r := x.Rank()
	if len(sizes) != r || len(starts) != ix.Dimensions[vector] || len(offset)+len(collapsed) != r {
		return bad("numbers of axes")
	}
	for a, n := range sizes {
		if n < 0 || n > x.Dimensions[a] {
			return bad("slice size")
		}
	}
	for i, a := range collapsed {
		if a < 0 || a >= r || sizes[a] != 1 || slices.Contains(collapsed[:i], a) {
			return bad("collapsed axis")
		}
	}
	for _, a := range starts {
		if a < 0 || a >= r || x.Dimensions[a] == 0 {
			return bad("start axis")
		}
	}
	rank := ix.Rank() - 1 + len(offset)
	dims := make([]int, rank)
	var from []int
	for a, n := range sizes {
		if !slices.Contains(collapsed, a) {
			from = append(from, n)
		}
	}
	for i, a := range offset {
		if a < 0 || a >= rank || (i > 0 && a <= offset[i-1]) {
			return bad("offset axis")
		}
		dims[a] = from[i]
	}
	next := 0
	for a := range dims {
		if slices.Contains(offset, a) {
			continue
		}
		if next == vector {
			next++
		}
		dims[a] = ix.Dimensions[next]
		next++
	}
	return shapes.Make(x.DType, dims...), nil
}

type scatterAttr struct {
	vector                   int
	window, inserted, starts []int
}

func (b *Builder) scatter(op backends.OpType, x, indices, updates backends.Op, vector int, window, inserted, starts []int) (backends.Op, error) {
	in, err := b.inputs(op, x, indices, updates)
	if err != nil {
		return nil, err
	}
	s, err := shapeinference.ScatterOp(in[0].shape, in[1].shape, in[2].shape, vector, window, inserted, starts)
	if err != nil {
		return nil, err
	}
	if s.DType == dtypes.Bool {
		return nil, fmt.Errorf("native: %s of %s", op, s)
	}
	if isHalf(s.DType) {
		return b.inFloat32(s.DType, []*node{in[0], in[2]}, func(w []backends.Op) (backends.Op, error) {
			return b.scatter(op, w[0], in[1], w[1], vector, window, inserted, starts)
		})
	}
	ix := in[1]
	if vector == ix.shape.Rank() {
		r, err := b.Reshape(ix, append(slices.Clone(ix.shape.Dimensions), 1)...)
		if err != nil {
			return nil, err
		}
		ix = r.(*node)
	}
	return b.add(op, s.Clone(), scatterAttr{vector, slices.Clone(window), slices.Clone(inserted), slices.Clone(starts)}, in[0], ix, in[2]), nil
}

// ScatterSum adds updates to x at computed places, those outside are dropped.
func (b *Builder) ScatterSum(x, indices, updates backends.Op, vector int, window, inserted, starts []int, _, _ bool) (backends.Op, error) {
	return b.scatter(backends.OpTypeScatterSum, x, indices, updates, vector, window, inserted, starts)
}

// ScatterMax is ScatterSum with the maximum.
func (b *Builder) ScatterMax(x, indices, updates backends.Op, vector int, window, inserted, starts []int, _, _ bool) (backends.Op, error) {
	return b.scatter(backends.OpTypeScatterMax, x, indices, updates, vector, window, inserted, starts)
}

// ScatterMin is ScatterSum with the minimum.
func (b *Builder) ScatterMin(x, indices, updates backends.Op, vector int, window, inserted, starts []int, _, _ bool) (backends.Op, error) {
	return b.scatter(backends.OpTypeScatterMin, x, indices, updates, vector, window, inserted, starts)
}

// Pad puts fill around and between the elements of x; negative amounts cut.
func (b *Builder) Pad(x, fill backends.Op, axes ...backends.PadAxis) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypePad, x, fill)
	if err != nil {
		return nil, err
	}
	s := in[0].shape.Clone()
	if in[1].shape.Rank() != 0 || in[1].shape.DType != s.DType || len(axes) > s.Rank() {
		return nil, fmt.Errorf("native: Pad of %s with %s and %d axes", s, in[1].shape, len(axes))
	}
	full := make([]backends.PadAxis, s.Rank())
	copy(full, axes)
	for i, p := range full {
		if p.Interior < 0 {
			return nil, fmt.Errorf("native: Pad of %s: interior %d", s, p.Interior)
		}
		d := s.Dimensions[i]
		s.Dimensions[i] = p.Start + p.End + d + max(0, d-1)*p.Interior
		if s.Dimensions[i] < 0 {
			return nil, fmt.Errorf("native: Pad of %s: axis %d becomes negative", in[0].shape, i)
		}
	}
	return b.add(backends.OpTypePad, s, full, in...), nil
}

func (b *Builder) starts(op backends.OpType, x shapes.Shape, sizes []int, starts []*node) error {
	if len(starts) != x.Rank() || len(sizes) != x.Rank() {
		return fmt.Errorf("native: %s of %s with %d starts and sizes %v", op, x, len(starts), sizes)
	}
	for i, n := range starts {
		if n.shape.Size() != 1 || !n.shape.DType.IsInt() || sizes[i] < 0 || sizes[i] > x.Dimensions[i] {
			return fmt.Errorf("native: %s of %s: start %s, size %d", op, x, n.shape, sizes[i])
		}
	}
	return nil
}

// DynamicSlice takes a box at a computed place, moved to lie inside x.
func (b *Builder) DynamicSlice(x backends.Op, startIndices []backends.Op, sizes []int) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeDynamicSlice, append([]backends.Op{x}, startIndices...)...)
	if err != nil {
		return nil, err
	}
	if err := b.starts(backends.OpTypeDynamicSlice, in[0].shape, sizes, in[1:]); err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeDynamicSlice, shapes.Make(in[0].shape.DType, sizes...), nil, in...), nil
}

// DynamicUpdateSlice replaces a box at a computed place, moved to lie inside x.
func (b *Builder) DynamicUpdateSlice(x, update backends.Op, startIndices []backends.Op) (backends.Op, error) {
	in, err := b.inputs(backends.OpTypeDynamicUpdateSlice, append([]backends.Op{x, update}, startIndices...)...)
	if err != nil {
		return nil, err
	}
	if in[0].shape.DType != in[1].shape.DType {
		return nil, fmt.Errorf("native: DynamicUpdateSlice of %s with %s", in[0].shape, in[1].shape)
	}
	if err := b.starts(backends.OpTypeDynamicUpdateSlice, in[0].shape, in[1].shape.Dimensions, in[2:]); err != nil {
		return nil, err
	}
	return b.add(backends.OpTypeDynamicUpdateSlice, in[0].shape, nil, in...), nil
}
