package weights

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Dequantize converts stored elements to float32; len(dst) is the number of
// elements. The block layouts are those of ggml (ggml-common.h).
func Dequantize(dt DType, b []byte, dst []float32) error {
	bl, ok := block[dt]
	if !ok {
		return fmt.Errorf("storage type %s is not read", dt)
	}
	if len(dst)%bl.n != 0 || len(b) != len(dst)/bl.n*bl.bytes {
		return fmt.Errorf("%d bytes of %s do not make %d elements", len(b), dt, len(dst))
	}
	le := binary.LittleEndian
	switch dt {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(b[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = f16(b[2*i:])
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16)
		}
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(b[8*i:])))
		}
	case I8:
		for i := range dst {
			dst[i] = float32(int8(b[i]))
		}
	case U8, Bool:
		for i := range dst {
			dst[i] = float32(b[i])
		}
	case I16:
		for i := range dst {
			dst[i] = float32(int16(le.Uint16(b[2*i:])))
		}
	case I32:
		for i := range dst {
			dst[i] = float32(int32(le.Uint32(b[4*i:])))
		}
	case I64:
		for i := range dst {
			dst[i] = float32(int64(le.Uint64(b[8*i:])))
		}
	default:
		f := blockDequant[dt]
		for i := 0; i < len(dst); i += bl.n {
			f(b[:bl.bytes], dst[i:i+bl.n])
			b = b[bl.bytes:]
		}
	}
	return nil
}

var blockDequant = map[DType]func(b []byte, dst []float32){
	Q4_0: func(b []byte, dst []float32) {
		d := f16(b)
		for j, q := range b[2:18] {
			dst[j] = float32(int(q&15)-8) * d
			dst[j+16] = float32(int(q>>4)-8) * d
		}
	},
	Q4_1: func(b []byte, dst []float32) {
		d, m := f16(b), f16(b[2:])
		for j, q := range b[4:20] {
			dst[j] = float32(q&15)*d + m
			dst[j+16] = float32(q>>4)*d + m
		}
	},
	Q5_0: func(b []byte, dst []float32) {
		d := f16(b)
		h := binary.LittleEndian.Uint32(b[2:])
		for j, q := range b[6:22] {
			dst[j] = float32(int(uint32(q&15)|h>>j&1<<4)-16) * d
			dst[j+16] = float32(int(uint32(q>>4)|h>>(j+16)&1<<4)-16) * d
		}
	},
	Q5_1: func(b []byte, dst []float32) {
		d, m := f16(b), f16(b[2:])
		h := binary.LittleEndian.Uint32(b[4:])
		for j, q := range b[8:24] {
			dst[j] = float32(uint32(q&15)|h>>j&1<<4)*d + m
			dst[j+16] = float32(uint32(q>>4)|h>>(j+16)&1<<4)*d + m
		}
	},
	Q8_0: func(b []byte, dst []float32) {
		d := f16(b)
		for j, q := range b[2:34] {
			dst[j] = float32(int8(q)) * d
		}
	},
	Q4_K: func(b []byte, dst []float32) {
		d, dm := f16(b), f16(b[2:])
		q := b[16:144]
		for g := 0; g < 4; g++ { // 64 elements: low nibbles, then high
			s1, m1 := scaleMin(b[4:16], 2*g)
			s2, m2 := scaleMin(b[4:16], 2*g+1)
			for j := 0; j < 32; j++ {
				dst[64*g+j] = d*s1*float32(q[32*g+j]&15) - dm*m1
				dst[64*g+32+j] = d*s2*float32(q[32*g+j]>>4) - dm*m2
			}
		}
	},
	Q5_K: func(b []byte, dst []float32) {
		d, dm := f16(b), f16(b[2:])
		h, q := b[16:48], b[48:176]
		for g := 0; g < 4; g++ {
			s1, m1 := scaleMin(b[4:16], 2*g)
			s2, m2 := scaleMin(b[4:16], 2*g+1)
			for j := 0; j < 32; j++ {
				lo := q[32*g+j]&15 | h[j]>>(2*g)&1<<4
				hi := q[32*g+j]>>4 | h[j]>>(2*g+1)&1<<4
				dst[64*g+j] = d*s1*float32(lo) - dm*m1
				dst[64*g+32+j] = d*s2*float32(hi) - dm*m2
			}
		}
	},
	Q6_K: func(b []byte, dst []float32) {
		ql, qh, sc := b[:128], b[128:192], b[192:208]
		d := f16(b[208:])
		for g := 0; g < 2; g++ { // 128 elements
			for j := 0; j < 32; j++ {
				l0, l1, h := ql[64*g+j], ql[64*g+32+j], qh[32*g+j]
				v := [4]byte{l0&15 | h&3<<4, l1&15 | h>>2&3<<4, l0>>4 | h>>4&3<<4, l1>>4 | h>>6<<4}
				for k := range v {
					dst[128*g+32*k+j] = d * float32(int8(sc[8*g+2*k+j/16])) * float32(int(v[k])-32)
				}
			}
		}
	},
}

// scaleMin unpacks the 6-bit scale and minimum of sub-block j of Q4_K and Q5_K.
func scaleMin(s []byte, j int) (scale, min float32) {
	if j < 4 {
		return float32(s[j] & 63), float32(s[j+4] & 63)
	}
	return float32(s[j+4]&15 | s[j-4]>>6<<4), float32(s[j+4]>>4 | s[j]>>6<<4)
}
