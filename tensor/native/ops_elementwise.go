package native

import (
	"fmt"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/shapeinference"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
)

func (b *Builder) unary(op backends.OpType, x backends.Op) (backends.Op, error) {
	in, err := b.inputs(op, x)
	if err != nil {
		return nil, err
	}
	s := in[0].shape.Clone()
	if isHalf(s.DType) {
		return b.inFloat32(s.DType, in, func(x []backends.Op) (backends.Op, error) { return b.unary(op, x[0]) })
	}
	switch op {
	case backends.OpTypeIsFinite, backends.OpTypeIsNaN:
		if !s.DType.IsFloat() {
			return nil, fmt.Errorf("native: %s of %s: a float is needed", op, s)
		}
		s.DType = dtypes.Bool
	default:
		if s, err = shapeinference.UnaryOp(op, s); err != nil {
			return nil, err
		}
	}
	return b.add(op, s, nil, in[0]), nil
}

func (b *Builder) binary(op backends.OpType, l, r backends.Op) (backends.Op, error) {
	in, err := b.inputs(op, l, r)
	if err != nil {
		return nil, err
	}
	if d := in[0].shape.DType; isHalf(d) && d == in[1].shape.DType {
		return b.inFloat32(d, in, func(x []backends.Op) (backends.Op, error) { return b.binary(op, x[0], x[1]) })
	}
	f := shapeinference.BinaryOp
	if shapeinference.ComparisonOperations.Has(op) {
		f = shapeinference.ComparisonOp
		if op == backends.OpTypeNotEqual && in[0].shape.DType == dtypes.Bool {
			return b.binary(backends.OpTypeLogicalXor, l, r)
		}
	}
	s, err := f(op, in[0].shape, in[1].shape)
	if err != nil {
		return nil, err
	}
	return b.add(op, s.Clone(), nil, in...), nil
}

func isHalf(d dtypes.DType) bool { return d == dtypes.Float16 || d == dtypes.BFloat16 }

// inFloat32 computes an op of 16-bit floats in float32. A result that is a float is
// rounded to the dtype.
func (b *Builder) inFloat32(d dtypes.DType, in []*node, f func(x []backends.Op) (backends.Op, error)) (backends.Op, error) {
	wide := make([]backends.Op, len(in))
	for i, n := range in {
		var err error
		if wide[i], err = b.ConvertDType(n, dtypes.Float32); err != nil {
			return nil, err
		}
	}
	y, err := f(wide)
	if err != nil || y.(*node).shape.DType != dtypes.Float32 {
		return y, err
	}
	return b.ConvertDType(y, d)
}

// The methods below record the op of their name; see backends.StandardOps.

func (b *Builder) Abs(x backends.Op) (backends.Op, error) { return b.unary(backends.OpTypeAbs, x) }
func (b *Builder) BitwiseNot(x backends.Op) (backends.Op, error) {
	return b.unary(backends.OpTypeBitwiseNot, x)
}
func (b *Builder) Ceil(x backends.Op) (backends.Op, error)  { return b.unary(backends.OpTypeCeil, x) }
func (b *Builder) Cos(x backends.Op) (backends.Op, error)   { return b.unary(backends.OpTypeCos, x) }
func (b *Builder) Erf(x backends.Op) (backends.Op, error)   { return b.unary(backends.OpTypeErf, x) }
func (b *Builder) Exp(x backends.Op) (backends.Op, error)   { return b.unary(backends.OpTypeExp, x) }
func (b *Builder) Expm1(x backends.Op) (backends.Op, error) { return b.unary(backends.OpTypeExpm1, x) }
func (b *Builder) Floor(x backends.Op) (backends.Op, error) { return b.unary(backends.OpTypeFloor, x) }
func (b *Builder) IsFinite(x backends.Op) (backends.Op, error) {
	return b.unary(backends.OpTypeIsFinite, x)
}
func (b *Builder) IsNaN(x backends.Op) (backends.Op, error) { return b.unary(backends.OpTypeIsNaN, x) }
func (b *Builder) Log(x backends.Op) (backends.Op, error)   { return b.unary(backends.OpTypeLog, x) }
func (b *Builder) Log1p(x backends.Op) (backends.Op, error) { return b.unary(backends.OpTypeLog1p, x) }
func (b *Builder) LogicalNot(x backends.Op) (backends.Op, error) {
	return b.unary(backends.OpTypeLogicalNot, x)
}
func (b *Builder) Logistic(x backends.Op) (backends.Op, error) {
	return b.unary(backends.OpTypeLogistic, x)
}
func (b *Builder) Neg(x backends.Op) (backends.Op, error)   { return b.unary(backends.OpTypeNeg, x) }
func (b *Builder) Round(x backends.Op) (backends.Op, error) { return b.unary(backends.OpTypeRound, x) }
func (b *Builder) Rsqrt(x backends.Op) (backends.Op, error) { return b.unary(backends.OpTypeRsqrt, x) }
func (b *Builder) Sign(x backends.Op) (backends.Op, error)  { return b.unary(backends.OpTypeSign, x) }
func (b *Builder) Sin(x backends.Op) (backends.Op, error)   { return b.unary(backends.OpTypeSin, x) }
func (b *Builder) Sqrt(x backends.Op) (backends.Op, error)  { return b.unary(backends.OpTypeSqrt, x) }
func (b *Builder) Tanh(x backends.Op) (backends.Op, error)  { return b.unary(backends.OpTypeTanh, x) }

