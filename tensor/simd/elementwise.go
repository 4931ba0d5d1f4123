package simd

import "math"

// Op is an elementwise operation on float32 vectors. Truth values are 0 and 1.
type Op uint8

// Binary operations, comparisons, then unary ones. Max and Min are NaN when an
// operand is. Exp is zero below 2^-126; Tanh, Erf, Gelu and Logistic are within
// 4e-7 of the exact value (Gelu: times |x|). Gelu is x·Φ(x).
const (
	Add Op = iota
	Sub
	Mul
	Div
	Max
	Min
	Pow
	Rem
	Equal
	NotEqual
	Less
	LessEqual
	Greater
	GreaterEqual
	And
	Or
	Xor
	Neg
	Abs
	Sqrt
	Rsqrt
	Exp
	Tanh
	Erf
	Logistic
	Gelu
	Log
	Log1p
	Expm1
	Sin
	Cos
	Floor
	Ceil
	Round
	Sign
	Not
	IsFinite
	IsNaN
	opCount
)

// IsBinary tells whether the operation takes two operands.
func (o Op) IsBinary() bool { return o <= Xor }

// Binary sets dst[i] = op(a[i], b[i]). dst may be a or b; all have len(dst) elements
// or more. It panics when op is not binary.
func Binary(op Op, dst, a, b []float32) {
	n := len(dst)
	if n == 0 {
		return
	}
	a, b = a[:n], b[:n]
	if f := fast.binary[op].vv; f != nil {
		f(&dst[0], &a[0], &b[0], n)
		return
	}
	f := plainBinary[op]
	for i, x := range a {
		dst[i] = f(x, b[i])
	}
}

// BinaryVS sets dst[i] = op(a[i], *s).
func BinaryVS(op Op, dst, a []float32, s *float32) {
	n := len(dst)
	if n == 0 {
		return
	}
	a = a[:n]
	if f := fast.binary[op].vs; f != nil {
		f(&dst[0], &a[0], s, n)
		return
	}
	f, y := plainBinary[op], *s
	for i, x := range a {
		dst[i] = f(x, y)
	}
}

// BinarySV sets dst[i] = op(*s, b[i]).
func BinarySV(op Op, dst []float32, s *float32, b []float32) {
	n := len(dst)
	if n == 0 {
		return
	}
	b = b[:n]
	if f := fast.binary[op].sv; f != nil {
		f(&dst[0], s, &b[0], n)
		return
	}
	f, x := plainBinary[op], *s
	for i, y := range b {
		dst[i] = f(x, y)
	}
}

// Unary sets dst[i] = op(a[i]). dst may be a.
func Unary(op Op, dst, a []float32) {
	n := len(dst)
	if n == 0 {
		return
	}
	a = a[:n]
	if f := fast.unary[op]; f != nil {
		f(&dst[0], &a[0], n)
		return
	}
	f := plainUnary[op]
	for i, x := range a {
		dst[i] = f(x)
	}
}

// Where sets dst[i] = a[i] where cond[i] ≠ 0, else b[i].
func Where(dst, cond, a, b []float32) {
	n := len(dst)
	if n == 0 {
		return
	}
	cond, a, b = cond[:n], a[:n], b[:n]
	if fast.where != nil {
		fast.where(&dst[0], &cond[0], &a[0], &b[0], n)
		return
	}
	for i, c := range cond {
		if c != 0 {
			dst[i] = a[i]
		} else {
			dst[i] = b[i]
		}
	}
}

