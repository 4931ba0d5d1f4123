//go:build ignore

package main

import (
	"fmt"
	"strings"
)

// AVX512-BF16, which Go's assembler does not know: instructions are bytes, beside the text
// that GNU as takes (a test compares).

var regNumber = map[string]int{"AX": 0, "CX": 1, "DX": 2, "BX": 3, "SI": 6, "DI": 7, "R8": 8, "R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13, "R14": 14, "R15": 15}

func gnuReg(r string) string {
	if strings.HasPrefix(r, "R") {
		return "%" + strings.ToLower(r)
	}
	return "%r" + strings.ToLower(r)
}

func (a address) gnu() string {
	s := "(" + gnuReg(a.base)
	if a.index != "" {
		s += fmt.Sprintf(",%s,%d", gnuReg(a.index), a.scale)
	}
	if a.disp != 0 {
		s = fmt.Sprint(a.disp) + s
	}
	return s + ")"
}

// evex emits an instruction of 512 bits of the map 0F38, W0, without a mask: pp is its
// prefix (2 F3, 3 F2), reg the destination, v the second operand or -1, and the last is
// Z(rm), or memory, where an element is unit bytes (4: broadcast).
func evex(pp, op byte, reg, v, rm int, from *address, unit int, text string) {
	inv := func(n, bit int) byte { return byte(^n >> bit & 1) }
	if v < 0 {
		v = 0 // all ones when inverted
	}
	p0 := inv(reg, 3)<<7 | inv(reg, 4)<<4 | 2
	p2 := byte(2<<5) | inv(v, 4)<<3
	var tail []byte
	if from == nil {
		p0 |= inv(rm, 4)<<6 | inv(rm, 3)<<5
		tail = []byte{3<<6 | byte(reg&7)<<3 | byte(rm&7)}
	} else {
		base, index := regNumber[from.base], 4
		if from.index != "" {
			index = regNumber[from.index]
		}
		p0 |= inv(index, 3)<<6 | inv(base, 3)<<5
		if unit == 4 {
			p2 |= 1 << 4
		}
		mod := byte(0)
		if from.disp != 0 || base&7 == 5 {
			mod = 1
		}
		if from.disp%unit != 0 || from.disp/unit > 127 || from.disp < 0 {
			panic("displacement")
		}
		if from.index != "" || base&7 == 4 {
			scale := map[int]byte{0: 0, 1: 0, 2: 1, 4: 2, 8: 3}[from.scale]
			tail = []byte{mod<<6 | byte(reg&7)<<3 | 4, scale<<6 | byte(index&7)<<3 | byte(base&7)}
		} else {
			tail = []byte{mod<<6 | byte(reg&7)<<3 | byte(base&7)}
		}
		if mod == 1 {
			tail = append(tail, byte(from.disp/unit))
		}
	}
	code := append([]byte{0x62, p0, byte(^v&15)<<3 | 4 | pp, p2, op}, tail...)
	var b strings.Builder
	for _, c := range code {
		fmt.Fprintf(&b, "BYTE $0x%02x; ", c)
	}
	p("%s// %s", b.String(), text)
}

// dpbf16 is fma for pairs: Z(sum) += the pair's second product, then its first, each
// rounded once.
func dpbf16(a int, from *address, b, sum int) {
	last := fmt.Sprintf("%%zmm%d", a)
	if from != nil {
		last = from.gnu() + "{1to16}"
	}
	evex(2, 0x52, sum, b, a, from, 4, fmt.Sprintf("vdpbf16ps %s, %%zmm%d, %%zmm%d", last, b, sum))
}

// cvtbf16 emits Y(to) = 16 floats of memory rounded to nearest even.
func cvtbf16(from address, to int) {
	evex(2, 0x72, to, -1, 0, &from, 64, fmt.Sprintf("vcvtneps2bf16 %s, %%ymm%d", from.gnu(), to))
}

// roundPairs rounds n floats, a multiple of 16.
func roundPairs() {
	head("roundPairsB", "dst *uint32, src *float32, n int", 24)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ src+8(FP), SI")
	p("MOVQ n+16(FP), CX")
	label("loop")
	cvtbf16(address{base: "SI"}, 0)
	p("VMOVDQU Y0, (DI)")
	p("ADDQ $64, SI")
	p("ADDQ $32, DI")
	p("SUBQ $16, CX")
	p("JNZ loop")
	p("VZEROUPPER")
	p("RET")
}

// packPairs writes dst[k,16] = src[8 rows, k] rounded, 8·k8 pairs of each row, to the
// first eight places.
func packPairs() {
	head("packPairsB", "dst *uint32, src *float32, k8, stride int", 32)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ src+8(FP), SI")
	p("MOVQ k8+16(FP), CX")
	p("MOVQ stride+24(FP), DX")
	p("LEAQ (DX)(DX*2), R8")
	p("LEAQ (SI)(DX*4), R9")
	label("block")
	for r := range 8 {
		at := address{base: []string{"SI", "R9"}[r/4]}
		switch r % 4 {
		case 1, 2:
			at.index, at.scale = "DX", r%4
		case 3:
			at.index, at.scale = "R8", 1
		}
		cvtbf16(at, r)
	}
	for i := 0; i < 8; i += 2 { // an 8×8 transpose, as in gen_gemm.go
		p("VUNPCKLPS Y%d, Y%d, Y%d", i+1, i, 8+i)
		p("VUNPCKHPS Y%d, Y%d, Y%d", i+1, i, 9+i)
	}
	for i := 0; i < 8; i += 4 {
		p("VSHUFPS $0x44, Y%d, Y%d, Y%d", 10+i, 8+i, i)
		p("VSHUFPS $0xEE, Y%d, Y%d, Y%d", 10+i, 8+i, i+1)
		p("VSHUFPS $0x44, Y%d, Y%d, Y%d", 11+i, 9+i, i+2)
		p("VSHUFPS $0xEE, Y%d, Y%d, Y%d", 11+i, 9+i, i+3)
	}
	for i := range 4 {
		p("VPERM2F128 $0x20, Y%d, Y%d, Y8", i+4, i)
		p("VPERM2F128 $0x31, Y%d, Y%d, Y9", i+4, i)
		p("VMOVUPS Y8, %d(DI)", 64*i)
		p("VMOVUPS Y9, %d(DI)", 64*(i+4))
	}
	p("ADDQ $64, SI")
	p("ADDQ $64, R9")
	p("ADDQ $512, DI")
	p("DECQ CX")
	p("JNZ block")
	p("VZEROUPPER")
	p("RET")
}