func (b *Builder) Add(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeAdd, l, r)
}
func (b *Builder) BitwiseAnd(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeBitwiseAnd, l, r)
}
func (b *Builder) BitwiseOr(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeBitwiseOr, l, r)
}
func (b *Builder) BitwiseXor(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeBitwiseXor, l, r)
}
func (b *Builder) Div(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeDiv, l, r)
}
func (b *Builder) Equal(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeEqual, l, r)
}
func (b *Builder) GreaterOrEqual(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeGreaterOrEqual, l, r)
}
func (b *Builder) GreaterThan(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeGreaterThan, l, r)
}
func (b *Builder) LessOrEqual(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeLessOrEqual, l, r)
}
func (b *Builder) LessThan(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeLessThan, l, r)
}
func (b *Builder) LogicalAnd(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeLogicalAnd, l, r)
}
func (b *Builder) LogicalOr(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeLogicalOr, l, r)
}
func (b *Builder) LogicalXor(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeLogicalXor, l, r)
}
func (b *Builder) Max(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeMax, l, r)
}
func (b *Builder) Min(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeMin, l, r)
}
func (b *Builder) Mul(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeMul, l, r)
}
func (b *Builder) NotEqual(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeNotEqual, l, r)
}
func (b *Builder) Pow(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypePow, l, r)
}
func (b *Builder) Rem(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeRem, l, r)
}
func (b *Builder) Sub(l, r backends.Op) (backends.Op, error) {
	return b.binary(backends.OpTypeSub, l, r)
}

// supportedOps lists the ops that Builder records.
func supportedOps() []backends.OpType {
	return []backends.OpType{
		backends.OpTypeParameter, backends.OpTypeConstant, backends.OpTypeIdentity, backends.OpTypeIota, backends.OpTypeReshape,
		backends.OpTypeTranspose, backends.OpTypeBroadcastInDim, backends.OpTypeSlice, backends.OpTypeReverse, backends.OpTypeConcatenate,
		backends.OpTypeConvertDType, backends.OpTypeWhere, backends.OpTypeClamp, backends.OpTypeDot, backends.OpTypeDotGeneral,
		backends.OpTypeAbs, backends.OpTypeBitwiseNot, backends.OpTypeCeil, backends.OpTypeCos, backends.OpTypeErf, backends.OpTypeExp,
		backends.OpTypeExpm1, backends.OpTypeFloor, backends.OpTypeIsFinite, backends.OpTypeIsNaN, backends.OpTypeLog, backends.OpTypeLog1p,
		backends.OpTypeLogicalNot, backends.OpTypeLogistic, backends.OpTypeNeg, backends.OpTypeRound, backends.OpTypeRsqrt,
		backends.OpTypeSign, backends.OpTypeSin, backends.OpTypeSqrt, backends.OpTypeTanh, backends.OpTypeAdd, backends.OpTypeBitwiseAnd,
		backends.OpTypeBitwiseOr, backends.OpTypeBitwiseXor, backends.OpTypeDiv, backends.OpTypeEqual, backends.OpTypeGreaterOrEqual,
		backends.OpTypeGreaterThan, backends.OpTypeLessOrEqual, backends.OpTypeLessThan, backends.OpTypeLogicalAnd, backends.OpTypeLogicalOr,
		backends.OpTypeLogicalXor, backends.OpTypeMax, backends.OpTypeMin, backends.OpTypeMul, backends.OpTypeNotEqual, backends.OpTypePow,
		backends.OpTypeRem, backends.OpTypeSub, backends.OpTypeReduceSum, backends.OpTypeReduceProduct, backends.OpTypeReduceMax,
		backends.OpTypeReduceMin, backends.OpTypeReduceLogicalAnd, backends.OpTypeReduceLogicalOr, backends.OpTypeArgMinMax,
		backends.OpTypeGather, backends.OpTypeScatterSum, backends.OpTypeScatterMax, backends.OpTypeScatterMin, backends.OpTypePad,
		backends.OpTypeDynamicSlice, backends.OpTypeDynamicUpdateSlice, backends.OpTypeRNGBitGenerator,
	}
}
