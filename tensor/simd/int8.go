package simd

import (
	"math"
	"unsafe"
)

// Int8Weights is a matrix B [k,n] in 7-bit integers, one scale per column: B(i,j) ≈
// Scale[j]·q, |q| ≤ 63. With rows of A in 7 bits without sign, sums of four products
// fit 16 bits, which is what VPMADDUBSW gives without VNNI. With VNNI both have 8 bits.
type Int8Weights struct {
	N, K   int
	Data   []int8    // panels of 16 columns: [K8][2][16][4]
	Scale  []float32 // [panels·16]
	Sums   []int32   // [panels·16] sums of a column's integers
	panels int
}

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

// NewInt8Weights makes the memory of a matrix [k,n], for Quantize.
func NewInt8Weights(k, n int) *Int8Weights {
	panels := (n + PanelWidth - 1) / PanelWidth
	return &Int8Weights{N: n, K: k, panels: panels, Data: make([]int8, panels*PanelWidth*int8K(k)+2048), Scale: make([]float32, panels*PanelWidth), Sums: make([]int32, panels*PanelWidth)}
}

// QuantizeWeights quantises B [k,n], whose element (i,j) is b[i*strideK+j*strideN].
func QuantizeWeights(b []float32, k, n, strideK, strideN int) *Int8Weights {
	w := NewInt8Weights(k, n)
	w.Quantize(b, strideK, strideN, 0, w.panels)
	return w
}

// Quantize fills panels p0 ≤ p < p1 from B, whose element (i,j) is
// b[i*strideK+j*strideN].
func (w *Int8Weights) Quantize(b []float32, strideK, strideN, p0, p1 int) {
	limit, _ := int8Limits()
	for j := p0 * PanelWidth; j < min(w.N, p1*PanelWidth); j++ {
		largest := float32(0)
		for i := range w.K {
			largest = max(largest, float32(math.Abs(float64(b[i*strideK+j*strideN]))))
		}
		w.Sums[j] = 0
		if largest == 0 || largest != largest || math.IsInf(float64(largest), 0) {
			w.Scale[j] = largest // 0, or what makes the column not a number
			continue
		}
		inv := limit / largest
		w.Scale[j] = largest / limit
		p := w.Data[j/PanelWidth*PanelWidth*int8K(w.K):]
		for i := range w.K {
			q := int8(math.RoundToEven(float64(b[i*strideK+j*strideN] * inv)))
			p[(i/4*PanelWidth+j%PanelWidth)*4+i%4] = q
			w.Sums[j] += int32(q)
		}
	}
}

// Int8Rows are rows of A in 7 bits without sign, 8 with VNNI: A(i,·) ≈ Scale[i]·(q − Zero[i]).
type Int8Rows struct {
	K     int
	Data  []byte // [rows, RowBytes(K)]
	Scale []float32
	Zero  []int32
}

// RowBytes is the length of a quantised row of k elements.
func RowBytes(k int) int { return (k + 31) / 32 * 32 }

// Set quantises x as row i. The result depends on x only.
func (q *Int8Rows) Set(i int, x []float32) {
	lo, hi := min(Minimum(x), 0), max(Maximum(x), 0)
	row := q.Data[i*RowBytes(q.K) : (i+1)*RowBytes(q.K)]
	clear(row[len(x):])
	_, limit := int8Limits()
	scale := (hi - lo) / limit
	if !(scale > 0) || math.IsInf(float64(scale), 0) { // all zeros, or not finite
		clear(row)
		q.Scale[i], q.Zero[i] = 0, 0
		if scale != 0 {
			q.Scale[i] = float32(math.NaN())
		}
		return
	}
	inv := 1 / scale
	if math.IsInf(float64(inv), 0) {
		scale, inv = 0, 0
	}
	zero := float32(math.RoundToEven(float64(-lo * inv)))
	q.Scale[i], q.Zero[i] = scale, int32(zero)
	quantizeRow(row[:len(x)], x, inv, zero, limit)
}

func quantizeGo(dst []byte, x []float32, inv, zero, limit float32) {
	for i, v := range x {
		dst[i] = byte(max(0, min(limit, float32(math.RoundToEven(float64(v*inv+zero))))))
	}
}

// Run computes C = A·B for rows m0 … m1 and panels p0 … p1: element (i,j) of the
// product goes to c[(i-m0)*cRow + j-16*p0]. A row of C depends on its row of A only.
func (w *Int8Weights) Run(q *Int8Rows, c []float32, cRow, m0, m1, p0, p1 int) {
	if m1 <= m0 || p1 <= p0 {
		return
	}
	rb, k := RowBytes(w.K), int8K(w.K)
	if q.K != w.K || m0 < 0 || p0 < 0 || p1 > w.panels || len(q.Data) < m1*rb || len(q.Scale) < m1 || len(q.Zero) < m1 {
		panic("simd: int8 product outside the matrix")
	}
	_ = c[(m1-1-m0)*cRow+min(w.N, p1*PanelWidth)-1-p0*PanelWidth]
	if w.runFast(q, c, cRow, m0, m1, p0, p1) {
		return
	}
	var tmp [4 * PanelWidth]float32
	for p := p0; p < p1; p++ {
		width := min(PanelWidth, w.N-p*PanelWidth)
		for i := m0; i < m1; i += 4 {
			rows := min(4, m1-i)
			a := int8Args{k8: k / 8, a: unsafe.Pointer(&q.Data[i*rb]), aRow: rb, b: unsafe.Pointer(&w.Data[p*PanelWidth*k]), sums: unsafe.Pointer(&w.Sums[p*PanelWidth]),
				scale: unsafe.Pointer(&w.Scale[p*PanelWidth]), zero: unsafe.Pointer(&q.Zero[i]), rowScale: unsafe.Pointer(&q.Scale[i])}
			out := c[(i-m0)*cRow+(p-p0)*PanelWidth:]
			if width == PanelWidth {
				a.c, a.cLd = unsafe.Pointer(&out[0]), 4*cRow
				a.tile(rows)
				continue
			}
			a.c, a.cLd = unsafe.Pointer(&tmp), 4*PanelWidth
			a.tile(rows)
			for r := range rows {
				copy(out[r*cRow:r*cRow+width], tmp[r*PanelWidth:])
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
		zero := *(*int32)(unsafe.Add(g.zero, 4*r))
		scale := *(*float32)(unsafe.Add(g.rowScale, 4*r))
		for j := range c {
			var s int32
			for i, x := range a {
				s += int32(x) * int32(b[(i/4*PanelWidth+j)*4+i%4])
			}
			s -= zero * (*[PanelWidth]int32)(g.sums)[j]
			c[j] = float32(s) * (*[PanelWidth]float32)(g.scale)[j] * scale
		}
	}
}