// Sum is the sum of a, 0 for none; the order of additions depends on len(a) only.
func Sum(a []float32) float32 {
	if len(a) > 0 && fast.sum != nil {
		return fast.sum(&a[0], len(a))
	}
	var s [8]float32
	for i, x := range a {
		s[i%8] += x
	}
	return (s[0] + s[4]) + (s[2] + s[6]) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// Maximum is the largest of a, -Inf for none, NaN if there is one.
func Maximum(a []float32) float32 {
	if len(a) > 0 && fast.max != nil {
		return fast.max(&a[0], len(a))
	}
	m := float32(math.Inf(-1))
	for _, x := range a {
		m = max(m, x)
	}
	return m
}

// Minimum is the smallest of a, +Inf for none, NaN if there is one.
func Minimum(a []float32) float32 {
	if len(a) > 0 && fast.min != nil {
		return fast.min(&a[0], len(a))
	}
	m := float32(math.Inf(1))
	for _, x := range a {
		m = min(m, x)
	}
	return m
}

func truth(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

var plainBinary = [opCount]func(x, y float32) float32{
	Add:          func(x, y float32) float32 { return x + y },
	Sub:          func(x, y float32) float32 { return x - y },
	Mul:          func(x, y float32) float32 { return x * y },
	Div:          func(x, y float32) float32 { return x / y },
	Max:          func(x, y float32) float32 { return max(x, y) },
	Min:          func(x, y float32) float32 { return min(x, y) },
	Pow:          func(x, y float32) float32 { return float32(math.Pow(float64(x), float64(y))) },
	Rem:          func(x, y float32) float32 { return float32(math.Mod(float64(x), float64(y))) },
	Equal:        func(x, y float32) float32 { return truth(x == y) },
	NotEqual:     func(x, y float32) float32 { return truth(x != y) },
	Less:         func(x, y float32) float32 { return truth(x < y) },
	LessEqual:    func(x, y float32) float32 { return truth(x <= y) },
	Greater:      func(x, y float32) float32 { return truth(x > y) },
	GreaterEqual: func(x, y float32) float32 { return truth(x >= y) },
	And:          func(x, y float32) float32 { return truth(x != 0 && y != 0) },
	Or:           func(x, y float32) float32 { return truth(x != 0 || y != 0) },
	Xor:          func(x, y float32) float32 { return truth((x != 0) != (y != 0)) },
}

func wide(f func(float64) float64) func(float32) float32 {
	return func(x float32) float32 { return float32(f(float64(x))) }
}

var plainUnary = [opCount]func(float32) float32{
	Neg:  func(x float32) float32 { return -x },
	Abs:  wide(math.Abs),
	Sqrt: wide(math.Sqrt),
	Rsqrt: func(x float32) float32 {
		return 1 / float32(math.Sqrt(float64(x)))
	},
	Exp: func(x float32) float32 {
		if y := float32(math.Exp(float64(x))); y >= 0x1p-126 || y != y {
			return y
		}
		return 0
	},
	Tanh:     wide(math.Tanh),
	Erf:      wide(math.Erf),
	Logistic: wide(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }),
	Gelu:     wide(func(x float64) float64 { return x * 0.5 * (1 + math.Erf(x/math.Sqrt2)) }),
	Log:      wide(math.Log),
	Log1p:    wide(math.Log1p),
	Expm1:    wide(math.Expm1),
	Sin:      wide(math.Sin),
	Cos:      wide(math.Cos),
	Floor:    wide(math.Floor),
	Ceil:     wide(math.Ceil),
	Round:    wide(math.RoundToEven),
	Sign: func(x float32) float32 {
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return x // ±0, NaN
	},
	Not:      func(x float32) float32 { return truth(x == 0) },
	IsFinite: func(x float32) float32 { return truth(x-x == 0) },
	IsNaN:    func(x float32) float32 { return truth(x != x) },
}

// elementwiseKernels are the loops of one level; nil where there is none.
type elementwiseKernels struct {
	binary        [opCount]struct{ vv, vs, sv binaryFunc }
	unary         [opCount]unaryFunc
	where         func(dst, cond, a, b *float32, n int)
	sum, max, min func(a *float32, n int) float32
	bools         func(dst *float32, src *byte, n int) // n a multiple of 8
}

// fast are the loops in use.
var fast = &elementwiseKernels{}

type (
	binaryFunc func(dst, a, b *float32, n int)
	unaryFunc  func(dst, a *float32, n int)
)

// BoolsToFloat sets dst[i] = 1 where src[i], a byte that is 0 or 1, is 1, else 0.
func BoolsToFloat(dst []float32, src []byte) {
	src = src[:len(dst)]
	n := 0
	if fast.bools != nil && len(dst) >= 8 {
		n = len(dst) &^ 7
		fast.bools(&dst[0], &src[0], n)
	}
	for i := n; i < len(dst); i++ {
		dst[i] = float32(src[i])
	}
}
