//go:build ignore

// gen_avx512 writes avx512_amd64.s and avx512_amd64.go: the AVX-512 kernels of matrix
// multiplies (float32, int8 with and without VNNI; bfloat16 in gen_bf16.go).
//
//	go run gen_avx512.go gen_bf16.go s > avx512_amd64.s
//	go run gen_avx512.go gen_bf16.go go > avx512_amd64.go
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

// address is base + index·scale + disp.
type address struct {
	base, index string
	scale, disp int
}

func (a address) String() string {
	s := fmt.Sprintf("%d(%s)", a.disp, a.base)
	if a.index != "" {
		s += fmt.Sprintf("(%s*%d)", a.index, a.scale)
	}
	return s
}

func rowAt(r, disp int) address {
	a := address{base: bases[r/3], disp: disp}
	if r%3 > 0 {
		a.index, a.scale = "DX", r%3
	}
	return a
}

func rowAddr(r, disp int) string { return rowAt(r, disp).String() }

// fma emits Z(sum) += Z(b) · Z(a), or · the float at from, in all lanes.
func fma(a int, from *address, b, sum int) {
	if from == nil {
		p("VFMADD231PS Z%d, Z%d, Z%d", b, a, sum)
		return
	}
	p("VFMADD231PS.BCST %s, Z%d, Z%d", from, b, sum)
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
// over k, so that it does not depend on the rows beside it. Packed kernels fetch one
// line of another panel, R8, for each k. Z28, Z29 b, Z30 and Z31 a. With pairs an element
// of a and of b is two bfloat16 numbers, neighbours along k; unpacked kernels then have at
// most 8 rows and fetch two lines of another panel, R12, for each pair.
func gemm(rows, panels int, packed, pairs bool) {
	name, mac := fmt.Sprintf("gemmZ%dx%d", rows, panels), fma
	if pairs {
		name, mac = fmt.Sprintf("gemmB%dx%d", rows, panels), dpbf16
	}
	if packed {
		name += "packed"
	}
	head(name, "args *gemmZArgs", 8)
	args(0, "CX", 8, "SI", 16, "DX", 24, "BX", 32, "DI", 40, "R10", 48, "R11", 56, "R14", 64, "R15")
	p("KMOVW 88(AX), K1")
	p("KMOVW 96(AX), K2")
	if packed {
		p("MOVQ 104(AX), R8")
		p("MOVQ 112(AX), R9")
	} else {
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
		a := func(r int) address {
			if !packed {
				return rowAt(r, 0)
			}
			if r >= 8 {
				r += 16 - rows
			}
			return address{"SI", "", 0, 64*u + 4*r}
		}
		p("VMOVUPS.Z (DI), K1, Z28")
		if panels == 2 {
			p("VMOVUPS.Z (R10), K2, Z29")
		}
		for r := range rows {
			if panels == 2 && r%2 == 0 {
				t := 30 + r/2%2
				p("VBROADCASTSS %s, Z%d", a(r), t)
				mac(t, nil, 28, acc(r, 0))
				mac(t, nil, 29, acc(r, 1))
				continue
			}
			for q := range panels {
				at := a(r)
				mac(0, &at, 28+q, acc(r, q))
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
	} else if pairs {
		p("MOVQ 104(AX), R12")
		p("MOVQ 112(AX), R15")
	}
	p("SUBQ $%d, CX", unroll)
	p("JLT tail")
	p("PCALIGN $32")
	label("loop")
	if packed {
		p("PREFETCHT1 (R8)")
		p("PREFETCHT1 64(R8)")
		p("ADDQ R9, R8")
		p("PREFETCHT0 512(SI)")
		p("PREFETCHT0 576(SI)")
		p("PREFETCHT0 512(DI)")
		p("PREFETCHT0 576(DI)")
		if panels == 2 {
			p("PREFETCHT0 512(R10)")
			p("PREFETCHT0 576(R10)")
		}
	}
	if pairs && !packed {
		p("PREFETCHT0 (R12)")
		p("PREFETCHT0 64(R12)")
		p("ADDQ R15, R12")
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

// int8Rows is the number of rows that an int8 kernel takes at most: each has a sum of
// integers and one of floats for two panels.
func int8Rows(vnni bool) int {
	if vnni {
		return 6
	}
	return 5
}

// int8Tile: c[rows, 16·panels] = bias + Σ over groups (a·b − zero·sums)·rowScale·scale; b
// are blocks of Int8Weights, a rows of bytes without sign: up to 127 with |b| ≤ 63 when
// vnni is false, so that four products fit 16 bits. A group is 16 steps of 8. The
// kernel fetches one line of R12 for each step, for whoever comes next. Z24 … Z27 b, Z28,
// Z29 a, Z30 and Z31 temporary; without vnni Z22 is too and Z23 has ones.
func int8Tile(rows, panels int, vnni bool) {
	name := fmt.Sprintf("int8Z%dx%d", rows, panels)
	if vnni {
		name = fmt.Sprintf("int8VNNI%dx%d", rows, panels)
	}
	head(name, "args *int8ZArgs", 8)
	args(0, "R11", 8, "SI", 16, "DX", 24, "DI", 32, "R10", 56, "BX", 64, "R9", 88, "R12", 96, "R13", 112, "CX")
	p("KMOVW 72(AX), K1")
	p("KMOVW 80(AX), K2")
	rowBases(rows)
	acc := func(r, q int) int { return r*panels + q }
	sum := func(r, q int) int { return (int8Rows(vnni)+r)*panels + q }
	for q := range panels {
		p("VMOVUPS.Z %d(CX), K%d, Z%d", 64*q, q+1, sum(0, q))
		for r := 1; r < rows; r++ {
			p("VMOVAPS Z%d, Z%d", sum(0, q), sum(r, q))
		}
	}
	if !vnni {
		p("VPTERNLOGD $255, Z23, Z23, Z23")
		p("VPSRLW $15, Z23, Z23")
	}
	b := []string{"DI", "R10"}
	label("group")
	p("VPXORD Z31, Z31, Z31")
	for r := range rows {
		p("VPSUBD.BCST %d(BX), Z31, Z30", 4*r)
		for q := range panels {
			p("VPMULLD (%s), Z30, Z%d", b[q], acc(r, q))
		}
	}
	for q := range panels {
		p("ADDQ $64, %s", b[q])
	}
	p("MOVQ $16, CX")
	p("CMPQ R11, CX")
	p("CMOVQLT R11, CX")
	p("SUBQ CX, R11")
	p("PCALIGN $32")
	label("loop")
	p("PREFETCHT0 (R12)")
	p("ADDQ R13, R12")
	for q := range panels {
		for h := range 2 {
			p("VMOVDQU32 %d(%s), Z%d", 64*h, b[q], 24+2*q+h)
		}
	}
	for r := range rows {
		for h := range 2 {
			p("VPBROADCASTD %s, Z%d", rowAddr(r, 4*h), 28+h)
		}
		for q := range panels {
			if vnni {
				p("VPDPBUSD Z%d, Z28, Z%d", 24+2*q, acc(r, q))
				p("VPDPBUSD Z%d, Z29, Z%d", 25+2*q, acc(r, q))
				continue
			}
			p("VPMADDUBSW Z%d, Z28, Z30", 24+2*q)
			p("VPMADDUBSW Z%d, Z29, Z22", 25+2*q)
			p("VPADDW Z22, Z30, Z30")
			p("VPMADDWD Z23, Z30, Z30")
			p("VPADDD Z30, Z%d, Z%d", acc(r, q), acc(r, q))
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
	for q := range panels {
		p("VMOVUPS (%s), Z%d", b[q], 24+q)
		p("ADDQ $64, %s", b[q])
	}
	for r := range rows {
		for q := range panels {
			p("VCVTDQ2PS Z%d, Z%d", acc(r, q), acc(r, q))
			p("VMULPS Z%d, Z%d, Z%d", 24+q, acc(r, q), acc(r, q))
			p("VFMADD231PS.BCST %d(R9), Z%d, Z%d", 4*r, acc(r, q), sum(r, q))
		}
	}
	p("ADDQ 104(AX), BX")
	p("ADDQ 104(AX), R9")
	p("TESTQ R11, R11")
	p("JNZ group")
	args(40, "R14", 48, "R15")
	for r := range rows {
		for q := range panels {
			p("VMOVUPS Z%d, K%d, %d(R14)", sum(r, q), q+1, 64*q)
		}
		if r < rows-1 {
			p("ADDQ R15, R14")
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

// quantizeGroups: groups of 128 floats to bytes, as quantizeGroup does: from lo, hi, the
// least and the largest and 0, scale = (hi−lo)/255 and zero = round(−lo/scale). It ends
// before a group with something not finite or a scale that is not positive or has no
// inverse, and gives their number. Scales and zeros are stride bytes apart.
func quantizeGroups() {
	head("quantizeGroupsZ", "dst *byte, x *float32, groups int, scale *float32, zero *int32, stride int, limit float32) (done int", 64)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ x+8(FP), SI")
	p("MOVQ groups+16(FP), CX")
	p("MOVQ scale+24(FP), R8")
	p("MOVQ zero+32(FP), R9")
	p("MOVQ stride+40(FP), R10")
	p("VMOVSS limit+48(FP), X16")
	p("XORQ AX, AX")
	p("VPXORD Z17, Z17, Z17")
	p("MOVL $0x3f800000, DX")
	p("VMOVD DX, X18")
	p("MOVL $0x7f800000, DX")
	p("VMOVD DX, X19")
	p("TESTQ CX, CX")
	p("JEQ done")
	label("loop")
	for i := range 8 {
		p("VMOVUPS %d(SI), Z%d", 64*i, i)
	}
	for i, op := range []string{"VMINPS", "VMAXPS", "VADDPS"} {
		to := 8 + 4*i
		if i == 2 {
			to = 20
		}
		for j := range 4 {
			p("%s Z%d, Z%d, Z%d", op, 2*j, 2*j+1, to+j)
		}
		p("%s Z%d, Z%d, Z%d", op, to, to+1, to)
		p("%s Z%d, Z%d, Z%d", op, to+2, to+3, to+2)
		p("%s Z%d, Z%d, Z%d", op, to, to+2, to)
	}
	p("VFPCLASSPSZ $0x99, Z20, K1")
	p("KORTESTW K1, K1")
	p("JNE done")
	for _, f := range []string{"VSHUFF64X2 $0x4e, Z%[1]d, Z%[1]d, Z%[2]d", "VSHUFF64X2 $0xb1, Z%[1]d, Z%[1]d, Z%[2]d", "VPERMILPS $0x4e, Z%[1]d, Z%[2]d", "VPERMILPS $0xb1, Z%[1]d, Z%[2]d"} {
		p(f, 8, 9)
		p(f, 12, 13)
		p("VMINPS Z9, Z8, Z8")
		p("VMAXPS Z13, Z12, Z12")
	}
	p("VMINSS X17, X8, X8")
	p("VMAXSS X17, X12, X12")
	p("VSUBSS X8, X12, X9")
	p("VDIVSS X16, X9, X9")
	p("VUCOMISS X17, X9")
	p("JLS done")
	p("VUCOMISS X19, X9")
	p("JHS done")
	p("VDIVSS X9, X18, X10")
	p("VUCOMISS X19, X10")
	p("JHS done")
	p("VMOVSS X9, (R8)")
	p("VXORPS X11, X11, X11")
	p("VSUBSS X8, X11, X11")
	p("VMULSS X10, X11, X11")
	p("VRNDSCALESS $0, X11, X11, X11")
	p("VCVTTSS2SI X11, DX")
	p("MOVL DX, (R9)")
	p("VBROADCASTSS X10, Z10")
	p("VBROADCASTSS X11, Z11")
	for i := range 8 {
		p("VFMADD213PS Z11, Z10, Z%d", i)
		p("VCVTPS2DQ Z%d, Z%d", i, i)
		p("VPMAXSD Z17, Z%d, Z%d", i, i)
		p("VPMOVUSDB Z%d, %d(DI)", i, 16*i)
	}
	p("ADDQ $512, SI")
	p("ADDQ $128, DI")
	p("ADDQ R10, R8")
	p("ADDQ R10, R9")
	p("INCQ AX")
	p("CMPQ AX, CX")
	p("JLT loop")
	label("done")
	p("MOVQ AX, done+56(FP)")
	p("VZEROUPPER")
	p("RET")
}

func all() {
	for _, pairs := range []bool{false, true} {
		for rows := 1; rows <= 14; rows++ {
			for panels := 1; panels <= 2; panels++ {
				if rows <= 8 || !pairs {
					gemm(rows, panels, false, pairs)
				}
				if rows >= 8 {
					gemm(rows, panels, true, pairs)
				}
			}
		}
	}
	roundPairs()
	packPairs()
	for panels := 1; panels <= 2; panels++ {
		for _, vnni := range []bool{false, true} {
			for rows := 1; rows <= int8Rows(vnni); rows++ {
				int8Tile(rows, panels, vnni)
			}
		}
	}
	quantize8()
	quantizeGroups()
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
	choice("gemmB", "gemmZArgs", "gemmB", "", 1, 8)
	choice("gemmBPacked", "gemmZArgs", "gemmB", "packed", 8, 14)
	choice("int8Z", "int8ZArgs", "int8Z", "", 1, int8Rows(false))
	choice("int8VNNI", "int8ZArgs", "int8VNNI", "", 1, int8Rows(true))
}
