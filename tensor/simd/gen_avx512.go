//go:build ignore

// gen_avx512 writes avx512_amd64.s and avx512_amd64.go: the AVX-512 kernels of matrix
// multiplies (float32, int8 with and without VNNI) and distances.
//
//	go run gen_avx512.go s > avx512_amd64.s
//	go run gen_avx512.go go > avx512_amd64.go
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
)

var (
	out   bytes.Buffer
	w     = &out
	decls []string
	quiet bool
)

func p(format string, a ...any) {
	if !quiet {
		fmt.Fprintf(w, "\t"+format+"\n", a...)
	}
}

func label(s string) {
	if !quiet {
		fmt.Fprintf(w, "%s:\n", s)
	}
}

func head(name, sig string, size int) {
	decls = append(decls, fmt.Sprintf("func %s(%s)", name, sig))
	if !quiet {
		fmt.Fprintf(w, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, sig, name, size)
	}
}

// bases hold the addresses of rows 0, 3, 6, 9 and 12; DX is the stride.
var bases = []string{"SI", "R8", "R9", "R12", "R13"}

func rowAddr(r, disp int) string {
	s := fmt.Sprintf("%d(%s)", disp, bases[r/3])
	if r%3 > 0 {
		s += fmt.Sprintf("(DX*%d)", r%3)
	}
	return s
}

func rowBases(rows int) {
	for i := 1; 3*i < rows; i++ {
		p("LEAQ (%s)(DX*2), %s", bases[i-1], bases[i])
		p("ADDQ DX, %s", bases[i])
	}
}

func args(list ...any) {
	p("MOVQ args+0(FP), AX")
	for i := 0; i < len(list); i += 2 {
		p("MOVQ %d(AX), %s", list[i], list[i+1])
	}
}

// gemm: c[rows, 16·panels] = init + a·b. Masks cut the columns. Packed A is [k][16],
// row r ≥ 8 at 16-rows+r; otherwise it has strides. An element is one chain of sums
// over k, so that it does not depend on the rows beside it. Z28, Z29 b, Z30 and Z31 a.
func gemm(rows, panels int, packed bool) {
	name := fmt.Sprintf("gemmZ%dx%d", rows, panels)
	if packed {
		name += "packed"
	}
	head(name, "args *gemmZArgs", 8)
	args(0, "CX", 8, "SI", 16, "DX", 24, "BX", 32, "DI", 40, "R10", 48, "R11", 56, "R14", 64, "R15")
	p("KMOVW 88(AX), K1")
	p("KMOVW 96(AX), K2")
	if !packed {
		rowBases(rows)
	}
	acc := func(r, q int) int { return r*panels + q }
	for r := range rows {
		for q := range panels {
			p("VMOVUPS.Z %d(R14), K%d, Z%d", 64*q, q+1, acc(r, q))
		}
		if r < rows-1 {
			p("ADDQ R15, R14")
		}
	}
	step := func(u int) {
		a := func(r int) string {
			if !packed {
				return rowAddr(r, 0)
			}
			if r >= 8 {
				r += 16 - rows
			}
			return fmt.Sprintf("%d(SI)", 64*u+4*r)
		}
		p("VMOVUPS.Z (DI), K1, Z28")
		if panels == 2 {
			p("VMOVUPS.Z (R10), K2, Z29")
		}
		for r := range rows {
			if panels == 2 && r%2 == 0 {
				t := 30 + r/2%2
				p("VBROADCASTSS %s, Z%d", a(r), t)
				p("VFMADD231PS Z28, Z%d, Z%d", t, acc(r, 0))
				p("VFMADD231PS Z29, Z%d, Z%d", t, acc(r, 1))
				continue
			}
			for q := range panels {
				p("VFMADD231PS.BCST %s, Z%d, Z%d", a(r), 28+q, acc(r, q))
			}
		}
		p("ADDQ R11, DI")
		if panels == 2 {
			p("ADDQ R11, R10")
		}
		if !packed {
			for i := 0; 3*i < rows; i++ {
				p("ADDQ BX, %s", bases[i])
			}
		}
	}
	unroll := 1
	if packed {
		unroll = 2
	}
	p("SUBQ $%d, CX", unroll)
	p("JLT tail")
	p("PCALIGN $32")
	label("loop")
	if packed {
		p("PREFETCHT0 512(SI)")
		p("PREFETCHT0 576(SI)")
		p("PREFETCHT0 512(DI)")
		p("PREFETCHT0 576(DI)")
		if panels == 2 {
			p("PREFETCHT0 512(R10)")
			p("PREFETCHT0 576(R10)")
		}
	}
	for u := range unroll {
		step(u)
	}
	if packed {
		p("ADDQ $%d, SI", 64*unroll)
	}
	p("SUBQ $%d, CX", unroll)
	p("JGE loop")
	label("tail")
	p("ADDQ $%d, CX", unroll)
	p("JLE store")
	label("rest")
	step(0)
	if packed {
		p("ADDQ $64, SI")
	}
	p("DECQ CX")
	p("JNZ rest")
	label("store")
	p("MOVQ 72(AX), R14")
	p("MOVQ 80(AX), R15")
	for r := range rows {
		for q := range panels {
			p("VMOVUPS Z%d, K%d, %d(R14)", acc(r, q), q+1, 64*q)
		}
		if r < rows-1 {
			p("ADDQ R15, R14")
		}
	}
	p("VZEROUPPER")
	p("RET")
}

