package native

import (
	"slices"
	"unsafe"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
)

// opRotate replaces rotary positions, which as elementwise ops would be three steps:
//
//	a, b = x[:, :, :D/2], x[:, :, D/2:]          x [R,H,D]
//	y    = Concatenate(a·c − b·s, b·c + a·s)     c, s [R,H,D/2]; each times a constant, or not
//
// Its inputs are x, c, s; the attribute is the constant.
const opRotate = opAttention + 1

// matchRotate finds the pattern in all nodes.
func (b *Builder) matchRotate() {
	for _, n := range b.nodes {
		if axis, ok := n.attr.(int); !ok || axis != 2 || n.op != backends.OpTypeConcatenate || n.shape.DType != dtypes.Float32 || n.shape.Rank() != 3 || len(n.in) != 2 {
			continue
		}
		if scale, in, ok := rotationOf(n); ok {
			n.op, n.attr, n.in = opRotate, scale, in
		}
	}
}

// constantOf is the one value that n repeats.
func constantOf(n *node) (float32, bool) {
	for n.op == backends.OpTypeBroadcastInDim || n.op == backends.OpTypeReshape {
		n = n.in[0]
	}
	if n.op != backends.OpTypeConstant || n.shape.Size() != 1 {
		return 0, false
	}
	return cast[float32](n.attr.([]byte))[0], true
}

// scaled takes n = m·constant apart.
func scaled(n *node) (m *node, scale float32) {
	if n.op == backends.OpTypeMul {
		for i := range 2 {
			if k, ok := constantOf(n.in[1-i]); ok && n.in[i].shape.Equal(n.shape) {
				return n.in[i], k
			}
		}
	}
	return n, 1
}

func rotationOf(n *node) (scale float32, in []*node, ok bool) {
	u, scale := scaled(n.in[0])
	v, k := scaled(n.in[1])
	if k != scale || u.op != backends.OpTypeSub || v.op != backends.OpTypeAdd || !u.shape.Equal(v.shape) {
		return 0, nil, false
	}
	for _, m := range [][]*node{u.in, v.in} {
		for _, f := range m {
			if f.op != backends.OpTypeMul || !f.shape.Equal(u.shape) || !f.in[0].shape.Equal(u.shape) || !f.in[1].shape.Equal(u.shape) {
				return 0, nil, false
			}
		}
	}
	a, c, b, s := u.in[0].in[0], u.in[0].in[1], u.in[1].in[0], u.in[1].in[1]
	if !slices.Equal(v.in[0].in, []*node{b, c}) || !slices.Equal(v.in[1].in, []*node{a, s}) || a.op != backends.OpTypeSlice || b.op != backends.OpTypeSlice || a.in[0] != b.in[0] {
		return 0, nil, false
	}
	x, half := a.in[0], u.shape.Dimensions[2]
	for i, m := range []*node{a, b} {
		at := m.attr.(sliceAttr)
		if !slices.Equal(at.starts, []int{0, 0, i * half}) || !slices.Equal(at.strides, []int{1, 1, 1}) {
			return 0, nil, false
		}
	}
	if !x.shape.Equal(n.shape) || half == 0 {
		return 0, nil, false
	}
	return scale, []*node{x, c, s}, true
}

// rotateStep runs it, some rows a task.
type rotateStep struct {
	rows, heads, half int
	scale             float32
	x, cos, sin       view // last axes contiguous
	out               *value
}

func (c *compiler) rotate(n *node) {
	d := n.shape.Dimensions
	s := &rotateStep{rows: d[0], heads: d[1], half: d[2] / 2, scale: n.attr.(float32)}
	for i, v := range []*view{&s.x, &s.cos, &s.sin} {
		if *v = c.views[n.in[i]]; v.strides[2] != 1 && v.dims[2] > 1 {
			*v = wholeView(c.contiguous(n.in[i]), n.in[i].shape.Dimensions)
		}
	}
	u := c.newUnit(n)
	u.inputs, u.step = []*value{s.x.v, s.cos.v, s.sin.v}, s
	s.out = c.newValue(n.shape, u)
	c.views[n] = wholeView(s.out, d)
}

func (s *rotateStep) scratch() int { return 0 }

func (s *rotateStep) tasks() int {
	return max(1, min(s.rows, s.rows*s.heads*s.half*2/taskFloats))
}

func (s *rotateStep) run(x *execution) {
	x.job = jobRef{step: s}
	x.pool.run(x, s.tasks())
}

func (s *rotateStep) task(x *execution, i, _ int) {
	out, n := x.floats(s.out), 2*s.half
	part := func(v *view, r, h, n int) []float32 {
		at := v.off + r*v.strides[0] + h*v.strides[1]
		return unsafe.Slice((*float32)(unsafe.Add(x.base[v.v.id], 4*at)), n)
	}
	heads, groups := s.heads, 1 // that share an angle
	if s.cos.strides[1] != 0 || s.sin.strides[1] != 0 || s.x.strides[1] < 0 {
		heads, groups = 1, s.heads
	}
	for r := s.rows * i / s.tasks(); r < s.rows*(i+1)/s.tasks(); r++ {
		for h := range groups {
			simd.Rotate(out[(r*s.heads+h)*n:], part(&s.x, r, h, (heads-1)*s.x.strides[1]+n), s.x.strides[1], heads, part(&s.cos, r, h, s.half), part(&s.sin, r, h, s.half), s.scale)
		}
	}
}
