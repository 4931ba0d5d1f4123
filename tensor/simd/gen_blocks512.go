//go:build ignore

// gen_blocks512 writes blocks512_amd64.s and blocks512_amd64.go: products with 4-bit and
// 8-bit weight panels at AVX-512, with and without VNNI.
//
//	go run gen_blocks512.go s > blocks512_amd64.s
//	go run gen_blocks512.go go > blocks512_amd64.go
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
)

var w bytes.Buffer

func p(format string, a ...any) { fmt.Fprintf(&w, "\t"+format+"\n", a...) }
func label(s string)            { fmt.Fprintf(&w, "%s:\n", s) }

const (
	sig     = "dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int, next *byte"
	maxRows = 12
	ahead   = 8192 // bytes fetched ahead
	lines   = 4    // of what comes next, fetched to L2 per block
)

// row is the address of a row of activations: R8, R9, R10, R12, R13 and R15 hold 1, 3, 5,
// 7, 9 and 11 strides.
func row(r, disp int) string {
	return fmt.Sprintf("%d(SI)%s", disp, []string{"", "(R8*1)", "(R8*2)", "(R9*1)", "(R8*4)", "(R10*1)", "(R9*2)", "(R12*1)", "(R8*8)", "(R13*1)", "(R10*2)", "(R15*1)"}[r])
}

// product: rows of 16-bit activations (see rows16.go) times a panel. Sums of a block are
// exact integers, Z0 … Z11; float sums, Z12 … Z23, have the order of the AVX2 kernels.
// Raw words Z24, unpacked ones Z25, what two formats share Z26 … Z31: the mask of nibbles
// Z30, a broadcast and a product without VNNI Z28, Z29.
func product(name string, bits, rows int, vnni bool) {
	fmt.Fprintf(&w, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-56\n", name, sig, name)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ dstStride+8(FP), R11")
	p("MOVQ x+16(FP), SI")
	p("MOVQ xStride+24(FP), R8")
	p("MOVQ panel+32(FP), BX")
	p("MOVQ blocks+40(FP), CX")
	p("MOVQ next+48(FP), DX")
	for i, lea := range []string{"(R8)(R8*2), R9", "(R8)(R8*4), R10", "(R8)(R9*2), R12", "(R8)(R8*8), R13", "(R8)(R10*2), R15"} {
		if rows > 3+2*i {
			p("LEAQ %s", lea)
		}
	}
	size, data, groups := 320, 64, 4
	if bits == 8 {
		size, data, groups = 544, 32, 8
	} else {
		p("MOVL $0x000f000f, AX")
		p("VPBROADCASTD AX, Z30")
	}
	for r := range rows {
		p("VPXORD Z%d, Z%d, Z%d", 12+r, 12+r, 12+r)
	}
	p("PCALIGN $32")
	label("block")
	for r := range rows {
		p("VPXORD Z%d, Z%d, Z%d", r, r, r)
	}
	for g := range groups {
		p("PREFETCHT0 %d(BX)", ahead+64*g)
		for part := range 16 / groups {
			switch {
			case part == 0 && bits == 8:
				p("VMOVDQU32 %d(BX), Z24", data+64*g)
				p("VPSLLW $8, Z24, Z25")
				p("VPSRAW $8, Z25, Z25")
			case bits == 8:
				p("VPSRAW $8, Z24, Z25")
			case part == 0:
				p("VMOVDQU32 %d(BX), Z24", data+64*g)
				p("VPANDD Z30, Z24, Z25")
			default:
				p("VPSRLD $%d, Z24, Z25", 4*part)
				p("VPANDD Z30, Z25, Z25")
			}
			for r := range rows {
				x := row(r, 4*(g*16/groups+part))
				if vnni {
					p("VPDPWSSD.BCST %s, Z25, Z%d", x, r)
					continue
				}
				p("VPBROADCASTD %s, Z28", x)
				p("VPMADDWD Z28, Z25, Z29")
				p("VPADDD Z29, Z%d, Z%d", r, r)
			}
		}
	}
	if bits == 8 { // the block's last line
		p("PREFETCHT0 %d(BX)", ahead+64*groups)
	}
	p("TESTQ DX, DX")
	p("JZ sums")
	for i := range lines {
		p("PREFETCHT1 %d(DX)", 64*i)
	}
	p("ADDQ $%d, DX", 64*lines)
	label("sums")
	p("VCVTPH2PS (BX), Z26")
	if bits == 4 {
		p("VCVTPH2PS 32(BX), Z27")
	}
	for r := range rows {
		p("VCVTDQ2PS Z%d, Z%d", r, r)
		p("VMULPS Z26, Z%d, Z%d", r, r)
		if bits == 4 {
			p("VFMADD231PS.BCST %s, Z27, Z%d", row(r, 68), r)
		}
		p("VFMADD231PS.BCST %s, Z%d, Z%d", row(r, 64), r, 12+r)
	}
	p("ADDQ $72, SI")
	p("ADDQ $%d, BX", size)
	p("DECQ CX")
	p("JNZ block")
	for r := range rows {
		p("VMOVUPS Z%d, (DI)", 12+r)
		if r < rows-1 {
			p("ADDQ R11, DI")
		}
	}
	p("VZEROUPPER")
	p("RET")
}

