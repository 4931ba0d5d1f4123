package native

import (
	"fmt"
	"math"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/dtypes/bfloat16"
	"github.com/x448/float16"
)

// The generic forms of elementwise ops: any dtype, contiguous operands.

type number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// genericFunc computes an op on contiguous arrays.
type genericFunc func(out []byte, in [][]byte)

// genericElementwise returns the function of an elementwise op on dtype d.
func genericElementwise(op backends.OpType, d, outDType dtypes.DType) (genericFunc, error) {
	var f genericFunc
	if op == backends.OpTypeConvertDType {
		f = convertFunc(d, outDType)
	} else {
		switch d {
		case dtypes.Bool:
			f = boolFunc(op)
		case dtypes.Int8:
			f = intFunc[int8](op)
		case dtypes.Int16:
			f = intFunc[int16](op)
		case dtypes.Int32:
			f = intFunc[int32](op)
		case dtypes.Int64:
			f = intFunc[int64](op)
		case dtypes.Uint8:
			f = intFunc[uint8](op)
		case dtypes.Uint16:
			f = intFunc[uint16](op)
		case dtypes.Uint32:
			f = intFunc[uint32](op)
		case dtypes.Uint64:
			f = intFunc[uint64](op)
		case dtypes.Float32:
			f = floatFunc[float32](op)
		case dtypes.Float64:
			f = floatFunc[float64](op)
		}
	}
	if f == nil {
		return nil, fmt.Errorf("native: op %s on %s is not supported", op, d)
	}
	return f, nil
}

func binaryLoop[T, R any](f func(x, y T) R) genericFunc {
	return func(out []byte, in [][]byte) {
		o, x, y := cast[R](out), cast[T](in[0]), cast[T](in[1])
		for i := range o {
			o[i] = f(x[i], y[i])
		}
	}
}

func unaryLoop[T, R any](f func(x T) R) genericFunc {
	return func(out []byte, in [][]byte) {
		o, x := cast[R](out), cast[T](in[0])
		for i := range o {
			o[i] = f(x[i])
		}
	}
}

func compareFunc[T number](op backends.OpType) genericFunc {
	switch op {
	case backends.OpTypeEqual:
		return binaryLoop(func(x, y T) bool { return x == y })
	case backends.OpTypeNotEqual:
		return binaryLoop(func(x, y T) bool { return x != y })
	case backends.OpTypeLessThan:
		return binaryLoop(func(x, y T) bool { return x < y })
	case backends.OpTypeLessOrEqual:
		return binaryLoop(func(x, y T) bool { return x <= y })
	case backends.OpTypeGreaterThan:
		return binaryLoop(func(x, y T) bool { return x > y })
	case backends.OpTypeGreaterOrEqual:
		return binaryLoop(func(x, y T) bool { return x >= y })
	}
	return nil
}

// numberFunc are the ops that integers and floats share.
func numberFunc[T number](op backends.OpType) genericFunc {
	switch op {
	case backends.OpTypeAdd:
		return binaryLoop(func(x, y T) T { return x + y })
	case backends.OpTypeSub:
		return binaryLoop(func(x, y T) T { return x - y })
	case backends.OpTypeMul:
		return binaryLoop(func(x, y T) T { return x * y })
	case backends.OpTypeMax:
		return binaryLoop(func(x, y T) T { return max(x, y) })
	case backends.OpTypeMin:
		return binaryLoop(func(x, y T) T { return min(x, y) })
	case backends.OpTypeNeg:
		return unaryLoop(func(x T) T { return -x })
	case backends.OpTypeAbs:
		return unaryLoop(func(x T) T {
			if x < 0 {
				return -x
			}
			return x
		})
	case backends.OpTypeSign:
		return unaryLoop(func(x T) T {
			switch {
			case x > 0:
				return 1
			case x < 0:
				var zero T
				return zero - 1
			}
			return x
		})
	case backends.OpTypeWhere:
		return whereFunc[T]
	}
	return compareFunc[T](op)
}

func whereFunc[T any](out []byte, in [][]byte) {
	o, c, x, y := cast[T](out), cast[bool](in[0]), cast[T](in[1]), cast[T](in[2])
	for i := range o {
		if c[i] {
			o[i] = x[i]
		} else {
			o[i] = y[i]
		}
	}
}

