//go:build ignore

// gen_weights writes weights_amd64.s: the AVX2 and AVX-512 kernels of weights in K-quants
// and in 16-bit elements.
//
//	go run gen_weights.go > weights_amd64.s
package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
)

var (
	w    = bufio.NewWriter(os.Stdout)
	zmm  bool // AVX-512: one register holds what else two do
	vecs = 2  // registers for 16 rows
	ymm  = regexp.MustCompile(`\bY(\d+)`)
)

func p(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	if zmm {
		s = ymm.ReplaceAllString(s, "Z$1")
		for _, op := range []string{"VPAND", "VPOR"} {
			s = strings.Replace(s, op+" ", op+"D ", 1)
		}
	}
	fmt.Fprintf(w, "\t%s\n", s)
}

func label(s string) { fmt.Fprintf(w, "%s:\n", s) }

// Offsets in a panel's block, see kblocks.go.
const (
	q4kScale, q4kMin, q4kData, q4kBytes  = 64, 192, 320, 2368
	q6kScale, q6kData, q6kHigh, q6kBytes = 32, 288, 2336, 3360
)

func head(name, sig string, size int, regs ...string) {
	if zmm {
		name += "Z"
	}
	fmt.Fprintf(w, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, sig, name, size)
	for i, r := range regs {
		n := []rune(r)
		at := len(n) - 1
		for n[at] != ' ' {
			at--
		}
		p("MOVQ %s+%d(FP), %s", string(n[:at]), 8*i, string(n[at+1:]))
	}
}

func low4() {
	if zmm {
		p("VPTERNLOGD $255, Z15, Z15, Z15")
	} else {
		p("VPCMPEQD Y15, Y15, Y15")
	}
	p("VPSRLD $28, Y15, Y15")
}

func zero(from, to int) {
	for i := from; i < to; i++ {
		p("VXORPS Y%d, Y%d, Y%d", i, i, i)
	}
}

// scaled: Y(dst) = eight bytes at off(BX), signed or not, as floats times Y(d).
func scaled(dst, off, d int, ext string) {
	p("VPMOV%sXBD %d(BX), Y%d", ext, off, dst)
	p("VCVTDQ2PS Y%d, Y%d", dst, dst)
	p("VMULPS Y%d, Y%d, Y%d", d, dst, dst)
}

// matvecQ4K: Y0, Y1 the sums; Y2 … Y9 those of a part of 32 columns.
func matvecQ4K() {
	head("matvecQ4K", "dst, x, sums *float32, panel *byte, blocks int", 40, "dst DI", "x SI", "sums DX", "panel BX", "blocks CX")
	low4()
	zero(0, 2)
	p("PCALIGN $32")
	label("block")
	for part := range 8 {
		zero(2, 10)
		for j := range 16 {
			if j%4 == 0 {
				p("PREFETCHT0 %d(BX)", 3072+q4kData+256*part+16*j)
			}
			set := 2 + j%2*4
			p("VBROADCASTSS %d(SI), Y10", 128*part+4*j)
			p("VBROADCASTSS %d(SI), Y11", 128*part+4*(j+16))
			for h := range vecs {
				p("VPMOVZXBD %d(BX), Y12", q4kData+256*part+16*j+8*h)
				p("VPAND Y15, Y12, Y13")
				p("VPSRLD $4, Y12, Y12")
				p("VCVTDQ2PS Y13, Y13")
				p("VCVTDQ2PS Y12, Y12")
				p("VFMADD231PS Y13, Y10, Y%d", set+h)
				p("VFMADD231PS Y12, Y11, Y%d", set+2+h)
			}
		}
		p("VBROADCASTSS %d(DX), Y10", 4*part)
		for h := range vecs {
			p("VADDPS Y%d, Y%d, Y%d", 2+h, 4+h, 2+h)
			p("VADDPS Y%d, Y%d, Y%d", 6+h, 8+h, 6+h)
			p("VADDPS Y%d, Y%d, Y%d", 2+h, 6+h, 2+h)
			p("VCVTPH2PS %d(BX), Y11", 16*h)
			scaled(12, q4kScale+16*part+8*h, 11, "Z")
			p("VFMADD231PS Y12, Y%d, Y%d", 2+h, h)
			p("VCVTPH2PS %d(BX), Y11", 32+16*h)
			scaled(12, q4kMin+16*part+8*h, 11, "Z")
			p("VFNMADD231PS Y12, Y10, Y%d", h)
		}
	}
	p("ADDQ $1024, SI")
	p("ADDQ $32, DX")
	p("ADDQ $%d, BX", q4kBytes)
	p("DECQ CX")
	p("JNZ block")
	store2()
}