// quantize16 writes blocks of 32 integers with scale and sum, as gen_blocks.go's does.
func quantize16() {
	fmt.Fprint(&w, "\n// func quantize16Z(dst *byte, x *float32, blocks int)\nTEXT ·quantize16Z(SB), NOSPLIT, $0-24\n")
	p("MOVQ dst+0(FP), DI")
	p("MOVQ x+8(FP), SI")
	p("MOVQ blocks+16(FP), CX")
	p("VPTERNLOGD $255, Z15, Z15, Z15")
	p("VPSRLD $1, Z15, Z14")  // all but the sign
	p("VPSRLW $15, Z15, Z13") // ones
	p("MOVL $0x46fffe00, AX")
	p("VMOVD AX, X12") // 32767
	p("MOVL $0x0da24260, AX")
	p("VMOVD AX, X11") // 1e-30: what is no larger is taken as 0
	label("block")
	p("VMOVUPS (SI), Z0")
	p("VMOVUPS 64(SI), Z1")
	p("VPANDD Z14, Z0, Z2")
	p("VPANDD Z14, Z1, Z3")
	p("VPMAXUD Z2, Z3, Z2")
	p("VEXTRACTI64X4 $1, Z2, Y3")
	p("VPMAXUD Y2, Y3, Y2")
	p("VEXTRACTI128 $1, Y2, X3")
	p("VPMAXUD X2, X3, X2")
	p("VPSHUFD $78, X2, X3")
	p("VPMAXUD X2, X3, X2")
	p("VPSHUFD $177, X2, X3")
	p("VPMAXUD X2, X3, X2")
	p("VDIVSS X12, X2, X3")
	p("VMOVSS X3, 64(DI)")
	p("VDIVSS X2, X12, X3")
	p("VCMPSS $30, X11, X2, X4")
	p("VANDPS X4, X3, X3")
	p("VBROADCASTSS X3, Z3")
	for i := range 2 {
		p("VMULPS Z3, Z%d, Z%d", i, i)
		p("VCVTPS2DQ Z%d, Z%d", i, i)
		p("VPMOVSDW Z%d, Y%d", i, i)
		p("VMOVDQU Y%d, %d(DI)", i, 32*i)
		p("VPMADDWD Y13, Y%d, Y%d", i, i)
	}
	p("VPADDD Y0, Y1, Y0")
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

func main() {
	quantize16()
	var decls, cases bytes.Buffer
	decls.WriteString("//go:noescape\nfunc quantize16Z(dst *byte, x *float32, blocks int)\n\n")
	for i, set := range []struct {
		name string
		bits int
		vnni bool
	}{{"product4Z", 4, false}, {"product8Z", 8, false}, {"product4V", 4, true}, {"product8V", 8, true}} {
		for rows := 1; rows <= maxRows; rows++ {
			name := fmt.Sprintf("%s%d", set.name, rows)
			product(name, set.bits, rows, set.vnni)
			fmt.Fprintf(&decls, "//go:noescape\nfunc %s(%s)\n\n", name, sig)
			fmt.Fprintf(&cases, "\tcase %d:\n\t\t%s(dst, dstStride, x, xStride, panel, blocks, next)\n", i*maxRows+rows-1, name)
		}
	}
	if os.Args[1] == "s" {
		fmt.Print("// Code generated by gen_blocks512.go; DO NOT EDIT.\n\n#include \"textflag.h\"\n")
		os.Stdout.Write(w.Bytes())
		return
	}
	src := fmt.Sprintf("// Code generated by gen_blocks512.go; DO NOT EDIT.\n\npackage simd\n\n// maxRowsZ is the number of rows that the kernels take at once.\nconst maxRowsZ = %d\n\n// fetchZ is what they fetch per block of what comes next, in bytes.\nconst fetchZ = %d\n\n%s", maxRows, 64*lines, decls.Bytes()) +
		fmt.Sprintf("// blockProductZ runs the kernel of 1 to %d rows. A switch keeps the pointers from\n// escaping.\nfunc blockProductZ(f BlockFormat, vnni bool, rows int, dst *float32, dstStride int, x *byte, xStride int, panel *byte, blocks int, next *byte) {\n", maxRows) +
		fmt.Sprintf("\trows--\n\tif f == Block8 {\n\t\trows += maxRowsZ\n\t}\n\tif vnni {\n\t\trows += 2 * maxRowsZ\n\t}\n\tswitch rows {\n%s\t}\n}\n", cases.Bytes())
	out, err := format.Source([]byte(src))
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(out)
}
