package simd

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Rows16 are rows of activations in 16 bits: for every 32 columns of a row 32
// integers, their common scale (the largest magnitude / 32767) and their sum as
// float32. An element is off by at most 2^-16 of the largest of its 32.
type Rows16 struct {
	K    int // columns, a multiple of 32
	Data []byte
}

const rows16Block = 2*BlockColumns + 8

// Rows16Bytes is the size of one row of k columns.
func Rows16Bytes(k int) int { return k / BlockColumns * rows16Block }

// Set quantises row r. NaN or infinity in a row makes its products
// NaN or infinite.
func (x *Rows16) Set(r int, row []float32) {
	size := Rows16Bytes(x.K)
	dst := x.Data[r*size : (r+1)*size]
	row = row[:x.K]
	if x.K == 0 {
		return
	}
	if quantize16Fast(dst, row) {
		return
	}
	for b := range x.K / BlockColumns {
		v, d := row[b*BlockColumns:][:BlockColumns], dst[b*rows16Block:]
		bits := uint32(0) // compared as integers, so that NaN is the largest
		for _, e := range v {
			bits = max(bits, math.Float32bits(e)&^(1<<31))
		}
		top, inverse := math.Float32frombits(bits), float32(0)
		if top > 1e-30 { // what is all but 0 is taken as 0
			inverse = 32767 / top
		}
		sum := int32(0)
		for j, e := range v {
			q := math.RoundToEven(float64(e * inverse))
			if !(q >= -32768 && q <= 32767) {
				q = 0
			}
			binary.LittleEndian.PutUint16(d[2*j:], uint16(int16(q)))
			sum += int32(int16(q))
		}
		binary.LittleEndian.PutUint32(d[64:], math.Float32bits(top/32767))
		binary.LittleEndian.PutUint32(d[68:], math.Float32bits(float32(sum)))
	}
}

// FetchBytes is what BlockProduct fetches of what comes next, with rows of k columns; 0
// where it does not.
func FetchBytes(k int) int { return k / BlockColumns * fetchBytes() }

// BlockProduct sets dst[i*ld+r] to the product of row m0+i of x, m0+i < m1, and row r
// of a panel of Block4 or Block8, for all 16 rows of the panel. Sums of 32 columns are
// exact, and added up in order: a row's result does not depend on the others. Meanwhile
// FetchBytes(x.K) bytes from next on are fetched into L2 (nil: nothing).
func BlockProduct(f BlockFormat, dst []float32, ld int, x *Rows16, m0, m1 int, panel []byte, next unsafe.Pointer) {
	blocks, size := x.K/BlockColumns, Rows16Bytes(x.K)
	if m1 <= m0 {
		return
	}
	if blocks == 0 || len(panel) < blocks*f.BlockBytes() || len(x.Data) < m1*size || m0 < 0 || len(dst) < (m1-m0-1)*ld+PanelWidth {
		panic("simd: BlockProduct outside its operands")
	}
	most := productRows()
	tiles := (m1 - m0 + most - 1) / most
	for t := range tiles {
		i, end := (m1-m0)*t/tiles, (m1-m0)*(t+1)/tiles
		d, a := dst[i*ld:], x.Data[(m0+i)*size:]
		if !blockProductFast(f, end-i, &d[0], 4*ld, &a[0], size, &panel[0], blocks, (*byte)(next)) {
			for r := range end - i {
				blockProductGo(f, d[r*ld:][:PanelWidth], a[r*size:], panel, blocks)
			}
		}
		next = nil
	}
}

func blockProductGo(f BlockFormat, dst []float32, x, panel []byte, blocks int) {
	clear(dst)
	for b := range blocks {
		xb, p := x[b*rows16Block:], panel[b*f.BlockBytes():]
		scale, sum := math.Float32frombits(binary.LittleEndian.Uint32(xb[64:])), math.Float32frombits(binary.LittleEndian.Uint32(xb[68:]))
		q := unsafe.Slice((*int16)(unsafe.Pointer(&xb[0])), BlockColumns)
		for r := range dst {
			s := int32(0)
			for j, v := range q {
				if f == Block8 {
					s += int32(v) * int32(int8(p[at8(j, r)]))
					continue
				}
				at, shift := at4(j, r)
				s += int32(v) * int32(p[at]>>shift&15)
			}
			t := float32(s) * half(p[2*r:])
			if f == Block4 {
				t += half(p[32+2*r:]) * sum
			}
			dst[r] += t * scale
		}
	}
}
