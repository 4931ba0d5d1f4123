package simd

import (
	"math"
	"unsafe"
)

// Int8Weights is a matrix B [k,n] in 7-bit integers, one scale per column and group of
// Int8Group elements along k: B(i,j) ≈ Scale[i/Int8Group][j]·q, |q| ≤ 63. With rows of A
// in 7 bits without sign, sums of four products fit 16 bits, which is what VPMADDUBSW
// gives without VNNI. With VNNI both have 8 bits.
type Int8Weights struct {
	N, K int
	// Data has panels of 16 columns; a panel has a block for each group, so that a product
	// reads memory in order: 16 sums of the columns' integers (int32), the integers
	// [steps of 8][2][16][4], 16 scales (float32).
	Data   []byte
	panels int
}

// Int8Group is the number of elements along k that share a scale, of weights and of
// activations: an outlier costs its group precision, not its row or column. It is a
// multiple of 8; a group more costs a conversion of the sums. The AVX-512 kernels know it.
const Int8Group = 128

// int8Groups is the number of groups of k elements.
func int8Groups(k int) int { return (k + Int8Group - 1) / Int8Group }

// int8Limits are the largest magnitude of a weight and the largest activation at the
// level in use.
func int8Limits() (weight, row float32) {
	if Level >= VNNI {
		return 127, 255
	}
	return 63, 127
}

// int8K is k rounded up to the groups of 8 that the kernels take.
func int8K(k int) int { return (k + 7) / 8 * 8 }

// int8Ends is what a block has beside the integers.
const int8Ends = 2 * 4 * PanelWidth

// int8Panel is the number of bytes of a panel.
func int8Panel(k int) int { return int8K(k)*PanelWidth + int8Groups(k)*int8Ends }

// NewInt8Weights makes a matrix [k,n], for Quantize, of memory from alloc: zeroed bytes at
// the beginning of a cache line.
func NewInt8Weights(k, n int, alloc func(int) []byte) *Int8Weights {
	return &Int8Weights{N: n, K: k, panels: (n + PanelWidth - 1) / PanelWidth, Data: alloc(Int8Bytes(k, n))}
}

// Int8Bytes is what a matrix [k,n] takes in memory.
func Int8Bytes(k, n int) int { return (n + PanelWidth - 1) / PanelWidth * int8Panel(k) }

// block is the block of group g of panel p.
func (w *Int8Weights) block(p, g int) (sums *[PanelWidth]int32, ints []int8, scale *[PanelWidth]float32) {
	k := min(int8K(w.K)-g*Int8Group, Int8Group)
	at := p*int8Panel(w.K) + g*(Int8Group*PanelWidth+int8Ends)
	b := w.Data[at : at+k*PanelWidth+int8Ends]
	head := unsafe.Pointer(&b[0])
	return (*[PanelWidth]int32)(head), unsafe.Slice((*int8)(unsafe.Add(head, 4*PanelWidth)), k*PanelWidth), (*[PanelWidth]float32)(unsafe.Add(head, 4*PanelWidth+k*PanelWidth))
}

// QuantizeWeights quantises B [k,n], whose element (i,j) is b[i*strideK+j*strideN].
func QuantizeWeights(b []float32, k, n, strideK, strideN int) *Int8Weights {
	w := NewInt8Weights(k, n, func(n int) []byte { return make([]byte, n) })
	w.Quantize(b, strideK, strideN, 0, w.panels)
	return w
}

// Quantize fills panels p0 ≤ p < p1 from B, whose element (i,j) is
// b[i*strideK+j*strideN].
func (w *Int8Weights) Quantize(b []float32, strideK, strideN, p0, p1 int) {
	limit, _ := int8Limits()
	for j := p0 * PanelWidth; j < min(w.N, p1*PanelWidth); j++ {
		col := j % PanelWidth
		for g := range int8Groups(w.K) {
			sums, ints, scale := w.block(j/PanelWidth, g)
			from, to := g*Int8Group, min(w.K, (g+1)*Int8Group)
			largest := float32(0)
			for i := from; i < to; i++ {
				largest = max(largest, float32(math.Abs(float64(b[i*strideK+j*strideN]))))
			}
			sums[col], scale[col] = 0, largest // 0, or what makes the column not a number
			if largest == 0 || largest != largest || math.IsInf(float64(largest), 0) {
				continue
			}
			inv := limit / largest
			scale[col] = largest / limit
			for i := from; i < to; i++ {
				q := int8(math.RoundToEven(float64(b[i*strideK+j*strideN] * inv)))
				ints[((i-from)/4*PanelWidth+col)*4+i%4] = q
				sums[col] += int32(q)
			}
		}
	}
}

// Int8Rows are rows of A in 7 bits without sign, 8 with VNNI, by groups of Int8Group:
// A(i,l) ≈ Scale[g·M+i]·(q − Zero[g·M+i]) for l of group g.
type Int8Rows struct {
	M, K  int
	Data  []byte // [M, RowBytes(K)]
	Scale []float32
	Zero  []int32
}

// RowBytes is the length of a quantised row of k elements.
func RowBytes(k int) int { return (k + 31) / 32 * 32 }

// Resize makes room for m rows of k elements; what was there is lost.
func (q *Int8Rows) Resize(m, k int) {
	q.M, q.K = m, k
	if n := m * RowBytes(k); len(q.Data) < n {
		q.Data = make([]byte, n)
	}
	if n := m * int8Groups(k); len(q.Scale) < n {
		q.Scale, q.Zero = make([]float32, n), make([]int32, n)
	}
}

