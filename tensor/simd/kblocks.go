package simd

import "fmt"

// Panels of GGUF's K-quants hold 16 rows as a sequence of blocks of 256 columns:
//
//	BlockQ4K  16 half scales | 16 half minima | 8 × 16 bytes scales | 8 × 16 bytes
//	          minima | 8 × 256 bytes                              2368 bytes
//	BlockQ6K  16 half scales | 16 × 16 signed bytes scales | 8 × 256 bytes | 8 × 128
//	          bytes                                               3360 bytes
//
// Each of the 8 parts is 32 columns. Byte 16·j+r of a part's 256 bytes holds the low
// four bits of columns j (low nibble) and j+16 (high) of row r, as in Block4. Byte
// 16·t+r of a part's 128 bytes holds the high two bits of columns t, t+8, t+16 and
// t+24, lowest first. An element of BlockQ4K is scale·(part's scale)·q −
// minimum·(part's minimum), one of BlockQ6K is scale·(scale of its 16 columns)·(q−32):
// the values of the GGUF blocks, but for the order of roundings.
const (
	BlockQ4K BlockFormat = 64 + iota
	BlockQ6K
)

const (
	kColumns = 256
	q4kScale = 64 // offsets in a panel's block
	q4kMin   = q4kScale + 8*PanelWidth
	q4kData  = q4kMin + 8*PanelWidth
	q4kBytes = q4kData + 8*256
	q6kScale = 32
	q6kData  = q6kScale + 16*PanelWidth
	q6kHigh  = q6kData + 8*256
	q6kBytes = q6kHigh + 8*128
)

// q4kParts unpacks the 6-bit scale and minimum of part j.
func q4kParts(s []byte, j int) (scale, min byte) {
	if j < 4 {
		return s[j] & 63, s[j+4] & 63
	}
	return s[j+4]&15 | s[j-4]>>6<<4, s[j+4]>>4 | s[j]>>6<<4
}

// importK is ImportBlocks for Q4_K and Q6_K.
func importK(ggufType string, blocks []byte, n, k int, memory func(int) []byte) (BlockFormat, []byte, error) {
	f, size := BlockQ4K, 144
	if ggufType == "Q6_K" {
		f, size = BlockQ6K, 210
	}
	if k%kColumns != 0 || n < 1 || k < 1 || len(blocks) != n*(k/kColumns)*size {
		return 0, nil, fmt.Errorf("simd: %d bytes of %s do not make a matrix [%d,%d]", len(blocks), ggufType, n, k)
	}
	bs, perRow := f.BlockBytes(), k/kColumns
	panels := (n + PanelWidth - 1) / PanelWidth
	out := memory(panels * f.PanelBytes(k))
	for row := range n {
		p := out[row/PanelWidth*f.PanelBytes(k):]
		for b := range perRow {
			src, dst := blocks[(row*perRow+b)*size:][:size], p[b*bs:][:bs]
			if f == BlockQ4K {
				importQ4K(dst, src, row%PanelWidth)
			} else {
				importQ6K(dst, src, row%PanelWidth)
			}
		}
	}
	return f, out, nil
}

func importQ4K(dst, src []byte, lane int) {
	copy(dst[2*lane:2*lane+2], src)
	copy(dst[32+2*lane:34+2*lane], src[2:4])
	for part := range 8 {
		s, m := q4kParts(src[4:16], part)
		dst[q4kScale+16*part+lane], dst[q4kMin+16*part+lane] = s, m
		q := src[16+part/2*32:][:32] // low nibbles are an even part, high ones the next
		shift := part % 2 * 4
		for j := range 16 {
			dst[q4kData+256*part+16*j+lane] = q[j]>>shift&15 | q[j+16]>>shift&15<<4
		}
	}
}

