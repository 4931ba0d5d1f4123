//go:build ignore

// gen_gemm writes gemm_amd64.s: the AVX2 microkernels of the matrix multiply.
//
//	go run gen_gemm.go > gemm_amd64.s
package main

import (
	"bufio"
	"fmt"
	"os"
)

var w = bufio.NewWriter(os.Stdout)

func p(format string, a ...any) { fmt.Fprintf(w, "\t"+format+"\n", a...) }
func label(s string)            { fmt.Fprintf(w, "%s:\n", s) }

// Registers: CX k, SI a (rows 0…2), R8 a of rows 3…5, DX row stride, R9 k stride,
// DI b, R10 b stride, R11 init or c, R12 its row stride.
func addr(row int, disp int) string {
	base, r := "SI", row
	if row >= 3 {
		base, r = "R8", row-3
	}
	d := ""
	if disp != 0 {
		d = fmt.Sprint(disp)
	}
	switch r {
	case 0:
		return fmt.Sprintf("%s(%s)", d, base)
	default:
		return fmt.Sprintf("%s(%s)(DX*%d)", d, base, r)
	}
}

// step is one k: two loads of b and a broadcast FMA pair per row.
func step(rows, adisp, bdisp int) {
	p("VMOVUPS %d(DI), Y12", bdisp)
	p("VMOVUPS %d(DI), Y13", bdisp+32)
	for r := range rows {
		t := 14 + r%2
		p("VBROADCASTSS %s, Y%d", addr(r, adisp), t)
		p("VFMADD231PS Y12, Y%d, Y%d", t, 2*r)
		p("VFMADD231PS Y13, Y%d, Y%d", t, 2*r+1)
	}
}

// kernel writes c[rows,16] = init + a·b. An element is one chain of sums
// over k, so that it does not depend on the rows beside it; few rows wait for the FMA,
// but rather for memory.
func kernel(rows int, packed bool) {
	name := fmt.Sprintf("gemmPacked%d", rows)
	if !packed {
		name = fmt.Sprintf("gemmStrided%d", rows)
	}
	fmt.Fprintf(w, "\n// func %s(args *gemmArgs)\nTEXT ·%s(SB), NOSPLIT, $0-8\n", name, name)
	p("MOVQ args+0(FP), AX")
	for _, x := range []struct {
		off int
		reg string
	}{{0, "CX"}, {8, "SI"}, {16, "DX"}, {24, "R9"}, {32, "DI"}, {40, "R10"}, {48, "R11"}, {56, "R12"}} {
		p("MOVQ %d(AX), %s", x.off, x.reg)
	}
	if rows > 3 {
		p("LEAQ (SI)(DX*2), R8")
		p("ADDQ DX, R8")
	}
	for r := range rows {
		p("VMOVUPS (R11), Y%d", 2*r)
		p("VMOVUPS 32(R11), Y%d", 2*r+1)
		if r < rows-1 {
			p("ADDQ R12, R11")
		}
	}
	next := func(n int) {
		if packed {
			return
		}
		for range n {
			p("ADDQ R9, SI")
			if rows > 3 {
				p("ADDQ R9, R8")
			}
			p("ADDQ R10, DI")
		}
	}
	const unroll = 4
	p("SUBQ $%d, CX", unroll)
	p("JLT tail")
	p("PCALIGN $32")
	label("loop")
	for u := range unroll {
		if packed {
			if u == 0 && rows == 6 {
				p("PREFETCHT0 1024(DI)")
			}
			step(rows, 4*u, 64*u)
			if u%2 == 1 && rows == 6 {
				p("PREFETCHT0 %d(DI)", 1024+64*u)
			}
		} else {
			step(rows, 0, 0)
			next(1)
		}
	}
	if packed {
		p("ADDQ $%d, SI", 4*unroll)
		if rows > 3 {
			p("ADDQ $%d, R8", 4*unroll)
		}
		p("ADDQ $%d, DI", 64*unroll)
	}
	p("SUBQ $%d, CX", unroll)
	p("JGE loop")
	label("tail")
	p("ADDQ $%d, CX", unroll)
	p("JLE store")
	label("rest")
	step(rows, 0, 0)
	if packed {
		p("ADDQ $4, SI")
		if rows > 3 {
			p("ADDQ $4, R8")
		}
		p("ADDQ $64, DI")
	} else {
		next(1)
	}
	p("DECQ CX")
	p("JNZ rest")
	label("store")
	p("MOVQ 64(AX), R11")
	p("MOVQ 72(AX), R12")
	for r := range rows {
		p("VMOVUPS Y%d, (R11)", 2*r)
		p("VMOVUPS Y%d, 32(R11)", 2*r+1)
		if r < rows-1 {
			p("ADDQ R12, R11")
		}
	}
	p("VZEROUPPER")
	p("RET")
}

