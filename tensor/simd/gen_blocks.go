//go:build ignore

// gen_blocks writes blocks_amd64.s: products with and expansion of 4-bit and 8-bit
// weight panels.
//
//	go run gen_blocks.go > blocks_amd64.s
package main

import (
	"bufio"
	"fmt"
	"os"
)

var w = bufio.NewWriter(os.Stdout)

func p(format string, a ...any) { fmt.Fprintf(w, "\t"+format+"\n", a...) }
func label(s string)            { fmt.Fprintf(w, "%s:\n", s) }

// A panel of 16 rows is a sequence of blocks of 32 columns:
// 4 bits: 16 half scales, 16 half minima, 4 × 16 words of 8 columns (nibble i of a
// row's word is column 2i, nibble i+4 column 2i+1);
// 8 bits: 16 half scales, 8 × 16 words of 4 columns (bytes 0, 2, 1, 3 in their order).

func head(name, sig string, size int) {
	fmt.Fprintf(w, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, sig, name, size)
}

// product: R rows of 16-bit activations (blocks of 32 integers, their scale, their
// sum) times a panel. Y0 … Y(2R-1) hold the block's integer sums, dst the float ones.
func product(bits, rows int) {
	head(fmt.Sprintf("product%dx%d", bits, rows), "dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int", 48)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ dstStride+8(FP), R11")
	p("MOVQ x+16(FP), SI")
	p("MOVQ xStride+24(FP), R8")
	p("MOVQ panel+32(FP), BX")
	p("MOVQ blocks+40(FP), CX")
	p("LEAQ (R8)(R8*2), R9")
	p("LEAQ (R8)(R8*4), R10")
	p("LEAQ (R11)(R11*2), R12")
	p("LEAQ (R11)(R11*4), R13")
	x := []string{"(SI)", "(SI)(R8*1)", "(SI)(R8*2)", "(SI)(R9*1)", "(SI)(R8*4)", "(SI)(R10*1)"}
	out := []string{"(DI)", "(DI)(R11*1)", "(DI)(R11*2)", "(DI)(R12*1)", "(DI)(R11*4)", "(DI)(R13*1)"}
	p("VPXOR Y0, Y0, Y0")
	for r := range rows {
		p("VMOVUPS Y0, %s", out[r])
		p("VMOVUPS Y0, 32%s", out[r])
	}
	size, data, groups := 320, 64, 4
	if bits == 8 {
		size, data, groups = 544, 32, 8
	}
	p("PCALIGN $32")
	label("block")
	for i := range 2 * rows {
		p("VPXOR Y%d, Y%d, Y%d", i, i, i)
	}
	for g := range groups {
		p("PREFETCHT0 %d(BX)", 3072+64*g)
		for part := range 16 / groups {
			for h := range 2 {
				v := fmt.Sprintf("Y%d", 12+h)
				src := fmt.Sprintf("%d(BX)", data+64*g+32*h)
				switch {
				case bits == 8 && part == 0:
					p("VMOVDQU %s, %s", src, v)
					p("VPSLLW $8, %s, %s", v, v)
					p("VPSRAW $8, %s, %s", v, v)
				case bits == 8:
					p("VMOVDQU %s, %s", src, v)
					p("VPSRAW $8, %s, %s", v, v)
				default:
					p("VMOVDQU %s, %s", src, v)
					if part > 0 {
						p("VPSRLD $%d, %s, %s", 4*part, v, v)
					}
					p("VPAND nibbles<>(SB), %s, %s", v, v)
				}
			}
			for r := range rows {
				p("VPBROADCASTD %d%s, Y14", 4*(g*16/groups+part), x[r])
				for h := range 2 {
					p("VPMADDWD Y%d, Y14, Y15", 12+h)
					p("VPADDD Y15, Y%d, Y%d", 2*r+h, 2*r+h)
				}
			}
		}
	}
	if bits == 8 { // the block's last line
		p("PREFETCHT0 %d(BX)", 3072+64*groups)
	}
	for h := range 2 {
		p("VCVTPH2PS %d(BX), Y%d", 16*h, 12+h)
	}
	for i := range 2 * rows {
		p("VCVTDQ2PS Y%d, Y%d", i, i)
		p("VMULPS Y%d, Y%d, Y%d", 12+i%2, i, i)
	}
	if bits == 4 {
		for h := range 2 {
			p("VCVTPH2PS %d(BX), Y%d", 32+16*h, 12+h)
		}
	}
	for r := range rows {
		if bits == 4 {
			p("VBROADCASTSS 68%s, Y14", x[r])
			for h := range 2 {
				p("VFMADD231PS Y14, Y%d, Y%d", 12+h, 2*r+h)
			}
		}
		p("VBROADCASTSS 64%s, Y14", x[r])
		for h := range 2 {
			o := out[r]
			if h == 1 {
				o = "32" + o
			}
			p("VFMADD213PS %s, Y14, Y%d", o, 2*r+h)
			p("VMOVUPS Y%d, %s", 2*r+h, o)
		}
	}
	p("ADDQ $72, SI")
	p("ADDQ $%d, BX", size)
	p("DECQ CX")
	p("JNZ block")
	p("VZEROUPPER")
	p("RET")
}

