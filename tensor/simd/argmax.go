package simd

// ArgMax is the index of the first of the greatest elements, NaN aside; 0 when there is
// none.
func ArgMax(x []float32) int {
	const piece = 1024
	best := -1
	for at := 0; at < len(x); at += piece {
		p := x[at:min(len(x), at+piece)]
		if top := Maximum(p); best >= 0 && top <= x[best] { // not so if NaN is among them
			continue
		}
		for i, v := range p {
			if best < 0 && v == v || best >= 0 && v > x[best] {
				best = at + i
			}
		}
	}
	return max(best, 0)
}