func store2() {
	for h := range vecs {
		p("VMOVUPS Y%d, %d(DI)", h, 32*h)
	}
	p("VZEROUPPER")
	p("RET")
}

// six: Y12 and Y13 = the integers of columns j and j+16 of eight rows, as floats;
// uses Y10, Y11; Y14 is 3 in every lane, Y15 15, Y9 32.
func six(part, j, h int) {
	p("VPMOVZXBD %d(BX), Y12", q6kData+256*part+16*j+8*h)
	p("VPMOVZXBD %d(BX), Y11", q6kHigh+128*part+16*(j%8)+8*h)
	if j >= 8 {
		p("VPSRLD $2, Y11, Y11")
	}
	p("VPSRLD $4, Y12, Y13")
	p("VPAND Y15, Y12, Y12")
	p("VPAND Y14, Y11, Y10")
	p("VPSLLD $4, Y10, Y10")
	p("VPOR Y10, Y12, Y12")
	p("VPSRLD $4, Y11, Y11")
	p("VPAND Y14, Y11, Y11")
	p("VPSLLD $4, Y11, Y11")
	p("VPOR Y11, Y13, Y13")
	for y := 12; y < 14; y++ {
		p("VPSUBD Y9, Y%d, Y%d", y, y)
		p("VCVTDQ2PS Y%d, Y%d", y, y)
	}
}

func sixConsts() {
	low4()
	p("VPSRLD $2, Y15, Y14")
	p("VPSUBD Y14, Y15, Y9") // 12
	p("VPADDD Y9, Y9, Y9")   // 24
	p("VPSRLD $1, Y15, Y8")  // 7
	p("VPADDD Y8, Y9, Y9")   // 31
	p("VPSRLD $2, Y8, Y8")   // 1
	p("VPADDD Y8, Y9, Y9")   // 32
}

// matvecQ6K: Y0, Y1 the sums; Y2 … Y5 those of two halves of a part.
func matvecQ6K() {
	head("matvecQ6K", "dst, x *float32, panel *byte, blocks int", 32, "dst DI", "x SI", "panel BX", "blocks CX")
	sixConsts()
	zero(0, 2)
	p("PCALIGN $32")
	label("block")
	for part := range 8 {
		zero(2, 6)
		for j := range 16 {
			if j%4 == 0 {
				p("PREFETCHT0 %d(BX)", 4096+q6kData+256*part+16*j)
			}
			if j%8 == 0 {
				p("PREFETCHT0 %d(BX)", 4096+q6kHigh+128*part+8*j)
			}
			p("VBROADCASTSS %d(SI), Y6", 128*part+4*j)
			p("VBROADCASTSS %d(SI), Y7", 128*part+4*(j+16))
			for h := range vecs {
				six(part, j, h)
				p("VFMADD231PS Y12, Y6, Y%d", 2+h)
				p("VFMADD231PS Y13, Y7, Y%d", 4+h)
			}
		}
		for h := range vecs {
			p("VCVTPH2PS %d(BX), Y11", 16*h)
			for q := range 2 {
				scaled(12, q6kScale+32*part+16*q+8*h, 11, "S")
				p("VFMADD231PS Y12, Y%d, Y%d", 2+2*q+h, h)
			}
		}
	}
	p("ADDQ $1024, SI")
	p("ADDQ $%d, BX", q6kBytes)
	p("DECQ CX")
	p("JNZ block")
	store2()
}

// expandQ4K writes dst[256·blocks, 16].
func expandQ4K() {
	head("expandQ4K", "dst *float32, panel *byte, blocks int", 24, "dst DI", "panel BX", "blocks CX")
	low4()
	label("block")
	for part := range 8 {
		for h := range vecs {
			p("VCVTPH2PS %d(BX), Y11", 16*h)
			scaled(h, q4kScale+16*part+8*h, 11, "Z")
			p("VCVTPH2PS %d(BX), Y11", 32+16*h)
			scaled(2+h, q4kMin+16*part+8*h, 11, "Z")
		}
		for j := range 16 {
			for h := range vecs {
				p("VPMOVZXBD %d(BX), Y4", q4kData+256*part+16*j+8*h)
				p("VPAND Y15, Y4, Y5")
				p("VPSRLD $4, Y4, Y4")
				p("VCVTDQ2PS Y5, Y5")
				p("VCVTDQ2PS Y4, Y4")
				p("VFMSUB213PS Y%d, Y%d, Y5", 2+h, h)
				p("VFMSUB213PS Y%d, Y%d, Y4", 2+h, h)
				p("VMOVUPS Y5, %d(DI)", 2048*part+64*j+32*h)
				p("VMOVUPS Y4, %d(DI)", 2048*part+64*(j+16)+32*h)
			}
		}
	}
	p("ADDQ $16384, DI")
	p("ADDQ $%d, BX", q4kBytes)
	p("DECQ CX")
	p("JNZ block")
	p("VZEROUPPER")
	p("RET")
}

