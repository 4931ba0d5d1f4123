package simd

import (
	"encoding/binary"
	"fmt"

	"github.com/x448/float16"
)

// BlockFormat is a storage of weight matrices [n,k] in panels of 16 rows, which are
// sequences of blocks of 32 columns:
//
//	Block4  16 half scales | 16 half minima | 4 × 16 words of 32 bits   320 bytes
//	Block8  16 half scales | 8 × 16 words of 32 bits                    544 bytes
//
// Word r of Block4's group g holds eight columns of row r: nibble i column 8g+2i, and
// nibble i+4 column 8g+2i+1, so that a shift and a mask give pairs of neighbours as
// 16-bit integers; an element is scale·nibble + minimum. Word r of Block8's group g
// holds columns 4g, 4g+2, 4g+1, 4g+3, signed; an element is scale·byte. The values are
// exactly those of the GGUF blocks that ImportBlocks reads.
type BlockFormat uint8

const (
	Block4 BlockFormat = 1 + iota
	Block8
)

// BlockColumns is the number of columns of a block of Block4 and Block8.
const BlockColumns = 32

// BlockBytes is the size of a panel's block.
func (f BlockFormat) BlockBytes() int {
	switch f {
	case Block4:
		return 320
	case Block8:
		return 544
	case BlockQ4K:
		return q4kBytes
	case BlockQ6K:
		return q6kBytes
	}
	return 2 * PanelWidth // 16-bit elements
}

// PanelBytes is the size of a panel of k columns.
func (f BlockFormat) PanelBytes(k int) int {
	if f == BlockBF16Pairs {
		k = (k + 1) &^ 1
	}
	return k / f.columns() * f.BlockBytes()
}

// columns is the number of columns of a block.
func (f BlockFormat) columns() int {
	switch f {
	case Block4, Block8:
		return BlockColumns
	case BlockQ4K, BlockQ6K:
		return kColumns
	}
	return 1
}