// quantize16 writes blocks of 32 integers with scale and sum.
// Magnitudes are compared as integers, so that NaN is the largest.
func quantize16() {
	head("quantize16", "dst *byte, x *float32, blocks int", 24)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ x+8(FP), SI")
	p("MOVQ blocks+16(FP), CX")
	p("VPCMPEQD Y15, Y15, Y15")
	p("VPSRLD $1, Y15, Y14")  // all but the sign
	p("VPSRLW $15, Y15, Y13") // ones
	p("VBROADCASTSS most<>(SB), X12")
	label("block")
	for i := range 4 {
		p("VMOVUPS %d(SI), Y%d", 32*i, i)
		p("VANDPS Y14, Y%d, Y%d", i, 4+i)
	}
	p("VPMAXUD Y4, Y5, Y4")
	p("VPMAXUD Y6, Y7, Y6")
	p("VPMAXUD Y4, Y6, Y4")
	p("VEXTRACTF128 $1, Y4, X5")
	p("VPMAXUD X4, X5, X4")
	p("VPSHUFD $78, X4, X5")
	p("VPMAXUD X4, X5, X4")
	p("VPSHUFD $177, X4, X5")
	p("VPMAXUD X4, X5, X4")
	p("VDIVSS X12, X4, X5") // scale = max/32767
	p("VMOVSS X5, 64(DI)")
	p("VDIVSS X4, X12, X5")
	p("VCMPSS $30, least<>(SB), X4, X6") // what is all but 0 is taken as 0
	p("VANDPS X6, X5, X5")
	p("VBROADCASTSS X5, Y5")
	for i := range 4 {
		p("VMULPS Y5, Y%d, Y%d", i, i)
		p("VCVTPS2DQ Y%d, Y%d", i, i)
	}
	p("VPACKSSDW Y1, Y0, Y0")
	p("VPACKSSDW Y3, Y2, Y2")
	p("VPERMQ $216, Y0, Y0")
	p("VPERMQ $216, Y2, Y2")
	p("VMOVDQU Y0, (DI)")
	p("VMOVDQU Y2, 32(DI)")
	p("VPMADDWD Y13, Y0, Y0")
	p("VPMADDWD Y13, Y2, Y2")
	p("VPADDD Y0, Y2, Y0")
	p("VEXTRACTI128 $1, Y0, X1")
	p("VPADDD X0, X1, X0")
	p("VPSHUFD $78, X0, X1")
	p("VPADDD X0, X1, X0")
	p("VPSHUFD $177, X0, X1")
	p("VPADDD X0, X1, X0")
	p("VCVTDQ2PS X0, X0")
	p("VMOVSS X0, 68(DI)")
	p("ADDQ $128, SI")
	p("ADDQ $72, DI")
	p("DECQ CX")
	p("JNZ block")
	p("VZEROUPPER")
	p("RET")
}

// expand writes dst[32·blocks, 16].
func expand4() {
	head("expand4", "dst *float32, panel *byte, blocks int", 24)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ panel+8(FP), BX")
	p("MOVQ blocks+16(FP), CX")
	p("VPCMPEQD Y15, Y15, Y15")
	p("VPSRLD $28, Y15, Y15")
	label("block")
	for h := range 2 {
		p("VCVTPH2PS %d(BX), Y%d", 16*h, h)
		p("VCVTPH2PS %d(BX), Y%d", 32+16*h, 2+h)
	}
	for g := range 4 {
		for i := range 8 {
			for h := range 2 {
				p("VMOVDQU %d(BX), Y4", 64+64*g+32*h)
				if i > 0 {
					p("VPSRLD $%d, Y4, Y4", 4*i)
				}
				p("VPAND Y15, Y4, Y4")
				p("VCVTDQ2PS Y4, Y4")
				p("VFMADD213PS Y%d, Y%d, Y4", 2+h, h)
				p("VMOVUPS Y4, %d(DI)", 64*(8*g+i%4*2+i/4)+32*h)
			}
		}
	}
	p("ADDQ $2048, DI")
	p("ADDQ $320, BX")
	p("DECQ CX")
	p("JNZ block")
	p("VZEROUPPER")
	p("RET")
}

func expand8() {
	head("expand8", "dst *float32, panel *byte, blocks int", 24)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ panel+8(FP), BX")
	p("MOVQ blocks+16(FP), CX")
	label("block")
	p("VCVTPH2PS (BX), Y0")
	p("VCVTPH2PS 16(BX), Y1")
	for g := range 8 {
		for i, b := range []int{0, 2, 1, 3} { // byte b is column i
			for h := range 2 {
				p("VMOVDQU %d(BX), Y4", 32+64*g+32*h)
				if b < 3 {
					p("VPSLLD $%d, Y4, Y4", 24-8*b)
				}
				p("VPSRAD $24, Y4, Y4")
				p("VCVTDQ2PS Y4, Y4")
				p("VMULPS Y%d, Y4, Y4", h)
				p("VMOVUPS Y4, %d(DI)", 64*(4*g+i)+32*h)
			}
		}
	}
	p("ADDQ $2048, DI")
	p("ADDQ $544, BX")
	p("DECQ CX")
	p("JNZ block")
	p("VZEROUPPER")
	p("RET")
}

func main() {
	fmt.Fprint(w, "// Code generated by gen_blocks.go; DO NOT EDIT.\n\n#include \"textflag.h\"\n")
	fmt.Fprint(w, "\nDATA nibbles<>+0(SB)/8, $0x000f000f000f000f\n")
	for i := range 3 {
		fmt.Fprintf(w, "DATA nibbles<>+%d(SB)/8, $0x000f000f000f000f\n", 8*i+8)
	}
	fmt.Fprint(w, "GLOBL nibbles<>(SB), RODATA|NOPTR, $32\nDATA most<>+0(SB)/4, $32767.0\nGLOBL most<>(SB), RODATA|NOPTR, $4\nDATA least<>+0(SB)/4, $1e-30\nGLOBL least<>(SB), RODATA|NOPTR, $4\n")
	for _, bits := range []int{4, 8} {
		for rows := 1; rows <= 6; rows++ {
			product(bits, rows)
		}
	}
	quantize16()
	expand4()
	expand8()
	w.Flush()
}
