package simd

import "unsafe"

// PanelWidth is the number of columns of B in a packed panel.
const PanelWidth = 16

// blockK is the depth of one pass: a panel's share of it (24 KiB) stays in L1.
const blockK = 384

// blockM is the number of rows of A that one pass keeps in L2.
const blockM = 120

// PackedLen is the number of floats of a packed matrix B [k,n].
func PackedLen(k, n int) int { return (n + PanelWidth - 1) / PanelWidth * PanelWidth * k }

// Pack writes B [k,n], whose element (i,j) is b[i*strideK+j*strideN], as panels of
// 16 columns: panel p holds [k][16] columns 16p…16p+15, missing ones as zeros. dst
// has PackedLen(k,n) floats. Panels p0 ≤ p < p1 only are written.
func Pack(dst, b []float32, k, n, strideK, strideN, p0, p1 int) {
	for p := p0; p < p1; p++ {
		d := dst[p*k*PanelWidth : (p+1)*k*PanelWidth]
		src := b[p*PanelWidth*strideN:]
		w := min(PanelWidth, n-p*PanelWidth)
		switch {
		case w == PanelWidth && strideK == 1:
			pack16(d, src, k, strideN)
		case w == PanelWidth && strideN == 1:
			for i := range k {
				copy(d[i*PanelWidth:(i+1)*PanelWidth], src[i*strideK:])
			}
		default:
			for i := range k {
				row := d[i*PanelWidth : (i+1)*PanelWidth]
				for j := range w {
					row[j] = src[i*strideK+j*strideN]
				}
				clear(row[w:])
			}
		}
	}
}

// Unpack is the inverse of Pack for column j: dst[i] = B(i,j).
func UnpackColumn(dst, packed []float32, k, j int) {
	src := packed[j/PanelWidth*k*PanelWidth+j%PanelWidth:]
	for i := range k {
		dst[i] = src[i*PanelWidth]
	}
}

// packRowsGo is the plain twin of packRows, from column from on.
func packRowsGo(dst, src []float32, rows, from, k, ld int) {
	for i := from; i < k; i++ {
		for r := range rows {
			dst[i*rows+r] = src[r*ld+i]
		}
	}
}

func pack16Go(dst, src []float32, from, k, ld int) {
	for i := from; i < k; i++ {
		row := dst[i*PanelWidth : (i+1)*PanelWidth]
		for j := range row {
			row[j] = src[j*ld+i]
		}
	}
}

// Gemm is a block of a matrix product: C = init + A·B with f32 sums over k in a
// fixed order that depends on K only.
type Gemm struct {
	M, N, K int
	// A(i,k) is A[i*ARow+k*AK].
	A        []float32
	ARow, AK int
	// B is packed when BK is 0; otherwise B(k,j) is B[k*BK+j].
	B  []float32
	BK int
	// Half, when its Format is not 0, is B in packed panels of 16-bit elements. With
	// BlockBF16Pairs A is rounded to bfloat16 too, and Scratch is needed.
	Half HalfPanels
	// Bias, when not nil, is added to every row; N floats.
	Bias []float32
	// Add: C is added to.
	Add bool
	// C(i,j) is C[i*CRow+j].
	C    []float32
	CRow int
	// Shared, when not nil, is A as PackShared packed it, for Run with all rows.
	Shared []float32
	// Scratch, GemmScratch floats, lets Run pack A where that pays; nil = not.
	Scratch []float32
}

// GemmScratch is the number of floats that Gemm.Scratch needs.
const GemmScratch = blockM*blockK + 16

// packPanels is the number of panels from which packing A pays.
const packPanels = 16

var zeros [PanelWidth]float32

// TileRows is the number of rows that the widest kernel of the level in use computes at
// once: work is best cut to multiples of it.
func TileRows() int {
	if Level >= AVX512 {
		return 14 // of 32 columns: 28 of the 32 registers are sums
	}
	return 6
}

// TilePanels is the number of panels that a tile spans: products cut at multiples of it
// run fastest.
func TilePanels() int {
	if Level >= AVX512 {
		return 2
	}
	return 1
}

// Run computes rows m0 ≤ i < m1 and panels p0 ≤ p < p1 (columns 16·p0 … ). It does
// not allocate.
func (g *Gemm) Run(m0, m1, p0, p1 int) {
	if m1 <= m0 || p1 <= p0 {
		return
	}
	if m1 > g.M || p1*PanelWidth > (g.N+PanelWidth-1)/PanelWidth*PanelWidth || m0 < 0 || p0 < 0 {
		panic("simd: gemm block outside the matrix")
	}
	if g.K == 0 {
		g.empty(m0, m1, p0, p1)
		return
	}
	// One bounds check per operand: the kernels see pointers.
	_ = g.A[(m1-1)*g.ARow+(g.K-1)*g.AK]
	_ = g.C[(m1-1)*g.CRow+min(g.N, p1*PanelWidth)-1]
	switch {
	case g.Half.Format == BlockBF16Pairs:
		_, _ = g.Half.Data[p1*g.Half.Format.PanelBytes(g.K)-1], g.Scratch[GemmScratch-1]
	case g.Half.Format != 0:
		_, _ = g.Half.Data[2*p1*PanelWidth*g.K-1], g.Half.Wide[min(g.K, blockK)*PanelWidth-1]
	case g.BK == 0:
		_ = g.B[p1*PanelWidth*g.K-1]
	default:
		_ = g.B[(g.K-1)*g.BK+min(g.N, p1*PanelWidth)-1]
	}
	if g.Bias != nil {
		_ = g.Bias[g.N-1]
	}
	if g.runFast(m0, m1, p0, p1) {
		return
	}
	if g.Half.Format == BlockBF16Pairs {
		g.pairsGo(m0, m1, p0, p1)
		return
	}
	blocks := (m1 - m0 + blockM - 1) / blockM
	for b := range blocks {
		g.block(m0+(m1-m0)*b/blocks, m0+(m1-m0)*(b+1)/blocks, p0, p1)
	}
}