func intFunc[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](op backends.OpType) genericFunc {
	switch op {
	case backends.OpTypeDiv: // by zero: -1, as XLA
		return binaryLoop(func(x, y T) T {
			if y == 0 {
				return ^T(0)
			}
			return x / y
		})
	case backends.OpTypeRem: // by zero: x
		return binaryLoop(func(x, y T) T {
			if y == 0 {
				return x
			}
			return x % y
		})
	case backends.OpTypePow:
		return binaryLoop(func(x, y T) T {
			r := T(1)
			if y < 0 {
				switch x {
				case 1:
					return 1
				case ^T(0):
					if y&1 == 0 {
						return 1
					}
					return x
				}
				return 0
			}
			for ; y > 0; y >>= 1 {
				if y&1 == 1 {
					r *= x
				}
				x *= x
			}
			return r
		})
	case backends.OpTypeBitwiseAnd:
		return binaryLoop(func(x, y T) T { return x & y })
	case backends.OpTypeBitwiseOr:
		return binaryLoop(func(x, y T) T { return x | y })
	case backends.OpTypeBitwiseXor:
		return binaryLoop(func(x, y T) T { return x ^ y })
	case backends.OpTypeBitwiseNot:
		return unaryLoop(func(x T) T { return ^x })
	}
	return numberFunc[T](op)
}

func mathLoop[T float32 | float64](f func(float64) float64) genericFunc {
	return unaryLoop(func(x T) T { return T(f(float64(x))) })
}

func floatFunc[T float32 | float64](op backends.OpType) genericFunc {
	switch op {
	case backends.OpTypeDiv:
		return binaryLoop(func(x, y T) T { return x / y })
	case backends.OpTypeRem:
		return binaryLoop(func(x, y T) T { return T(math.Mod(float64(x), float64(y))) })
	case backends.OpTypePow:
		return binaryLoop(func(x, y T) T { return T(math.Pow(float64(x), float64(y))) })
	case backends.OpTypeSqrt:
		return mathLoop[T](math.Sqrt)
	case backends.OpTypeRsqrt:
		return mathLoop[T](func(x float64) float64 { return 1 / math.Sqrt(x) })
	case backends.OpTypeExp:
		return mathLoop[T](math.Exp)
	case backends.OpTypeExpm1:
		return mathLoop[T](math.Expm1)
	case backends.OpTypeLog:
		return mathLoop[T](math.Log)
	case backends.OpTypeLog1p:
		return mathLoop[T](math.Log1p)
	case backends.OpTypeTanh:
		return mathLoop[T](math.Tanh)
	case backends.OpTypeErf:
		return mathLoop[T](math.Erf)
	case backends.OpTypeSin:
		return mathLoop[T](math.Sin)
	case backends.OpTypeCos:
		return mathLoop[T](math.Cos)
	case backends.OpTypeFloor:
		return mathLoop[T](math.Floor)
	case backends.OpTypeCeil:
		return mathLoop[T](math.Ceil)
	case backends.OpTypeRound:
		return mathLoop[T](math.RoundToEven)
	case backends.OpTypeLogistic:
		return mathLoop[T](func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })
	case backends.OpTypeAbs:
		return mathLoop[T](math.Abs)
	case backends.OpTypeIsFinite:
		return unaryLoop(func(x T) bool { return x-x == 0 })
	case backends.OpTypeIsNaN:
		return unaryLoop(func(x T) bool { return x != x })
	}
	return numberFunc[T](op)
}

func boolFunc(op backends.OpType) genericFunc {
	switch op {
	case backends.OpTypeLogicalAnd:
		return binaryLoop(func(x, y bool) bool { return x && y })
	case backends.OpTypeLogicalOr:
		return binaryLoop(func(x, y bool) bool { return x || y })
	case backends.OpTypeLogicalXor, backends.OpTypeNotEqual:
		return binaryLoop(func(x, y bool) bool { return x != y })
	case backends.OpTypeEqual:
		return binaryLoop(func(x, y bool) bool { return x == y })
	case backends.OpTypeLogicalNot:
		return unaryLoop(func(x bool) bool { return !x })
	case backends.OpTypeWhere:
		return whereFunc[bool]
	}
	return nil
}