// ImportBlocks converts GGUF blocks (Q4_0, Q4_1, Q8_0, Q4_K, Q6_K, or elements BF16,
// F16) of a matrix [n,k] to panels; missing rows of the last one are zeros. memory gives
// zeroed bytes for them (nil: make).
func ImportBlocks(ggufType string, blocks []byte, n, k int, memory func(bytes int) []byte) (BlockFormat, []byte, error) {
	if memory == nil {
		memory = func(bytes int) []byte { return make([]byte, bytes) }
	}
	switch ggufType {
	case "Q4_K", "Q6_K":
		return importK(ggufType, blocks, n, k, memory)
	case "BF16", "F16":
		f := BlockBF16
		if ggufType == "F16" {
			f = BlockF16
		}
		panels, err := ImportHalf(f, blocks, n, k, memory)
		return f, panels, err
	}
	size := map[string]int{"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}[ggufType]
	if size == 0 {
		return 0, nil, fmt.Errorf("simd: block type %q is not supported", ggufType)
	}
	if k%BlockColumns != 0 || n < 1 || k < 1 || len(blocks) != n*(k/BlockColumns)*size {
		return 0, nil, fmt.Errorf("simd: %d bytes of %s do not make a matrix [%d,%d]", len(blocks), ggufType, n, k)
	}
	f := Block4
	if ggufType == "Q8_0" {
		f = Block8
	}
	bs, perRow := f.BlockBytes(), k/BlockColumns
	panels := (n + PanelWidth - 1) / PanelWidth
	out := memory(panels * f.PanelBytes(k))
	for row := range n {
		p := out[row/PanelWidth*f.PanelBytes(k):]
		lane := row % PanelWidth
		for b := range perRow {
			src := blocks[(row*perRow+b)*size:][:size]
			dst := p[b*bs:][:bs]
			copy(dst[2*lane:2*lane+2], src)
			switch ggufType {
			case "Q8_0":
				for j, q := range src[2:] {
					dst[at8(j, lane)] = q
				}
				continue
			case "Q4_0": // d·(q−8) = d·q + (−8·d), exact in half precision unless it overflows
				d := float16.Frombits(binary.LittleEndian.Uint16(src)).Float32()
				m := float16.Fromfloat32(-8 * d)
				if m.Float32() != -8*d {
					return 0, nil, fmt.Errorf("simd: scale %g of a Q4_0 block is out of range", d)
				}
				binary.LittleEndian.PutUint16(dst[32+2*lane:], m.Bits())
				src = src[2:]
			case "Q4_1":
				copy(dst[32+2*lane:34+2*lane], src[2:])
				src = src[4:]
			}
			for j, q := range src { // columns j and j+16
				for _, c := range [2]struct {
					j int
					q byte
				}{{j, q & 15}, {j + 16, q >> 4}} {
					at, shift := at4(c.j, lane)
					dst[at] |= c.q << shift
				}
			}
		}
	}
	return f, out, nil
}

// at4 is where Block4 holds column j of row r: a byte and the shift of the nibble.
func at4(j, r int) (at, shift int) {
	i := j%8/2 + j%2*4
	return 64 + j/8*64 + 4*r + i/2, i % 2 * 4
}

// at8 is the byte of Block8 that holds column j of row r.
func at8(j, r int) int { return 32 + j/4*64 + 4*r + j%4/2 + j%2*2 }

// Expand writes columns c0 … c0+n of a panel as dst[n,16], the packed form of Gemm's
// B; both are multiples of 32, or any for 16-bit elements.
func Expand(f BlockFormat, dst []float32, panel []byte, c0, n int) {
	if f.columns() != BlockColumns {
		expandOther(f, dst, panel, c0, n)
		return
	}
	blocks := n / BlockColumns
	if blocks == 0 {
		return
	}
	panel = panel[c0/BlockColumns*f.BlockBytes():]
	_ = panel[blocks*f.BlockBytes()-1]
	_ = dst[n*PanelWidth-1]
	if !expandFast(f, dst, panel, blocks) {
		expandGo(f, dst, panel, blocks)
	}
}

func half(b []byte) float32 { return float16.Frombits(binary.LittleEndian.Uint16(b)).Float32() }

func expandGo(f BlockFormat, dst []float32, panel []byte, blocks int) {
	for range blocks {
		for r := range PanelWidth {
			for j := range BlockColumns {
				dst[j*PanelWidth+r] = f.element(panel, j, r)
			}
		}
		dst, panel = dst[BlockColumns*PanelWidth:], panel[f.BlockBytes():]
	}
}

// element is column j of row r of a panel's block.
func (f BlockFormat) element(block []byte, j, r int) float32 {
	d := half(block[2*r:])
	if f == Block8 {
		return float32(int8(block[at8(j, r)])) * d
	}
	at, shift := at4(j, r)
	return float32(block[at]>>shift&15)*d + half(block[32+2*r:])
}

// BlockRow writes row r of a panel, len(dst) columns.
func BlockRow(f BlockFormat, dst []float32, panel []byte, r int) {
	switch {
	case f.columns() == 1:
		halfRow(f, dst, panel, r)
		return
	case f.columns() == kColumns:
		for b := range len(dst) / kColumns {
			kRow(f, dst[b*kColumns:][:kColumns], panel[b*f.BlockBytes():], r, 1)
		}
		return
	}
	for b := range len(dst) / BlockColumns {
		p := panel[b*f.BlockBytes():]
		d, out := half(p[2*r:]), dst[b*BlockColumns:(b+1)*BlockColumns]
		if f == Block8 {
			for j := range out {
				out[j] = float32(int8(p[at8(j, r)])) * d
			}
			continue
		}
		m := half(p[32+2*r:])
		for j := range out {
			at, shift := at4(j, r)
			out[j] = float32(p[at]>>shift&15)*d + m
		}
	}
}