func importQ6K(dst, src []byte, lane int) {
	copy(dst[2*lane:2*lane+2], src[208:210])
	for i := range 16 {
		dst[q6kScale+16*i+lane] = src[192+i]
	}
	var q [kColumns]byte
	for g := range 2 { // 128 columns
		ql, qh := src[64*g:][:64], src[128+32*g:][:32]
		for j, h := range qh {
			o := q[128*g+j:]
			o[0], o[32], o[64], o[96] = ql[j]&15|h&3<<4, ql[32+j]&15|h>>2&3<<4, ql[j]>>4|h>>4&3<<4, ql[32+j]>>4|h>>6<<4
		}
	}
	for part := range 8 {
		c := q[32*part:]
		for j := range 16 {
			dst[q6kData+256*part+16*j+lane] = c[j]&15 | c[j+16]&15<<4
		}
		for t := range 8 {
			dst[q6kHigh+128*part+16*t+lane] = c[t]>>4 | c[t+8]>>4<<2 | c[t+16]>>4<<4 | c[t+24]>>4<<6
		}
	}
}

// q6kAt is the integer of column j, 0 … 31, of a part of row r.
func q6kAt(panel []byte, part, j, r int) int {
	lo := panel[q6kData+256*part+j%16*16+r] >> (j / 16 * 4) & 15
	hi := panel[q6kHigh+128*part+j%8*16+r] >> (j / 8 * 2) & 3
	return int(lo|hi<<4) - 32
}

// kRow writes the 256 columns of row r of one block of a panel, step floats apart.
func kRow(f BlockFormat, dst []float32, panel []byte, r, step int) {
	d := half(panel[2*r:])
	for part := range 8 {
		out := dst[32*part*step:]
		if f == BlockQ4K {
			s, m := d*float32(panel[q4kScale+16*part+r]), half(panel[32+2*r:])*float32(panel[q4kMin+16*part+r])
			for j := range 16 {
				q := panel[q4kData+256*part+16*j+r]
				out[j*step], out[(j+16)*step] = s*float32(q&15)-m, s*float32(q>>4)-m
			}
			continue
		}
		s := [2]float32{d * float32(int8(panel[q6kScale+32*part+r])), d * float32(int8(panel[q6kScale+32*part+16+r]))}
		for j := range 32 {
			out[j*step] = s[j/16] * float32(q6kAt(panel, part, j, r))
		}
	}
}

func expandKGo(f BlockFormat, dst []float32, panel []byte, blocks int) {
	for b := range blocks {
		for r := range PanelWidth {
			kRow(f, dst[b*kColumns*PanelWidth+r:], panel[b*f.BlockBytes():], r, PanelWidth)
		}
	}
}

// matVecKGo is the plain twin of the kernels.
func matVecKGo(f BlockFormat, dst *[PanelWidth]float32, x []float32, panel []byte) {
	var row [kColumns]float32
	for r := range dst {
		dst[r] = 0
		for b := range len(x) / kColumns {
			kRow(f, row[:], panel[b*f.BlockBytes():], r, 1)
			for j, w := range row {
				dst[r] += w * x[b*kColumns+j]
			}
		}
	}
}

// expandKPart is Expand where c0 or n is not a multiple of 256.
func expandKPart(f BlockFormat, dst []float32, panel []byte, c0, n int) {
	var row [kColumns]float32
	for i := 0; i < n; {
		block, at := (c0+i)/kColumns, (c0+i)%kColumns
		take := min(n-i, kColumns-at)
		for r := range PanelWidth {
			kRow(f, row[:], panel[block*f.BlockBytes():], r, 1)
			for j := range take {
				dst[(i+j)*PanelWidth+r] = row[at+j]
			}
		}
		i += take
	}
}

// BlockSums sets sums[i] to the sum of x[32i … 32i+31].
func BlockSums(sums, x []float32) {
	for i := range len(x) / BlockColumns {
		sums[i] = Sum(x[i*BlockColumns : (i+1)*BlockColumns])
	}
}