func expandQ6K() {
	head("expandQ6K", "dst *float32, panel *byte, blocks int", 24, "dst DI", "panel BX", "blocks CX")
	sixConsts()
	label("block")
	for part := range 8 {
		for h := range vecs {
			p("VCVTPH2PS %d(BX), Y11", 16*h)
			scaled(h, q6kScale+32*part+8*h, 11, "S")
			scaled(2+h, q6kScale+32*part+16+8*h, 11, "S")
		}
		for j := range 16 {
			for h := range vecs {
				six(part, j, h)
				p("VMULPS Y%d, Y12, Y12", h)
				p("VMULPS Y%d, Y13, Y13", 2+h)
				p("VMOVUPS Y12, %d(DI)", 2048*part+64*j+32*h)
				p("VMOVUPS Y13, %d(DI)", 2048*part+64*(j+16)+32*h)
			}
		}
	}
	p("ADDQ $16384, DI")
	p("ADDQ $%d, BX", q6kBytes)
	p("DECQ CX")
	p("JNZ block")
	p("VZEROUPPER")
	p("RET")
}

// wide: Y(dst) = eight 16-bit elements at off(BX) as floats.
func wide(f16 bool, dst, off int) {
	if f16 {
		p("VCVTPH2PS %d(BX), Y%d", off, dst)
		return
	}
	p("VPMOVZXWD %d(BX), Y%d", off, dst)
	p("VPSLLD $16, Y%d, Y%d", dst, dst)
}

// matvecHalf: four sets of sums Y0 … Y7.
func matvecHalf(f16 bool) {
	name := "matvecBF16"
	if f16 {
		name = "matvecF16"
	}
	head(name, "dst, x *float32, panel *byte, k int", 32, "dst DI", "x SI", "panel BX", "k CX")
	zero(0, 8)
	p("SUBQ $4, CX")
	p("JLT tail")
	p("PCALIGN $32")
	label("loop")
	p("PREFETCHT0 3072(BX)")
	p("PREFETCHT0 3136(BX)")
	for u := range 4 {
		p("VBROADCASTSS %d(SI), Y8", 4*u)
		for h := range vecs {
			wide(f16, 9+h, 32*u+16*h)
			p("VFMADD231PS Y%d, Y8, Y%d", 9+h, 2*u+h)
		}
	}
	p("ADDQ $16, SI")
	p("ADDQ $128, BX")
	p("SUBQ $4, CX")
	p("JGE loop")
	label("tail")
	p("ADDQ $4, CX")
	p("JLE done")
	label("rest")
	p("VBROADCASTSS (SI), Y8")
	for h := range vecs {
		wide(f16, 9+h, 16*h)
		p("VFMADD231PS Y%d, Y8, Y%d", 9+h, h)
	}
	p("ADDQ $4, SI")
	p("ADDQ $32, BX")
	p("DECQ CX")
	p("JNZ rest")
	label("done")
	for h := range vecs {
		p("VADDPS Y%d, Y%d, Y%d", 2+h, h, h)
		p("VADDPS Y%d, Y%d, Y%d", 6+h, 4+h, 4+h)
		p("VADDPS Y%d, Y%d, Y%d", 4+h, h, h)
	}
	store2()
}

// widenHalf: dst[i] = src[i] for n a multiple of 16.
func widenHalf(f16 bool) {
	name := "widenBF16"
	if f16 {
		name = "widenF16"
	}
	head(name, "dst *float32, src *byte, n int", 24, "dst DI", "src BX", "n CX")
	label("loop")
	for h := range vecs {
		wide(f16, h, 16*h)
		p("VMOVUPS Y%d, %d(DI)", h, 32*h)
	}
	p("ADDQ $32, BX")
	p("ADDQ $64, DI")
	p("SUBQ $16, CX")
	p("JNZ loop")
	p("VZEROUPPER")
	p("RET")
}

func main() {
	fmt.Fprint(w, "// Code generated by gen_weights.go; DO NOT EDIT.\n\n#include \"textflag.h\"\n")
	for _, zmm = range []bool{false, true} {
		if zmm {
			vecs = 1
		}
		matvecQ4K()
		matvecQ6K()
		expandQ4K()
		expandQ6K()
		for _, f16 := range []bool{false, true} {
			matvecHalf(f16)
			widenHalf(f16)
		}
	}
	w.Flush()
}