// int8Tile: c[rows, 16·panels] = init + (a·b − zero·sums)·rowScale·scale; b is [2·k8][16][4]
// signed bytes, a rows of bytes without sign: up to 127 with |b| ≤ 63 when vnni is
// false, so that four products fit 16 bits. Z24 … Z27 b, Z28, Z29 a, Z30 temporary,
// Z31 ones.
func int8Tile(rows, panels int, vnni bool) {
	name := fmt.Sprintf("int8Z%dx%d", rows, panels)
	if vnni {
		name = fmt.Sprintf("int8VNNI%dx%d", rows, panels)
	}
	head(name, "args *int8ZArgs", 8)
	args(0, "CX", 8, "SI", 16, "DX", 24, "DI", 32, "R10", 40, "R14", 48, "R15")
	p("KMOVW 88(AX), K1")
	p("KMOVW 96(AX), K2")
	rowBases(rows)
	for i := range rows * panels {
		p("VPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	if !vnni {
		p("VPTERNLOGD $255, Z31, Z31, Z31")
		p("VPSRLW $15, Z31, Z31")
	}
	b := []string{"DI", "R10"}
	p("PCALIGN $32")
	label("loop")
	for q := range panels {
		for h := range 2 {
			p("VMOVDQU32 %d(%s), Z%d", 64*h, b[q], 24+2*q+h)
		}
		p("PREFETCHT0 1024(%s)", b[q])
		p("PREFETCHT0 1088(%s)", b[q])
	}
	for r := range rows {
		for h := range 2 {
			p("VPBROADCASTD %s, Z%d", rowAddr(r, 4*h), 28+h)
		}
		for q := range panels {
			acc := r*panels + q
			if vnni {
				p("VPDPBUSD Z%d, Z28, Z%d", 24+2*q, acc)
				p("VPDPBUSD Z%d, Z29, Z%d", 25+2*q, acc)
				continue
			}
			p("VPMADDUBSW Z%d, Z28, Z30", 24+2*q)
			p("VPMADDUBSW Z%d, Z29, Z23", 25+2*q)
			p("VPADDW Z23, Z30, Z30")
			p("VPMADDWD Z31, Z30, Z30")
			p("VPADDD Z30, Z%d, Z%d", acc, acc)
		}
	}
	for i := 0; 3*i < rows; i++ {
		p("ADDQ $8, %s", bases[i])
	}
	for q := range panels {
		p("ADDQ $128, %s", b[q])
	}
	p("DECQ CX")
	p("JNZ loop")
	args(56, "BX", 64, "CX", 72, "DI", 80, "SI", 104, "R8", 112, "R9") // sums, scale, zero, rowScale, init
	for r := range rows {
		p("VPBROADCASTD %d(DI), Z30", 4*r)
		p("VBROADCASTSS %d(SI), Z29", 4*r)
		for q := range panels {
			acc := r*panels + q
			p("VPMULLD %d(BX), Z30, Z28", 64*q)
			p("VPSUBD Z28, Z%d, Z28", acc)
			p("VCVTDQ2PS Z28, Z28")
			p("VMULPS %d(CX), Z28, Z28", 64*q)
			p("VMOVUPS.Z %d(R8), K%d, Z27", 64*q, q+1)
			p("VFMADD213PS Z27, Z29, Z28")
			p("VMOVUPS Z28, K%d, %d(R14)", q+1, 64*q)
		}
		if r < rows-1 {
			p("ADDQ R15, R14")
			p("ADDQ R9, R8")
		}
	}
	p("VZEROUPPER")
	p("RET")
}

// quantize8: dst[i] = clamp(round(x[i]·inv + zero), 0, 255) for n a multiple of 16.
func quantize8() {
	head("quantize8Z", "dst *byte, x *float32, n int, inv, zero float32", 32)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ x+8(FP), SI")
	p("MOVQ n+16(FP), CX")
	p("VBROADCASTSS inv+24(FP), Z8")
	p("VBROADCASTSS zero+28(FP), Z9")
	p("VPXORD Z10, Z10, Z10")
	label("loop")
	p("VMOVUPS (SI), Z0")
	p("VFMADD213PS Z9, Z8, Z0")
	p("VCVTPS2DQ Z0, Z0")
	p("VPMAXSD Z10, Z0, Z0")
	p("VPMOVUSDB Z0, (DI)")
	p("ADDQ $64, SI")
	p("ADDQ $16, DI")
	p("SUBQ $16, CX")
	p("JNZ loop")
	p("VZEROUPPER")
	p("RET")
}

// reduceZ sums the lanes of Z(i) into X(i); uses Z31.
func reduceZ(i int) {
	p("VEXTRACTF64X4 $1, Z%d, Y31", i)
	p("VADDPS Y31, Y%d, Y%d", i, i)
	p("VEXTRACTF32X4 $1, Y%d, X31", i)
	p("VADDPS X31, X%d, X%d", i, i)
	p("VSHUFPS $0x4E, X%d, X%d, X31", i, i)
	p("VADDPS X31, X%d, X%d", i, i)
	p("VSHUFPS $0xB1, X%d, X%d, X31", i, i)
	p("VADDPS X31, X%d, X%d", i, i)
}

// dots emits the loop over R12 elements, a multiple of 8, of inner products (or
// squared distances) of the vectors at qs with those at rs: sums in Z(i·len(rs)+j),
// two each, reduced. Every kernel adds in the same order. Uses AX, K1, Z16 … Z31.
func dots(qs, rs []string, f16, l2 bool) {
	n := len(qs) * len(rs)
	for i := range 2 * n {
		p("VPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	step := func(set int, disp int, mask string, z string) {
		for i, q := range qs {
			p("VMOVUPS%s %d(%s)(AX*4), %sZ%d", z, 4*disp, q, mask, 16+i)
		}
		for j, r := range rs {
			if f16 {
				p("VCVTPH2PS%s %d(%s)(AX*2), %sZ20", z, 2*disp, r, mask)
			} else {
				p("VMOVUPS%s %d(%s)(AX*4), %sZ20", z, 4*disp, r, mask)
			}
			for i := range qs {
				acc := set*n + i*len(rs) + j
				if l2 {
					p("VSUBPS Z20, Z%d, Z21", 16+i)
					p("VFMADD231PS Z21, Z21, Z%d", acc)
				} else {
					p("VFMADD231PS Z20, Z%d, Z%d", 16+i, acc)
				}
			}
		}
	}
	p("XORQ AX, AX")
	p("SUBQ $32, R12")
	p("JLT dot16")
	label("dot32")
	step(0, 0, "", "")
	step(1, 16, "", "")
	p("ADDQ $32, AX")
	p("CMPQ AX, R12")
	p("JLE dot32")
	label("dot16")
	p("ADDQ $16, R12")
	p("CMPQ AX, R12")
	p("JGT dot8")
	step(0, 0, "", "")
	p("ADDQ $16, AX")
	label("dot8")
	p("ADDQ $8, R12")
	p("CMPQ AX, R12")
	p("JGT dotsum")
	p("MOVL $255, R12")
	p("KMOVW R12, K1")
	step(1, 0, "K1, ", ".Z")
	label("dotsum")
	for i := range n {
		p("VADDPS Z%d, Z%d, Z%d", n+i, i, i)
		reduceZ(i)
	}
}

func pair(name string, l2 bool) {
	head(name, "a, b *float32, n int) (s float32", 28)
	p("MOVQ a+0(FP), SI")
	p("MOVQ b+8(FP), R8")
	p("MOVQ n+16(FP), R12")
	dots([]string{"SI"}, []string{"R8"}, false, l2)
	p("VMOVSS X0, s+24(FP)")
	p("VZEROUPPER")
	p("RET")
}

var rowRegs = []string{"R8", "R9", "R10", "R11"}

// rows4 sets the row registers from four row numbers at DX.
func rows4() {
	for i, r := range rowRegs {
		p("MOVL %d(DX), %s", 4*i, r)
		p("IMULQ R13, %s", r)
		p("ADDQ BX, %s", r)
	}
}

func groups(f func()) {
	label("group")
	p("CMPQ CX, $4")
	p("JLT done")
	rows4()
	f()
	p("ADDQ $16, DI")
	p("ADDQ $16, DX")
	p("SUBQ $4, CX")
	p("JMP group")
	label("done")
	p("VZEROUPPER")
	p("RET")
}

func dotRows(name, base string, f16 bool) {
	head(name, fmt.Sprintf("out, q *float32, base *%s, ids *uint32, n, dim, stride int", base), 56)
	for i, r := range []string{"out DI", "q SI", "base BX", "ids DX", "n CX"} {
		var arg, reg string
		fmt.Sscan(r, &arg, &reg)
		p("MOVQ %s+%d(FP), %s", arg, 8*i, reg)
	}
	p("MOVQ stride+48(FP), R13")
	groups(func() {
		p("MOVQ dim+40(FP), R12")
		dots([]string{"SI"}, rowRegs, f16, false)
		for i := range 4 {
			p("VMOVSS X%d, %d(DI)", i, 4*i)
		}
	})
}

func dotTile() {
	head("dotTileZ", "out, q0, q1, r0, r1, r2 *float32, dim int", 56)
	for i, r := range []string{"out DI", "q0 SI", "q1 DX", "r0 R8", "r1 R9", "r2 R10", "dim R12"} {
		var arg, reg string
		fmt.Sscan(r, &arg, &reg)
		p("MOVQ %s+%d(FP), %s", arg, 8*i, reg)
	}
	dots([]string{"SI", "DX"}, []string{"R8", "R9", "R10"}, false, false)
	for i := range 6 {
		p("VMOVSS X%d, %d(DI)", i, 4*i)
	}
	p("VZEROUPPER")
	p("RET")
}

// score emits the scoring of signed bytes (bits 8) or 4-bit codes with VNNI; n is the
// number of code bytes. Signed bytes become unsigned by adding 128, which 128·Σq takes
// off again.
func score(name string, bits int) {
	head(name, "out *float32, q *int8, base *byte, ids *uint32, n, bytes, stride int, consts *[4]float32", 64)
	for i, r := range []string{"out DI", "q SI", "base BX", "ids DX", "n CX"} {
		var arg, reg string
		fmt.Sscan(r, &arg, &reg)
		p("MOVQ %s+%d(FP), %s", arg, 8*i, reg)
	}
	p("MOVQ bytes+40(FP), R12")
	p("MOVQ stride+48(FP), R13")
	p("MOVQ consts+56(FP), R14")
	if bits == 8 {
		p("MOVL $0x80808080, AX")
		p("VPBROADCASTD AX, Z15")
		p("VPXORD Z14, Z14, Z14")
		p("XORQ AX, AX")
		label("sumq") // −128·Σq starts every sum
		p("VPDPBUSD (SI)(AX*1), Z15, Z14")
		p("ADDQ $64, AX")
		p("CMPQ AX, R12")
		p("JLT sumq")
		p("VPXORD Z0, Z0, Z0")
		p("VPSUBD Z14, Z0, Z14")
	} else {
		p("MOVL $0x0f0f0f0f, AX")
		p("VPBROADCASTD AX, Y15")
		p("VPXORD Z14, Z14, Z14")
	}
	groups(func() {
		for i := range 4 {
			p("VMOVDQA32 Z14, Z%d", 4+i)
		}
		p("XORQ AX, AX")
		label("loop")
		if bits == 8 {
			p("VMOVDQU32 (SI)(AX*1), Z0")
		} else {
			p("VMOVDQU32 (SI)(AX*2), Z0")
		}
		for i, r := range rowRegs {
			if bits == 8 {
				p("VPXORD 8(%s)(AX*1), Z15, Z1", r)
			} else {
				p("VMOVDQU 8(%s)(AX*1), Y1", r)
				p("VPSRLW $4, Y1, Y2")
				p("VPAND Y15, Y1, Y1")
				p("VPAND Y15, Y2, Y2")
				p("VINSERTI64X4 $1, Y2, Z1, Z1")
			}
			p("VPDPBUSD Z0, Z1, Z%d", 4+i)
		}
		p("ADDQ $%d, AX", 8*bits)
		p("CMPQ AX, R12")
		p("JLT loop")
		for i := range 4 {
			p("VEXTRACTI64X4 $1, Z%d, Y0", 4+i)
			p("VPADDD Y0, Y%d, Y%d", 4+i, 4+i)
		}
		p("VPHADDD Y5, Y4, Y4")
		p("VPHADDD Y7, Y6, Y6")
		p("VPHADDD Y6, Y4, Y4")
		p("VEXTRACTI128 $1, Y4, X5")
		p("VPADDD X5, X4, X4")
		// A·(scale·sum + offset) + beta·B + bias, as in dist_amd64.s.
		p("VCVTDQ2PS X4, X4")
		p("VBROADCASTSS (R14), X0")
		p("VBROADCASTSS 4(R14), X1")
		p("VFMADD213PS X1, X0, X4")
		for k := range 2 {
			p("VMOVSS %d(R8), X%d", 4*k, 2+k)
			for i, r := range rowRegs[1:] {
				p("VINSERTPS $0x%d0, %d(%s), X%d, X%d", i+1, 4*k, r, 2+k, 2+k)
			}
		}
		p("VBROADCASTSS 12(R14), X0")
		p("VMULPS X0, X3, X3")
		p("VFMADD213PS X3, X2, X4")
		p("VBROADCASTSS 8(R14), X0")
		p("VADDPS X0, X4, X4")
		p("VMOVUPS X4, (DI)")
	})
}

func all() {
	for rows := 1; rows <= 14; rows++ {
		for panels := 1; panels <= 2; panels++ {
			gemm(rows, panels, false)
			if rows >= 8 {
				gemm(rows, panels, true)
			}
		}
	}
	for panels := 1; panels <= 2; panels++ {
		for rows := 1; rows <= 12; rows++ {
			if rows <= 10 {
				int8Tile(rows, panels, false)
			}
			int8Tile(rows, panels, true)
		}
	}
	quantize8()
	pair("dotF32Z", false)
	pair("l2F32Z", true)
	dotRows("dotRowsF32Z", "float32", false)
	dotRows("dotRowsF16Z", "uint16", true)
	dotTile()
	score("score8VNNI", 8)
	score("score4VNNI", 4)
}

func main() {
	quiet = os.Args[1] == "go"
	fmt.Fprint(w, "// Code generated by gen_avx512.go; DO NOT EDIT.\n\n")
	if !quiet {
		fmt.Fprint(w, "#include \"textflag.h\"\n")
		all()
		os.Stdout.Write(out.Bytes())
		return
	}
	fmt.Fprint(w, "package simd\n")
	all()
	for _, d := range decls {
		fmt.Fprintf(w, "\n//go:noescape\n%s\n", d)
	}
	tables()
	src, err := format.Source(out.Bytes())
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(src)
}

// tables writes the choice of a kernel by rows and panels: direct calls, so that the
// arguments stay on the stack.
func tables() {
	choice := func(name, typ, kernel, suffix string, from, to int) {
		fmt.Fprintf(w, "\nfunc %s(rows, panels int, a *%s) {\n\tswitch 2*rows + panels {\n", name, typ)
		for r := from; r <= to; r++ {
			for q := 1; q <= 2; q++ {
				fmt.Fprintf(w, "\tcase %d:\n\t\t%s%dx%d%s(a)\n", 2*r+q, kernel, r, q, suffix)
			}
		}
		fmt.Fprint(w, "\tdefault:\n\t\tpanic(\"simd: no such kernel\")\n\t}\n}\n")
	}
	choice("gemmZ", "gemmZArgs", "gemmZ", "", 1, 14)
	choice("gemmZPacked", "gemmZArgs", "gemmZ", "packed", 8, 14)
	choice("int8Z", "int8ZArgs", "int8Z", "", 1, 10)
	choice("int8VNNI", "int8ZArgs", "int8VNNI", "", 1, 12)
}