// block runs at most blockM rows.
func (g *Gemm) block(m0, m1, p0, p1 int) {
	var tmp [6 * PanelWidth]float32
	var tail [PanelWidth]float32 // bias of the last panel
	var strip [32 * PanelWidth]float32
	tiles := (m1 - m0 + 5) / 6
	passes := (g.K + blockK - 1) / blockK
	pa, pb, pc := unsafe.Pointer(&g.A[0]), unsafe.Pointer(unsafe.SliceData(g.B)), unsafe.Pointer(&g.C[0])
	for pass := range passes {
		k0 := g.K * pass / passes
		k1 := g.K * (pass + 1) / passes
		packA := g.AK == 1 && p1-p0 >= packPanels && len(g.Scratch) >= GemmScratch && m1-m0 > 1
		if packA {
			for t := range tiles {
				i0 := m0 + (m1-m0)*t/tiles
				packRows(g.Scratch[(i0-m0)*(k1-k0):], g.A[i0*g.ARow+k0:], m0+(m1-m0)*(t+1)/tiles-i0, k1-k0, g.ARow)
			}
		}
		for p := p0; p < p1; p++ {
			w := min(PanelWidth, g.N-p*PanelWidth)
			k, step := k0, k1-k0
			if w < PanelWidth && g.BK != 0 {
				step = len(strip) / PanelWidth // rows of B copied at a time
			}
			for ; k < k1; k += step {
				a := gemmArgs{k: min(step, k1-k), aRow: 4 * g.ARow, aK: 4 * g.AK, bK: 4 * PanelWidth}
				switch {
				case g.Half.Format != 0:
					a.b = g.Half.at(p, k, a.k, g.K)
				case g.BK == 0:
					a.b = unsafe.Add(pb, 4*PanelWidth*(p*g.K+k))
				case w == PanelWidth:
					a.b = unsafe.Add(pb, 4*(k*g.BK+p*PanelWidth))
					a.bK = 4 * g.BK
				default:
					for i := range a.k {
						copy(strip[i*PanelWidth:i*PanelWidth+w], g.B[(k+i)*g.BK+p*PanelWidth:])
					}
					a.b = unsafe.Pointer(&strip)
				}
				first := k == 0 && !g.Add
				for t := range tiles {
					i0 := m0 + (m1-m0)*t/tiles
					rows := m0 + (m1-m0)*(t+1)/tiles - i0
					if packA {
						a.a, a.aRow, a.aK = unsafe.Pointer(&g.Scratch[(i0-m0)*(k1-k0)+(k-k0)*rows]), 4, 4*rows
						a.next, a.step = a.b, 0
						if g.BK == 0 && g.Half.Format == 0 && p+1 < p1 && t < 4 { // four tiles fetch the next panel
							a.next, a.step = unsafe.Add(a.b, 4*PanelWidth*(g.K+t*(k1-k0)/4)), 64
						}
					} else {
						a.a = unsafe.Add(pa, 4*(i0*g.ARow+k*g.AK))
					}
					c := unsafe.Add(pc, 4*(i0*g.CRow+p*PanelWidth))
					if w == PanelWidth {
						a.c, a.cLd = c, 4*g.CRow
					} else {
						for r := range rows {
							copy(tmp[r*PanelWidth:], g.C[(i0+r)*g.CRow+p*PanelWidth:][:w])
						}
						a.c, a.cLd = unsafe.Pointer(&tmp), 4*PanelWidth
					}
					switch {
					case !first:
						a.init, a.initLd = a.c, a.cLd
					case g.Bias == nil:
						a.init, a.initLd = unsafe.Pointer(&zeros), 0
					case w == PanelWidth:
						a.init, a.initLd = unsafe.Pointer(&g.Bias[p*PanelWidth]), 0
					default:
						copy(tail[:], g.Bias[p*PanelWidth:])
						a.init, a.initLd = unsafe.Pointer(&tail), 0
					}
					a.tile(rows)
					if w < PanelWidth {
						for r := range rows {
							copy(g.C[(i0+r)*g.CRow+p*PanelWidth:][:w], tmp[r*PanelWidth:])
						}
					}
				}
			}
		}
	}
}

// empty is the product of a [M,0] and a [0,N] matrix.
func (g *Gemm) empty(m0, m1, p0, p1 int) {
	for i := m0; i < m1; i++ {
		row := g.C[i*g.CRow+p0*PanelWidth : i*g.CRow+min(g.N, p1*PanelWidth)]
		switch {
		case g.Add:
		case g.Bias != nil:
			copy(row, g.Bias[p0*PanelWidth:])
		default:
			clear(row)
		}
	}
}

// tileGo is the plain twin of the microkernels.
func (g *gemmArgs) tileGo(rows int) {
	for r := range rows {
		var sum [PanelWidth]float32
		init := unsafe.Slice((*float32)(unsafe.Add(g.init, r*g.initLd)), PanelWidth)
		copy(sum[:], init)
		for i := range g.k {
			a := *(*float32)(unsafe.Add(g.a, r*g.aRow+i*g.aK))
			b := (*[PanelWidth]float32)(unsafe.Add(g.b, i*g.bK))
			for j := range sum {
				sum[j] += a * b[j]
			}
		}
		*(*[PanelWidth]float32)(unsafe.Add(g.c, r*g.cLd)) = sum
	}
}