// tile is kernel for A in its own panel [k][rows], where the loads of a step meet
// different banks of the cache; it prefetches what follows at next+80 by next+88
// bytes every four steps.
func tile(rows int) {
	fmt.Fprintf(w, "\n// func gemmTile%d(args *gemmArgs)\nTEXT ·gemmTile%d(SB), NOSPLIT, $0-8\n", rows, rows)
	p("MOVQ args+0(FP), AX")
	for _, x := range []struct {
		off int
		reg string
	}{{0, "CX"}, {8, "SI"}, {32, "DI"}, {48, "R11"}, {56, "R12"}, {80, "R8"}, {88, "R9"}} {
		p("MOVQ %d(AX), %s", x.off, x.reg)
	}
	for r := range rows {
		p("VMOVUPS (R11), Y%d", 2*r)
		p("VMOVUPS 32(R11), Y%d", 2*r+1)
		if r < rows-1 {
			p("ADDQ R12, R11")
		}
	}
	one := func(u int) {
		p("VMOVUPS %d(DI), Y12", 64*u)
		p("VMOVUPS %d(DI), Y13", 64*u+32)
		for r := range rows {
			t := 14 + r%2
			p("VBROADCASTSS %d(SI), Y%d", 4*(u*rows+r), t)
			p("VFMADD231PS Y12, Y%d, Y%d", t, 2*r)
			p("VFMADD231PS Y13, Y%d, Y%d", t, 2*r+1)
		}
	}
	const unroll = 4
	p("SUBQ $%d, CX", unroll)
	p("JLT tail")
	p("PCALIGN $32")
	label("loop")
	p("PREFETCHT1 (R8)")
	p("ADDQ R9, R8")
	for u := range unroll {
		one(u)
	}
	p("ADDQ $%d, SI", 4*rows*unroll)
	p("ADDQ $%d, DI", 64*unroll)
	p("SUBQ $%d, CX", unroll)
	p("JGE loop")
	label("tail")
	p("ADDQ $%d, CX", unroll)
	p("JLE store")
	label("rest")
	one(0)
	p("ADDQ $%d, SI", 4*rows)
	p("ADDQ $64, DI")
	p("DECQ CX")
	p("JNZ rest")
	label("store")
	p("MOVQ 64(AX), R11")
	p("MOVQ 72(AX), R12")
	for r := range rows {
		p("VMOVUPS Y%d, (R11)", 2*r)
		p("VMOVUPS Y%d, 32(R11)", 2*r+1)
		if r < rows-1 {
			p("ADDQ R12, R11")
		}
	}
	p("VZEROUPPER")
	p("RET")
}

