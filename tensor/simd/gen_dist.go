//go:build ignore

// gen_dist writes dist512_amd64.s and dist512_amd64.go: distance kernels for AVX-512.
// Callers pass row numbers that lie inside the table, and four rows or a multiple.
//
//	go run gen_dist.go s > dist512_amd64.s
//	go run gen_dist.go go > dist512_amd64.go
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"strings"
)

var text, decl bytes.Buffer

func p(format string, a ...any) { fmt.Fprintf(&text, "\t"+format+"\n", a...) }

func label(s string) { fmt.Fprintf(&text, "%s:\n", s) }

func head(name, sig string, size int) {
	fmt.Fprintf(&decl, "\n//go:noescape\nfunc %s(%s)\n", name, sig)
	fmt.Fprintf(&text, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, sig, name, size)
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

// scoreArgs loads the arguments of a scoring kernel.
func scoreArgs(name, query string) {
	head(name, "out *float32, "+query+", base *byte, ids *uint32, n, size, stride int, consts *[4]float32", 64)
	for i, r := range []string{"DI", "SI", "BX", "DX", "CX", "R12", "R13", "R14"} {
		p("MOVQ %s+%d(FP), %s", []string{"out", strings.Fields(query)[0], "base", "ids", "n", "size", "stride", "consts"}[i], 8*i, r)
	}
}

// finish turns the sums in the four lanes of X4 into scores, as FINISH4 of
// dist_amd64.s: A·(scale·sum + offset) + beta·B + bias.
func finish() {
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
}

// fold sums the four 128-bit lanes of Z4 into X4.
func fold() {
	p("VEXTRACTI64X4 $1, Z4, Y0")
	p("VPADDD Y0, Y4, Y4")
	p("VEXTRACTI128 $1, Y4, X0")
	p("VPADDD X0, X4, X4")
}

// reduce4 sums the int32 lanes of Z4 … Z7 into the four lanes of X4.
func reduce4() {
	for i := range 2 {
		p("VPUNPCKLDQ Z%d, Z%d, Z0", 5+2*i, 4+2*i)
		p("VPUNPCKHDQ Z%d, Z%d, Z1", 5+2*i, 4+2*i)
		p("VPADDD Z0, Z1, Z%d", 4+2*i)
	}
	p("VPUNPCKLQDQ Z6, Z4, Z0")
	p("VPUNPCKHQDQ Z6, Z4, Z1")
	p("VPADDD Z0, Z1, Z4")
	fold()
}

// score8 emits the scoring of signed bytes with VNNI. They become unsigned by adding
// 128, which 128·Σq takes off again.
func score8() {
	scoreArgs("score8VNNI", "q *int8")
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
	groups(func() {
		for i := range 4 {
			p("VMOVDQA32 Z14, Z%d", 4+i)
		}
		p("XORQ AX, AX")
		label("loop")
		p("VMOVDQU32 (SI)(AX*1), Z0")
		for i, r := range rowRegs {
			p("VPXORD 8(%s)(AX*1), Z15, Z1", r)
			p("VPDPBUSD Z0, Z1, Z%d", 4+i)
		}
		p("ADDQ $64, AX")
		p("CMPQ AX, R12")
		p("JLT loop")
		reduce4()
		finish()
	})
}

// score4 emits the scoring of 4-bit codes with VNNI, 128 dimensions at a time and 64
// at the end; the query's bytes are put in the order of the codes' halves.
func score4() {
	scoreArgs("score4VNNI", "q *int8")
	p("MOVL $0x0f0f0f0f, AX")
	p("VPBROADCASTD AX, Z15")
	p("MOVL $0x0f, AX")
	p("KMOVW AX, K1")
	p("SUBQ $64, R12")
	step := func() {
		for i := range 4 {
			p("VPSRLW $4, Z%d, Z%d", 20+i, 24+i)
			p("VPANDD Z15, Z%d, Z%d", 20+i, 20+i)
			p("VPANDD Z15, Z%d, Z%d", 24+i, 24+i)
			p("VPDPBUSD Z0, Z%d, Z%d", 20+i, 4+i)
			p("VPDPBUSD Z1, Z%d, Z%d", 24+i, 8+i)
		}
	}
	groups(func() {
		for i := range 8 {
			p("VPXORD Z%d, Z%d, Z%d", 4+i, 4+i, 4+i)
		}
		p("XORQ AX, AX")
		p("CMPQ AX, R12")
		p("JGT half")
		label("loop")
		p("VMOVDQU32 (SI)(AX*2), Z2")
		p("VMOVDQU32 64(SI)(AX*2), Z3")
		p("VSHUFI64X2 $0x44, Z3, Z2, Z0")
		p("VSHUFI64X2 $0xEE, Z3, Z2, Z1")
		for i, r := range rowRegs {
			p("VMOVDQU32 8(%s)(AX*1), Z%d", r, 20+i)
		}
		step()
		p("ADDQ $64, AX")
		p("CMPQ AX, R12")
		p("JLE loop")
		label("half")
		p("BTQ $5, R12")
		p("JCC sum")
		p("VMOVDQU64.Z (SI)(AX*2), K1, Z0")
		p("VMOVDQU64.Z 32(SI)(AX*2), K1, Z1")
		for i, r := range rowRegs {
			p("VMOVDQU64.Z 8(%s)(AX*1), K1, Z%d", r, 20+i)
		}
		step()
		label("sum")
		for i := range 4 {
			p("VPADDD Z%d, Z%d, Z%d", 8+i, 4+i, 4+i)
		}
		reduce4()
		finish()
	})
}

// score1 emits the scoring of 1-bit codes with VPOPCNTQ, two words of 64 dimensions at
// a time: of a pair's eight counts, the query's four planes are the rows and the two
// words the columns. Size is the number of words.
func score1() {
	scoreArgs("score1Z", "planes *uint64")
	p("MOVQ $0x0703060205010400, AX") // planes of two words, side by side
	p("VMOVQ AX, X14")
	p("VPMOVZXBQ X14, Z14")
	p("MOVQ $0x0101010100000000, AX") // a plane's weight, as a shift
	p("VMOVQ AX, X15")
	p("MOVQ $0x0303030302020202, AX")
	p("VPINSRQ $1, AX, X15, X15")
	p("VPMOVZXBD X15, Z15")
	p("MOVL $0x0f, AX")
	p("KMOVW AX, K1")
	p("MOVL $0xf000, AX") // the plane of the sign
	p("KMOVW AX, K2")
	p("VPXORD Z13, Z13, Z13")
	p("SUBQ $2, R12")
	groups(func() {
		for i := range 4 {
			p("VPXORD Z%d, Z%d, Z%d", 4+i, 4+i, 4+i)
		}
		p("MOVQ SI, R15")
		p("XORQ AX, AX")
		p("CMPQ AX, R12")
		p("JGT odd")
		step := func(load string) {
			for i, r := range rowRegs {
				p("%s 8(%s)(AX*8), Z%d", load, r, 20+i)
				p("VPANDQ Z0, Z%d, Z%d", 20+i, 20+i)
				p("VPOPCNTQ Z%d, Z%d", 20+i, 20+i)
				p("VPADDQ Z%d, Z%d, Z%d", 20+i, 4+i, 4+i)
			}
		}
		label("loop")
		p("VPERMQ (R15), Z14, Z0")
		step("VBROADCASTI64X2")
		p("ADDQ $64, R15")
		p("ADDQ $2, AX")
		p("CMPQ AX, R12")
		p("JLE loop")
		label("odd")
		p("BTQ $0, R12")
		p("JCC sum")
		p("VMOVDQU64.Z (R15), K1, Z0")
		p("VPERMQ Z0, Z14, Z0")
		step("VPBROADCASTQ")
		label("sum")
		// Counts fit 32 bits: two rows share a register, then four a lane.
		for i := range 2 {
			p("VPSLLQ $32, Z%d, Z%d", 5+2*i, 5+2*i)
			p("VPORQ Z%d, Z%d, Z%d", 5+2*i, 4+2*i, 4+2*i)
		}
		p("VPUNPCKLQDQ Z6, Z4, Z0")
		p("VPUNPCKHQDQ Z6, Z4, Z1")
		p("VPADDD Z0, Z1, Z4")
		p("VPSLLVD Z15, Z4, Z4")
		p("VPSUBD Z4, Z13, K2, Z4")
		fold()
		finish()
	})
}

func main() {
	pair("dotF32Z", false)
	pair("l2F32Z", true)
	dotRows("dotRowsF32Z", "float32", false)
	dotRows("dotRowsF16Z", "uint16", true)
	dotTile()
	score8()
	score4()
	score1()
	const mark = "// Code generated by gen_dist.go; DO NOT EDIT.\n\n"
	if os.Args[1] != "go" {
		os.Stdout.WriteString(mark + "#include \"textflag.h\"\n" + text.String())
		return
	}
	src, err := format.Source([]byte(mark + "package simd\n" + decl.String()))
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(src)
}
