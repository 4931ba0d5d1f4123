package simd

import "math"

// ArgMax is the index of the first of the greatest elements, NaN aside; 0 when there is
// none.
func ArgMax(x []float32) int {
	const piece = 1024
	best, top := 0, float32(math.Inf(-1)) // of the pieces
	for at := 0; at < len(x); at += piece {
		switch t := Maximum(x[at:min(len(x), at+piece)]); {
		case t != t:
			return argMaxGo(x)
		case t > top:
			best, top = at, t
		}
	}
	for i, v := range x[best:] {
		if v == top {
			return best + i
		}
	}
	return 0
}

// argMaxGo is ArgMax where NaN is among the elements.
func argMaxGo(x []float32) int {
	best := -1
	for i, v := range x {
		if best < 0 && v == v || best >= 0 && v > x[best] {
			best = i
		}
	}
	return max(best, 0)
}
