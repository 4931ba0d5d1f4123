//go:build !amd64

package simd

var (
	fastBinary                [opCount]struct{ vv, vs, sv binaryFunc }
	fastUnary                 [opCount]unaryFunc
	fastWhere                 func(dst, cond, a, b *float32, n int)
	fastSum, fastMax, fastMin func(a *float32, n int) float32
	fastBools                 func(dst *float32, src *byte, n int)
)
