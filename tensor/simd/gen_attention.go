//go:build ignore

// gen_attention writes attention_amd64.s: products of four rows with a cache of keys and
// values at AVX-512, and rotary positions.
//
//	go run gen_attention.go > attention_amd64.s
package main

import "fmt"

func p(format string, a ...any) { fmt.Printf("\t"+format+"\n", a...) }
func label(s string)            { fmt.Printf("%s:\n", s) }

func head(name string, args ...string) {
	fmt.Printf("\n// func %s(args *%sArgs)\nTEXT ·%s(SB), NOSPLIT, $0-8\n", name, name, name)
	p("MOVQ args+0(FP), AX")
	for i, r := range args {
		if r != "" {
			p("MOVQ %d(AX), %s", 8*i, r)
		}
	}
}

// rows are the addresses of four rows; R9 is three strides.
func rows(base, stride string) []string {
	p("LEAQ (%s)(%s*2), R9", stride, stride)
	return []string{"(" + base + ")", "(" + base + ")(" + stride + "*1)", "(" + base + ")(" + stride + "*2)", "(" + base + ")(R9*1)"}
}

// scores4: dst[4, n] = q[4, d]·k, panels [d][16] two at a time: Z0 … Z7. An element is
// one chain of sums over d, as in Gemm. While a pair is worked on the next is fetched,
// and behind the last pair what comes next. K1 and K2 cut the last pair's columns, K3
// and K4 those at hand.
func scores4() {
	head("scores4", "DI", "R11", "SI", "R8", "DX", "BX", "CX", "", "", "R13")
	q := rows("SI", "R8")
	p("KMOVW 56(AX), K1")
	p("KMOVW 64(AX), K2")
	p("KXNORW K0, K0, K0")
	p("KMOVW K0, K3")
	p("KMOVW K0, K4")
	p("MOVQ DX, R10") // bytes of a panel: 64·d
	p("SHLQ $6, R10")
	label("pair")
	p("LEAQ (BX)(R10*2), R12") // what is fetched
	p("CMPQ CX, $1")
	p("JNE whole")
	p("KMOVW K1, K3")
	p("KMOVW K2, K4")
	p("MOVQ R13, R12")
	label("whole")
	for i := range 8 {
		p("VPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	p("MOVQ DX, R14")
	p("PCALIGN $32")
	label("loop")
	p("VMOVUPS.Z (BX), K3, Z28")
	p("VMOVUPS.Z (BX)(R10*1), K4, Z29")
	for r := range 4 {
		p("VBROADCASTSS %s, Z%d", q[r], 30+r%2)
		for h := range 2 {
			p("VFMADD231PS Z%d, Z%d, Z%d", 28+h, 30+r%2, 2*r+h)
		}
	}
	p("PREFETCHT0 (R12)")
	p("PREFETCHT0 64(R12)")
	p("ADDQ $128, R12")
	p("ADDQ $64, BX")
	p("ADDQ $4, SI")
	p("DECQ R14")
	p("JNZ loop")
	p("ADDQ R10, BX") // one panel further
	p("MOVQ DX, R14")
	p("SHLQ $2, R14")
	p("SUBQ R14, SI")
	p("MOVQ DI, R15")
	for r := range 4 {
		for h := range 2 {
			p("VMOVUPS Z%d, K%d, %d(R15)", 2*r+h, 3+h, 64*h)
		}
		if r < 3 {
			p("ADDQ R11, R15")
		}
	}
	p("ADDQ $128, DI")
	p("DECQ CX")
	p("JNZ pair")
	p("VZEROUPPER")
	p("RET")
}

// values4: dst[4, 64] = w[4, n]·v[n, 64], or added to it. Rows are fetched 8 KB ahead, and
// in place of what lies behind the last what comes next.
func values4() {
	head("values4", "DI", "R11", "SI", "R8", "BX", "DX", "CX", "R10", "R13")
	w := rows("SI", "R8")
	p("TESTQ R10, R10") // add
	p("JNZ load")
	for i := range 16 {
		p("VPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	p("JMP start")
	label("load")
	each := func(f func(i, at int)) {
		p("MOVQ DI, R15")
		for r := range 4 {
			for h := range 4 {
				f(4*r+h, 64*h)
			}
			if r < 3 {
				p("ADDQ R11, R15")
			}
		}
	}
	each(func(i, at int) { p("VMOVUPS %d(R15), Z%d", at, i) })
	label("start")
	p("MOVQ CX, R14") // the end of the rows
	p("IMULQ DX, R14")
	p("ADDQ BX, R14")
	p("LEAQ 8192(BX), R12")
	p("CMPQ R12, R14")
	p("CMOVQCC R13, R12")
	p("PCALIGN $32")
	label("loop")
	for h := range 4 {
		p("VMOVUPS %d(BX), Z%d", 64*h, 24+h)
		p("PREFETCHT0 %d(R12)", 64*h)
	}
	for r := range 4 {
		p("VBROADCASTSS %s, Z%d", w[r], 28+r)
		for h := range 4 {
			p("VFMADD231PS Z%d, Z%d, Z%d", 24+h, 28+r, 4*r+h)
		}
	}
	p("ADDQ DX, R12")
	p("CMPQ R12, R14")
	p("CMOVQEQ R13, R12")
	p("ADDQ DX, BX")
	p("ADDQ $4, SI")
	p("DECQ CX")
	p("JNZ loop")
	each(func(i, at int) { p("VMOVUPS Z%d, %d(R15)", i, at) })
	p("VZEROUPPER")
	p("RET")
}

// rotate: for every head, which has two halves of 16·n or 8·n columns, a, b become
// (a·cos - b·sin)·scale, (b·cos + a·sin)·scale, each product and sum rounded.
func rotate(y string, width int) {
	fmt.Printf("\n// func rotate%s(dst, x *float32, stride, heads int, cos, sin *float32, n int, scale *float32)\nTEXT ·rotate%s(SB), NOSPLIT, $0-64\n", y, y)
	for i, r := range []string{"DI", "SI", "DX", "CX", "R8", "R9", "R10", "R11"} {
		p("MOVQ %s+%d(FP), %s", []string{"dst", "x", "stride", "heads", "cos", "sin", "n", "scale"}[i], 8*i, r)
	}
	p("VBROADCASTSS (R11), %s8", y)
	p("MOVQ R10, R14") // bytes of a half
	p("IMULQ $%d, R14", width)
	label("head")
	p("XORQ AX, AX")
	label("loop")
	p("VMOVUPS (SI)(AX*1), %s0", y)
	p("LEAQ (SI)(R14*1), BX")
	p("VMOVUPS (BX)(AX*1), %s1", y)
	p("VMOVUPS (R8)(AX*1), %s2", y)
	p("VMOVUPS (R9)(AX*1), %s3", y)
	p("VMULPS %s2, %s0, %s4", y, y, y)
	p("VMULPS %s3, %s1, %s5", y, y, y)
	p("VMULPS %s2, %s1, %s6", y, y, y)
	p("VMULPS %s3, %s0, %s7", y, y, y)
	p("VSUBPS %s5, %s4, %s4", y, y, y)
	p("VADDPS %s7, %s6, %s6", y, y, y)
	p("VMULPS %s8, %s4, %s4", y, y, y)
	p("VMULPS %s8, %s6, %s6", y, y, y)
	p("VMOVUPS %s4, (DI)(AX*1)", y)
	p("LEAQ (DI)(R14*1), BX")
	p("VMOVUPS %s6, (BX)(AX*1)", y)
	p("ADDQ $%d, AX", width)
	p("CMPQ AX, R14")
	p("JLT loop")
	p("ADDQ DX, SI")
	p("LEAQ (DI)(R14*2), DI")
	p("DECQ CX")
	p("JNZ head")
	p("VZEROUPPER")
	p("RET")
}

func main() {
	fmt.Print("// Code generated by gen_attention.go; DO NOT EDIT.\n\n#include \"textflag.h\"\n")
	scores4()
	values4()
	rotate("Y", 32)
	rotate("Z", 64)
}