// packA writes dst[8·k8][rows] = src[rows, 8·k8]. Each store of eight floats is
// overlapped by the next; the last one writes 8-rows floats too many.
func packA(rows int) {
	fmt.Fprintf(w, "\n// func packA%d(dst, src *float32, k8, stride int)\nTEXT ·packA%d(SB), NOSPLIT, $0-32\n", rows, rows)
	p("MOVQ dst+0(FP), DI")
	p("MOVQ src+8(FP), SI")
	p("MOVQ k8+16(FP), CX")
	p("MOVQ stride+24(FP), DX")
	p("LEAQ (SI)(DX*2), R9")
	p("ADDQ DX, R9")
	label("block")
	for r := range 8 {
		base, q := "SI", min(r, rows-1)
		if q >= 3 {
			base, q = "R9", q-3
		}
		if q == 0 {
			p("VMOVUPS (%s), Y%d", base, r)
		} else {
			p("VMOVUPS (%s)(DX*%d), Y%d", base, q, r)
		}
	}
	transposed()
	for i := range 4 {
		p("VPERM2F128 $0x20, Y%d, Y%d, Y%d", i+4, i, 8+i)
	}
	for i := range 4 {
		p("VPERM2F128 $0x31, Y%d, Y%d, Y%d", i+4, i, 12+i)
	}
	for i := range 8 {
		p("VMOVUPS Y%d, %d(DI)", 8+i, 4*rows*i)
	}
	p("ADDQ $32, SI")
	p("ADDQ $32, R9")
	p("ADDQ $%d, DI", 32*rows)
	p("DECQ CX")
	p("JNZ block")
	p("VZEROUPPER")
	p("RET")
}

// transposed does the work of an 8×8 transpose of Y0 … Y7 but for the last exchange
// of halves, Y(i) with Y(i+4).
func transposed() {
	for i := 0; i < 8; i += 2 {
		p("VUNPCKLPS Y%d, Y%d, Y%d", i+1, i, 8+i)
		p("VUNPCKHPS Y%d, Y%d, Y%d", i+1, i, 9+i)
	}
	for i := 0; i < 8; i += 4 {
		p("VSHUFPS $0x44, Y%d, Y%d, Y%d", 10+i, 8+i, i)
		p("VSHUFPS $0xEE, Y%d, Y%d, Y%d", 10+i, 8+i, i+1)
		p("VSHUFPS $0x44, Y%d, Y%d, Y%d", 11+i, 9+i, i+2)
		p("VSHUFPS $0xEE, Y%d, Y%d, Y%d", 11+i, 9+i, i+3)
	}
}

// transpose writes dst[k,16] = src[16 rows, k] for k a multiple of 8, as two
// halves of eight rows.
func transpose() {
	fmt.Fprint(w, "\n// func packT8(dst, src *float32, k8, stride int)\nTEXT ·packT8(SB), NOSPLIT, $0-32\n")
	p("MOVQ dst+0(FP), DI")
	p("MOVQ src+8(FP), SI")
	p("MOVQ k8+16(FP), CX")
	p("MOVQ stride+24(FP), DX")
	p("LEAQ (DX)(DX*2), R8")
	p("LEAQ (SI)(DX*4), R9")
	label("block")
	for r := range 4 {
		a := []string{"(SI)", "(SI)(DX*1)", "(SI)(DX*2)", "(SI)(R8*1)"}[r]
		b := []string{"(R9)", "(R9)(DX*1)", "(R9)(DX*2)", "(R9)(R8*1)"}[r]
		p("VMOVUPS %s, Y%d", a, r)
		p("VMOVUPS %s, Y%d", b, r+4)
	}
	transposed()
	for i := range 4 {
		p("VPERM2F128 $0x20, Y%d, Y%d, Y8", i+4, i)
		p("VPERM2F128 $0x31, Y%d, Y%d, Y9", i+4, i)
		p("VMOVUPS Y8, %d(DI)", 64*i)
		p("VMOVUPS Y9, %d(DI)", 64*(i+4))
	}
	p("ADDQ $32, SI")
	p("ADDQ $32, R9")
	p("ADDQ $512, DI")
	p("DECQ CX")
	p("JNZ block")
	p("VZEROUPPER")
	p("RET")
}

func main() {
	fmt.Fprint(w, "// Code generated by gen_gemm.go; DO NOT EDIT.\n\n#include \"textflag.h\"\n")
	for _, packed := range []bool{true, false} {
		for rows := 1; rows <= 6; rows++ {
			kernel(rows, packed)
		}
	}
	for rows := 1; rows <= 6; rows++ {
		tile(rows)
		packA(rows)
	}
	transpose()
	w.Flush()
}