// Set quantises x as row i. The result depends on x only.
func (q *Int8Rows) Set(i int, x []float32) {
	row := q.Data[i*RowBytes(q.K) : (i+1)*RowBytes(q.K)]
	clear(row[len(x):])
	for g := 0; g < int8Groups(len(x)); g++ {
		if g += quantizeGroups(row[g*Int8Group:], x[g*Int8Group:], q.Scale[g*q.M+i:], q.Zero[g*q.M+i:], q.M); g == int8Groups(len(x)) {
			break
		}
		end := min(len(x), (g+1)*Int8Group)
		q.Scale[g*q.M+i], q.Zero[g*q.M+i] = quantizeGroup(row[g*Int8Group:end], x[g*Int8Group:end])
	}
}

func quantizeGroup(dst []byte, x []float32) (scale float32, zero int32) {
	lo, hi := min(Minimum(x), 0), max(Maximum(x), 0)
	_, limit := int8Limits()
	scale = (hi - lo) / limit
	if !(scale > 0) || math.IsInf(float64(scale), 0) { // all zeros, or not finite
		clear(dst)
		if scale != 0 {
			return float32(math.NaN()), 0
		}
		return 0, 0
	}
	inv := 1 / scale
	if math.IsInf(float64(inv), 0) {
		scale, inv = 0, 0
	}
	z := float32(math.RoundToEven(float64(-lo * inv)))
	quantizeRow(dst, x, inv, z, limit)
	return scale, int32(z)
}

func quantizeGo(dst []byte, x []float32, inv, zero, limit float32) {
	for i, v := range x {
		dst[i] = byte(max(0, min(limit, float32(math.RoundToEven(float64(v*inv+zero))))))
	}
}

// Run computes C = bias + A·B for rows m0 … m1 and panels p0 … p1: element (i,j) of the
// product goes to c[(i-m0)*cRow + j-16*p0]. bias, N floats, may be nil. Groups are added
// in order, so that a row of C depends on its row of A only.
func (w *Int8Weights) Run(q *Int8Rows, bias, c []float32, cRow, m0, m1, p0, p1 int) {
	if m1 <= m0 || p1 <= p0 {
		return
	}
	rb := RowBytes(w.K)
	groups := int8Groups(w.K)
	if q.K != w.K || m0 < 0 || m1 > q.M || p0 < 0 || p1 > w.panels || len(q.Data) < m1*rb || len(q.Scale) < groups*q.M || len(q.Zero) < groups*q.M || bias != nil && len(bias) < w.N {
		panic("simd: int8 product outside the matrix")
	}
	_ = c[(m1-1-m0)*cRow+min(w.N, p1*PanelWidth)-1-p0*PanelWidth]
	if w.runFast(q, bias, c, cRow, m0, m1, p0, p1) {
		return
	}
	var tmp [4 * PanelWidth]float32
	for p := p0; p < p1; p++ {
		width := min(PanelWidth, w.N-p*PanelWidth)
		var first [PanelWidth]float32
		if bias != nil {
			copy(first[:], bias[p*PanelWidth:])
		}
		for g := range groups {
			sums, ints, scale := w.block(p, g)
			a := int8Args{k8: len(ints) / 8 / PanelWidth, aRow: rb, b: unsafe.Pointer(&ints[0]), sums: unsafe.Pointer(sums), scale: unsafe.Pointer(scale)}
			for i := m0; i < m1; i += 4 {
				rows := min(4, m1-i)
				a.a, a.zero, a.rowScale = unsafe.Pointer(&q.Data[i*rb+g*Int8Group]), unsafe.Pointer(&q.Zero[g*q.M+i]), unsafe.Pointer(&q.Scale[g*q.M+i])
				out := c[(i-m0)*cRow+(p-p0)*PanelWidth:]
				a.c, a.cLd = unsafe.Pointer(&out[0]), 4*cRow
				if width < PanelWidth {
					a.c, a.cLd = unsafe.Pointer(&tmp), 4*PanelWidth
					for r := range rows {
						copy(tmp[r*PanelWidth:], out[r*cRow:r*cRow+width])
					}
				}
				a.init, a.initLd = a.c, a.cLd
				if g == 0 {
					a.init, a.initLd = unsafe.Pointer(&first), 0
				}
				a.tile(rows)
				if width < PanelWidth {
					for r := range rows {
						copy(out[r*cRow:r*cRow+width], tmp[r*PanelWidth:])
					}
				}
			}
		}
	}
}

// tileGo is the plain twin of the kernels.
func (g *int8Args) tileGo(rows int) {
	for r := range rows {
		a := unsafe.Slice((*byte)(unsafe.Add(g.a, r*g.aRow)), 8*g.k8)
		b := unsafe.Slice((*int8)(g.b), 8*g.k8*PanelWidth)
		c := (*[PanelWidth]float32)(unsafe.Add(g.c, r*g.cLd))
		init := (*[PanelWidth]float32)(unsafe.Add(g.init, r*g.initLd))
		zero := *(*int32)(unsafe.Add(g.zero, 4*r))
		scale := *(*float32)(unsafe.Add(g.rowScale, 4*r))
		for j := range c {
			var s int32
			for i, x := range a {
				s += int32(x) * int32(b[(i/4*PanelWidth+j)*4+i%4])
			}
			s -= zero * (*[PanelWidth]int32)(g.sums)[j]
			c[j] = init[j] + float32(s)*(*[PanelWidth]float32)(g.scale)[j]*scale
		}
	}
}
