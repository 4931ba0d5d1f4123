package simd

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/x448/float16"
)

// Panels of 16-bit elements are [k][16] little-endian numbers, columns of B as in
// Gemm's packed float32 panels. Products widen them; sums are float32. Panels of
// BlockBF16Pairs are [⌈k/2⌉][16][2], neighbours along k beside each other, the last of an
// odd k beside zeros: what VDPBF16PS takes, for products whose A is rounded too.
const (
	BlockBF16 BlockFormat = 96 + iota
	BlockF16
	BlockBF16Pairs
)

// halfAt is where a panel of 16-bit elements has column i of row r.
func (f BlockFormat) halfAt(i, r int) int {
	if f == BlockBF16Pairs {
		return i/2*4*PanelWidth + 4*r + i%2*2
	}
	return 2 * (i*PanelWidth + r)
}

// ImportHalf makes panels of format f from the little-endian elements of a matrix [n,k],
// of the format's type; memory gives zeroed bytes for them (nil: make).
func ImportHalf(f BlockFormat, data []byte, n, k int, memory func(int) []byte) ([]byte, error) {
	if n < 1 || k < 1 || len(data) != 2*n*k {
		return nil, fmt.Errorf("simd: %d bytes of 16-bit elements do not make a matrix [%d,%d]", len(data), n, k)
	}
	if memory == nil {
		memory = func(bytes int) []byte { return make([]byte, bytes) }
	}
	out := memory(f.HalfBytes(n, k))
	for row := range n {
		dst := out[row/PanelWidth*f.PanelBytes(k):]
		src := data[2*row*k:]
		for i := range k {
			at := f.halfAt(i, row%PanelWidth)
			dst[at], dst[at+1] = src[2*i], src[2*i+1]
		}
	}
	return out, nil
}

// HalfBytes is the size of a matrix [k,n] in 16-bit panels.
func (f BlockFormat) HalfBytes(n, k int) int {
	return (n + PanelWidth - 1) / PanelWidth * f.PanelBytes(k)
}

// PackHalf rounds panels p0 ≤ p < p1 of B [k,n], whose element (i,j) is
// b[i*strideK+j*strideN], to nearest; dst has HalfBytes, zeros at first.
func PackHalf(f BlockFormat, dst []byte, b []float32, k, n, strideK, strideN, p0, p1 int) {
	for j := p0 * PanelWidth; j < min(n, p1*PanelWidth); j++ {
		d := dst[j/PanelWidth*f.PanelBytes(k):]
		for i := range k {
			binary.LittleEndian.PutUint16(d[f.halfAt(i, j%PanelWidth):], narrow(f, b[i*strideK+j*strideN]))
		}
	}
}

// narrow rounds to nearest, ties to even.
func narrow(f BlockFormat, v float32) uint16 {
	if f == BlockF16 {
		return float16.Fromfloat32(v).Bits()
	}
	u := math.Float32bits(v)
	if v != v {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func widen(f BlockFormat, b []byte) float32 {
	if f == BlockF16 {
		return half(b)
	}
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
}

// widenPanel writes columns k0 … k1 of a panel of 16-bit elements as [k1-k0][16]
// floats.
func widenPanel(f BlockFormat, dst []float32, panel []byte, k0, k1 int) {
	src := panel[2*PanelWidth*k0 : 2*PanelWidth*k1]
	dst = dst[:PanelWidth*(k1-k0)]
	if len(dst) == 0 || widenFast(f, dst, src) {
		return
	}
	for i := range dst {
		dst[i] = widen(f, src[2*i:])
	}
}

func halfRow(f BlockFormat, dst []float32, panel []byte, r int) {
	for i := range dst {
		dst[i] = widen(f, panel[f.halfAt(i, r):])
	}
}

func matVecHalfGo(f BlockFormat, dst *[PanelWidth]float32, x []float32, panel []byte) {
	*dst = [PanelWidth]float32{}
	for i, v := range x {
		for r := range dst {
			dst[r] += v * widen(f, panel[2*(i*PanelWidth+r):])
		}
	}
}

// MatVec sets dst[r] to the product of row r of a panel and x, for the formats that
// BlockProduct does not take: K-quants and 16-bit elements; see ByFloats. len(x) is the
// number of columns; sums are BlockSums of x, which BlockQ4K needs.
func MatVec(f BlockFormat, dst *[PanelWidth]float32, x, sums []float32, panel []byte) {
	if !f.ByFloats() || f == BlockBF16Pairs || len(x) == 0 || len(panel) < f.PanelBytes(len(x)) || len(x)%f.columns() != 0 || (f == BlockQ4K && len(sums) < len(x)/BlockColumns) {
		panic("simd: MatVec on a short panel")
	}
	switch {
	case matVecFast(f, dst, x, sums, panel):
	case f.columns() == 1:
		matVecHalfGo(f, dst, x, panel)
	default:
		matVecKGo(f, dst, x, panel)
	}
}

// ByFloats tells whether products with the format are MatVec or Expand and Gemm, in
// float32 (BlockBF16Pairs: Gemm alone); the others are BlockProduct.
func (f BlockFormat) ByFloats() bool { return f >= BlockQ4K }

// expandOther is Expand for what is not in blocks of 32 columns.
func expandOther(f BlockFormat, dst []float32, panel []byte, c0, n int) {
	if n <= 0 {
		return
	}
	switch {
	case f == BlockBF16Pairs:
		for i := range n {
			for r := range PanelWidth {
				dst[i*PanelWidth+r] = widen(f, panel[f.halfAt(c0+i, r):])
			}
		}
		return
	case f.columns() == 1:
		widenPanel(f, dst, panel, c0, c0+n)
		return
	}
	if c0%kColumns != 0 || n%kColumns != 0 {
		expandKPart(f, dst, panel, c0, n)
		return
	}
	blocks := n / kColumns
	panel = panel[f.PanelBytes(c0):f.PanelBytes(c0+n)]
	_ = dst[n*PanelWidth-1]
	if !expandKFast(f, dst, panel, blocks) {
		expandKGo(f, dst, panel, blocks)
	}
}

// HalfPanels is a packed matrix B in 16-bit elements, for Gemm.
type HalfPanels struct {
	Format BlockFormat // BlockBF16, BlockF16 or BlockBF16Pairs
	Data   []byte
	Wide   []float32 // scratch: min(K, 384)·16 floats; not for pairs
}

// at widens rows k … k+n of panel p of a matrix with K rows.
func (h *HalfPanels) at(p, k, n, kAll int) unsafe.Pointer {
	widenPanel(h.Format, h.Wide, h.Data[2*PanelWidth*p*kAll:], k, k+n)
	return unsafe.Pointer(&h.Wide[0])
}