// convertFunc converts between dtypes; 16-bit floats go through float32.
func convertFunc(from, to dtypes.DType) genericFunc {
	switch from {
	case dtypes.Bool:
		return convertTo(to, func(x bool) float64 {
			if x {
				return 1
			}
			return 0
		}, func(x bool) int64 {
			if x {
				return 1
			}
			return 0
		})
	case dtypes.Int8:
		return convertInt[int8](to)
	case dtypes.Int16:
		return convertInt[int16](to)
	case dtypes.Int32:
		return convertInt[int32](to)
	case dtypes.Int64:
		return convertInt[int64](to)
	case dtypes.Uint8:
		return convertInt[uint8](to)
	case dtypes.Uint16:
		return convertInt[uint16](to)
	case dtypes.Uint32:
		return convertInt[uint32](to)
	case dtypes.Uint64:
		if to.IsFloat() {
			return convertTo(to, func(x uint64) float64 { return float64(x) }, nil)
		}
		return convertInt[uint64](to)
	case dtypes.Float32:
		return convertTo(to, func(x float32) float64 { return float64(x) }, nil)
	case dtypes.Float64:
		return convertTo(to, func(x float64) float64 { return x }, nil)
	case dtypes.Float16:
		return convertTo(to, func(x float16.Float16) float64 { return float64(x.Float32()) }, nil)
	case dtypes.BFloat16:
		return convertTo(to, func(x bfloat16.BFloat16) float64 { return float64(x.Float32()) }, nil)
	}
	return nil
}

func convertInt[T number](to dtypes.DType) genericFunc {
	return convertTo(to, func(x T) float64 { return float64(x) }, func(x T) int64 { return int64(x) })
}

// convertTo goes to floats by way of float64, to integers by way of int64.
func convertTo[T any](to dtypes.DType, f func(T) float64, i func(T) int64) genericFunc {
	if i == nil {
		i = func(x T) int64 { return truncate(f(x)) }
	}
	switch to {
	case dtypes.Bool:
		return unaryLoop(func(x T) bool { return f(x) != 0 })
	case dtypes.Int8:
		return unaryLoop(func(x T) int8 { return int8(i(x)) })
	case dtypes.Int16:
		return unaryLoop(func(x T) int16 { return int16(i(x)) })
	case dtypes.Int32:
		return unaryLoop(func(x T) int32 { return int32(i(x)) })
	case dtypes.Int64:
		return unaryLoop(i)
	case dtypes.Uint8:
		return unaryLoop(func(x T) uint8 { return uint8(i(x)) })
	case dtypes.Uint16:
		return unaryLoop(func(x T) uint16 { return uint16(i(x)) })
	case dtypes.Uint32:
		return unaryLoop(func(x T) uint32 { return uint32(i(x)) })
	case dtypes.Uint64:
		return unaryLoop(func(x T) uint64 { return uint64(i(x)) })
	case dtypes.Float16:
		return unaryLoop(func(x T) float16.Float16 { return float16.Fromfloat32(float32(f(x))) })
	case dtypes.BFloat16:
		return unaryLoop(func(x T) bfloat16.BFloat16 { return toBFloat16(float32(f(x))) })
	case dtypes.Float32:
		return unaryLoop(func(x T) float32 { return float32(f(x)) })
	case dtypes.Float64:
		return unaryLoop(f)
	}
	return nil
}

// truncate is the conversion to int64, saturating, NaN as 0.
func truncate(x float64) int64 {
	switch {
	case x != x:
		return 0
	case x >= 1<<63:
		return math.MaxInt64
	case x <= -1<<63:
		return math.MinInt64
	}
	return int64(x)
}

// toBFloat16 rounds to the nearest, ties to even.
func toBFloat16(x float32) bfloat16.BFloat16 {
	b := math.Float32bits(x)
	if x != x {
		return bfloat16.FromBits(uint16(b>>16) | 0x40)
	}
	return bfloat16.FromBits(uint16((b + 0x7fff + b>>16&1) >> 16))
}
