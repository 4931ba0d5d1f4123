package simd

// packPairs writes dst[k1-k0][16] from pairs k0 … k1 of 8 to 14 rows of A: the first eight
// rows, then the last eight.
func (g *Gemm) packPairs(dst []uint32, i, rows, k0, k1 int) {
	n := 0
	if g.AK == 1 {
		if n = (min(g.K, 2*k1) - 2*k0) / 16 * 8; n > 0 {
			src := g.A[i*g.ARow+2*k0:]
			_, _ = dst[16*n-1], src[(rows-1)*g.ARow+2*n-1]
			packPairsB(&dst[0], &src[0], n/8, 4*g.ARow)
			packPairsB(&dst[8], &src[(rows-8)*g.ARow], n/8, 4*g.ARow)
		}
	}
	for l := k0 + n; l < k1; l++ {
		for r := range 8 {
			d := dst[16*(l-k0)+r:]
			d[0], d[8] = g.pair(i+r, l), g.pair(i+rows-8+r, l)
		}
	}
}

// roundPairs writes len(dst) pairs of row i of A from pair k0 on.
func (g *Gemm) roundPairs(dst []uint32, i, k0 int) {
	n := 0
	if g.AK == 1 {
		src := g.A[i*g.ARow+2*k0 : i*g.ARow+min(g.K, 2*(k0+len(dst)))]
		if n = len(src) / 16 * 8; n > 0 {
			_ = dst[n-1]
			roundPairsB(&dst[0], &src[0], 2*n)
		}
	}
	for l := n; l < len(dst); l++ {
		dst[l] = g.pair(i, k0+l)
	}
}
