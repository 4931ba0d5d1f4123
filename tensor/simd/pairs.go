package simd

import (
	"encoding/binary"
	"math"
)

// Products of bfloat16 pairs, as VDPBF16PS computes them (Intel's manual; measured to be
// so on a Zen 5): to a float32 sum is added the product of the second numbers, then that of
// the first, each addition rounded once, to nearest even. Numbers below 2^-126, whether
// operand or result, are zeros.

// flush makes a subnormal number zero.
func flush(v float32) float32 {
	if u := math.Float32bits(v); u&0x7f800000 == 0 {
		return math.Float32frombits(u & (1 << 31))
	}
	return v
}

// depth is the number of a product's steps along k: of pairs half as many.
func (f BlockFormat) depth(k int) int {
	if f == BlockBF16Pairs {
		return (k + 1) / 2
	}
	return k
}

// pair is columns 2i and 2i+1 of row r of A, rounded to bfloat16; behind an odd K is 0.
func (g *Gemm) pair(r, i int) uint32 {
	at := r*g.ARow + 2*i*g.AK
	u := uint32(narrow(BlockBF16, flush(g.A[at])))
	if 2*i+1 < g.K {
		u |= uint32(narrow(BlockBF16, flush(g.A[at+g.AK]))) << 16
	}
	return u
}

// pairMulAdd is one lane of VDPBF16PS.
func pairMulAdd(sum float32, a, b uint32) float32 {
	sum = mulAddOnce(sum, math.Float32frombits(a&^0xffff), math.Float32frombits(b&^0xffff))
	return mulAddOnce(sum, math.Float32frombits(a<<16), math.Float32frombits(b<<16))
}

// mulAddOnce is sum + a·b rounded once, for a and b of 8 significant bits: their product is
// exact in a float64. Where the sum there is not, it is made odd in its last bit, so that
// rounding it again to float32 is as if it had been exact.
func mulAddOnce(sum, a, b float32) float32 {
	x, y := float64(flush(sum)), float64(flush(a))*float64(flush(b))
	s := x + y
	back := s - x
	if lost := (x - (s - back)) + (y - back); lost != 0 && lost == lost {
		if u := math.Float64bits(s); u&1 == 0 {
			if (lost > 0) == (s > 0) {
				u++
			} else {
				u--
			}
			s = math.Float64frombits(u)
		}
	}
	return flush(float32(s))
}

// pairsGo is Run for BlockBF16Pairs, the plain twin of the kernels.
func (g *Gemm) pairsGo(m0, m1, p0, p1 int) {
	panel := g.Half.Format.PanelBytes(g.K)
	for i := m0; i < m1; i++ {
		for j := p0 * PanelWidth; j < min(g.N, p1*PanelWidth); j++ {
			sum := float32(0)
			switch {
			case g.Add:
				sum = g.C[i*g.CRow+j]
			case g.Bias != nil:
				sum = g.Bias[j]
			}
			b := g.Half.Data[j/PanelWidth*panel+j%PanelWidth*4:]
			for l := range g.Half.Format.depth(g.K) {
				sum = pairMulAdd(sum, g.pair(i, l), binary.LittleEndian.Uint32(b[l*4*PanelWidth:]))
			}
			g.C[i*g.CRow+j] = sum
		}
	}
}
