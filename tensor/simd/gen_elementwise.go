//go:build ignore

// gen_elementwise writes elementwise_amd64.s and elementwise_amd64.go: AVX2 loops
// over vectors of float32, and elementwise512_amd64.s and .go: those for AVX-512.
//
//	go run gen_elementwise.go s > elementwise_amd64.s
//	go run gen_elementwise.go go > elementwise_amd64.go
//	go run gen_elementwise.go s512 > elementwise512_amd64.s
//	go run gen_elementwise.go go512 > elementwise512_amd64.go
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
)

var (
	w      = bufio.NewWriter(os.Stdout)
	consts = map[string]bool{}
	data   strings.Builder
	text   strings.Builder
	decl   strings.Builder
)

// wide is true for AVX-512: the bodies are written for eight lanes, p makes them
// sixteen.
var (
	wide   bool
	lanes  = 8
	suffix = "AVX2"
	yreg   = regexp.MustCompile(`\bY(\d)`)
)

func p(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	if wide {
		s = strings.Replace(yreg.ReplaceAllString(s, "Z$1"), "VROUNDPS $8,", "VRNDSCALEPS $8,", 1)
	}
	raw(s)
}

func raw(s string) { fmt.Fprintf(&text, "\t%s\n", s) }

// cmp compares a with b; the mask is Y(m), or K2.
func cmp(pred int, b, a string, m int) {
	if wide {
		p("VCMPPS $%d, %s, %s, K2", pred, b, a)
	} else {
		p("VCMPPS $%d, %s, %s, Y%d", pred, b, a, m)
	}
}

// blend takes yes where cmp's mask is set.
func blend(m int, yes, no, dst string) {
	if wide {
		p("VBLENDMPS %s, %s, K2, %s", yes, no, dst)
	} else {
		p("VBLENDVPS Y%d, %s, %s, %s", m, yes, no, dst)
	}
}

// word is a read-only vector of equal words.
func word(v uint32) string {
	name := fmt.Sprintf("w%08x<>", v)
	if !consts[name] {
		consts[name] = true
		for i := range lanes {
			fmt.Fprintf(&data, "DATA %s+%d(SB)/4, $0x%08x\n", name, 4*i, v)
		}
		fmt.Fprintf(&data, "GLOBL %s(SB), RODATA|NOPTR, $%d\n", name, 4*lanes)
	}
	return name + "(SB)"
}

func c(v float64) string { return word(math.Float32bits(float32(v))) }

type body func()

// expBody: Y0 = exp(Y0); uses Y1 … Y3. Results below 2^-126 are zero.
func expBody() {
	p("VMOVUPS %s, Y1", c(89))
	p("VMINPS Y0, Y1, Y0") // the variable is the second source: NaN stays
	p("VMOVUPS %s, Y1", c(-87.336544))
	p("VMAXPS Y0, Y1, Y0")
	p("VMULPS %s, Y0, Y1", c(1.44269504088896341))
	p("VROUNDPS $8, Y1, Y1")
	p("VFNMADD231PS %s, Y1, Y0", c(0.693359375))
	p("VFNMADD231PS %s, Y1, Y0", c(-2.12194440e-4))
	p("VMOVUPS %s, Y2", c(1.9875691500e-4))
	for _, k := range []float64{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		p("VFMADD213PS %s, Y0, Y2", c(k))
	}
	p("VMULPS Y0, Y0, Y3")
	p("VFMADD213PS Y0, Y3, Y2")
	p("VADDPS %s, Y2, Y2", c(1))
	p("VCVTPS2DQ Y1, Y1")
	p("VPADDD %s, Y1, Y1", word(126))
	p("VPSLLD $23, Y1, Y1")
	p("VADDPS Y2, Y2, Y2")
	p("VMULPS Y1, Y2, Y0")
}

// rational: Y0 = Y0·P(Y0²)/Q(Y0²) after clamping to ±limit; uses Y1 … Y3.
func rational(limit float64, num, den []float64) {
	p("VMOVUPS %s, Y1", c(limit))
	p("VMINPS Y0, Y1, Y0")
	p("VMOVUPS %s, Y1", c(-limit))
	p("VMAXPS Y0, Y1, Y0")
	p("VMULPS Y0, Y0, Y1")
	p("VMOVUPS %s, Y2", c(num[0]))
	for _, k := range num[1:] {
		p("VFMADD213PS %s, Y1, Y2", c(k))
	}
	p("VMULPS Y0, Y2, Y2")
	p("VMOVUPS %s, Y3", c(den[0]))
	for _, k := range den[1:] {
		p("VFMADD213PS %s, Y1, Y3", c(k))
	}
	p("VDIVPS Y3, Y2, Y0")
}

func tanhBody() {
	p("VMOVAPS Y0, Y4")
	rational(7.90531110763549805, []float64{-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
		1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03}, []float64{1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03})
	p("VANDPS %s, Y4, Y1", word(0x7fffffff))
	cmp(1, c(0.0004), "Y1", 1) // |x| < 0.0004: x
	blend(1, "Y4", "Y0", "Y0")
}

func erfBody() {
	rational(4, []float64{-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
		-2.95459980854025e-03, -1.60960333262415e-02}, []float64{-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02})
}

func logisticBody() {
	p("VXORPS %s, Y0, Y0", word(0x80000000))
	expBody()
	p("VADDPS %s, Y0, Y1", c(1))
	p("VMOVUPS %s, Y0", c(1))
	p("VDIVPS Y1, Y0, Y0")
}

func geluBody() {
	p("VMOVAPS Y0, Y4")
	p("VMULPS %s, Y0, Y0", c(1/math.Sqrt2))
	erfBody()
	p("VADDPS %s, Y0, Y0", c(1))
	p("VMULPS %s, Y4, Y4", c(0.5))
	p("VMULPS Y4, Y0, Y0")
}

// maxBody: Y0 = max(Y0, Y1), NaN when either is.
func maxBody(op string) body {
	return func() {
		p("V%sPS Y1, Y0, Y2", op) // Y1 when either is NaN
		cmp(3, "Y0", "Y0", 3)
		blend(3, "Y0", "Y2", "Y0")
	}
}

func plain(op string) body { return func() { p("V%sPS Y1, Y0, Y0", op) } }

// compare: Y0 = 1 where the predicate holds, else 0.
func compare(pred int) body {
	return func() {
		cmp(pred, "Y1", "Y0", 0)
		if wide {
			p("VMOVUPS.Z %s, K2, Y0", c(1))
		} else {
			p("VANDPS %s, Y0, Y0", c(1))
		}
	}
}

// loop emits name(dst, a, b, c, n): operands are slices' data, a scalar operand is a
// pointer to one float. kinds: v vector, s scalar.
func loop(name, kinds string, f body) {
	regs := []string{"SI", "DX", "R8"}
	args := []string{"a", "b", "c"}[:len(kinds)]
	sig := "dst, " + strings.Join(args, ", ") + " *float32, n int"
	fmt.Fprintf(&decl, "\n//go:noescape\nfunc %s(%s)\n", name, sig)
	fmt.Fprintf(&text, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, sig, name, 16+8*len(kinds))
	p("MOVQ dst+0(FP), DI")
	for i, a := range args {
		p("MOVQ %s+%d(FP), %s", a, 8+8*i, regs[i])
		if kinds[i] == 's' {
			p("VBROADCASTSS (%s), Y%d", regs[i], 14-i)
		}
	}
	p("MOVQ n+%d(FP), CX", 8+8*len(kinds))
	p("XORQ AX, AX")
	p("SUBQ $%d, CX", lanes)
	p("JLT tail")
	fmt.Fprint(&text, "loop:\n")
	load := func(how string) {
		for i := range kinds {
			if kinds[i] == 's' {
				p("VMOVAPS Y%d, Y%d", 14-i, i)
			} else {
				p(how, fmt.Sprintf("(%s)(AX*4)", regs[i]), i)
			}
		}
	}
	load("VMOVUPS %s, Y%d")
	f()
	p("VMOVUPS Y0, (DI)(AX*4)")
	p("ADDQ $%d, AX", lanes)
	p("CMPQ AX, CX")
	p("JLE loop")
	fmt.Fprint(&text, "tail:\n")
	p("ADDQ $%d, CX", lanes)
	p("SUBQ AX, CX")
	p("JLE done")
	tailMask()
	if wide {
		load("VMOVUPS.Z %s, K1, Y%d")
		f()
		p("VMOVUPS Y0, K1, (DI)(AX*4)")
	} else {
		load("VMASKMOVPS %s, Y15, Y%d")
		f()
		p("VMASKMOVPS Y0, Y15, (DI)(AX*4)")
	}
	fmt.Fprint(&text, "done:\n")
	p("VZEROUPPER")
	p("RET")
}

// tailMask makes the mask of CX < lanes elements: Y15, or K1.
func tailMask() {
	if wide {
		p("MOVL $-1, BX")
		p("BZHIL CX, BX, BX")
		p("KMOVW BX, K1")
		return
	}
	p("LEAQ tailmask<>+32(SB), BX")
	p("SHLQ $2, CX")
	p("SUBQ CX, BX")
	p("VMOVUPS (BX), Y15")
}

// reduce emits name(a, n) for n ≥ 1: eight lanes by four sums, combined in a fixed order.
// neutral fills the lanes of the tail.
func reduce(name string, neutral uint32, f func(src, dst int)) {
	fmt.Fprintf(&decl, "\n//go:noescape\nfunc %s(a *float32, n int) float32\n", name)
	fmt.Fprintf(&text, "\n// func %s(a *float32, n int) float32\nTEXT ·%s(SB), NOSPLIT, $0-20\n", name, name)
	p("MOVQ a+0(FP), SI")
	p("MOVQ n+8(FP), CX")
	for i := range 4 {
		p("VMOVUPS %s, Y%d", word(neutral), i+8)
	}
	p("XORQ AX, AX")
	p("SUBQ $%d, CX", 4*lanes)
	p("JLT tail8")
	fmt.Fprint(&text, "loop:\n")
	for i := range 4 {
		p("VMOVUPS %d(SI)(AX*4), Y%d", 4*lanes*i, i)
	}
	for i := range 4 {
		f(i, i+8)
	}
	p("ADDQ $%d, AX", 4*lanes)
	p("CMPQ AX, CX")
	p("JLE loop")
	fmt.Fprint(&text, "tail8:\n")
	p("ADDQ $%d, CX", 3*lanes) // n-lanes
	p("CMPQ AX, CX")
	p("JGT tail")
	fmt.Fprint(&text, "loop8:\n")
	p("VMOVUPS (SI)(AX*4), Y0")
	f(0, 8)
	p("ADDQ $%d, AX", lanes)
	p("CMPQ AX, CX")
	p("JLE loop8")
	fmt.Fprint(&text, "tail:\n")
	p("ADDQ $%d, CX", lanes)
	p("SUBQ AX, CX")
	p("JLE join")
	tailMask()
	if wide {
		p("VMOVUPS %s, Y0", word(neutral))
		p("VMOVUPS (SI)(AX*4), K1, Y0")
	} else {
		p("VMASKMOVPS (SI)(AX*4), Y15, Y0")
		p("VMOVUPS %s, Y1", word(neutral))
		p("VBLENDVPS Y15, Y0, Y1, Y0")
	}
	f(0, 9)
	fmt.Fprint(&text, "join:\n")
	f(10, 8)
	f(11, 9)
	f(9, 8)
	if wide {
		raw("VEXTRACTF64X4 $1, Z8, Y0")
		f(0, 8)
	}
	raw("VEXTRACTF128 $1, Y8, X0")
	f(0, 8)
	p("VSHUFPS $0x4E, Y8, Y8, Y0")
	f(0, 8)
	p("VSHUFPS $0xB1, Y8, Y8, Y0")
	f(0, 8)
	p("VMOVSS X8, ret+16(FP)")
	p("VZEROUPPER")
	p("RET")
}

// extreme: dst = max(src, dst), NaN when either is; uses Y4, Y5.
func extreme(op string) func(src, dst int) {
	return func(src, dst int) {
		p("V%sPS Y%d, Y%d, Y4", op, dst, src) // dst when either is NaN
		y := fmt.Sprintf("Y%d", src)
		cmp(3, y, y, 5)
		blend(5, y, "Y4", fmt.Sprintf("Y%d", dst))
	}
}

// bools emits the conversion of bytes to floats for n a multiple of 8.
func bools() {
	fmt.Fprint(&decl, "\n//go:noescape\nfunc boolsAVX2(dst *float32, src *byte, n int)\n")
	fmt.Fprint(&text, "\n// func boolsAVX2(dst *float32, src *byte, n int)\nTEXT ·boolsAVX2(SB), NOSPLIT, $0-24\n")
	p("MOVQ dst+0(FP), DI")
	p("MOVQ src+8(FP), SI")
	p("MOVQ n+16(FP), CX")
	fmt.Fprint(&text, "loop:\n")
	p("VPMOVZXBD (SI), Y0")
	p("VCVTDQ2PS Y0, Y0")
	p("VMOVUPS Y0, (DI)")
	p("ADDQ $8, SI")
	p("ADDQ $32, DI")
	p("SUBQ $8, CX")
	p("JNZ loop")
	p("VZEROUPPER")
	p("RET")
}

func main() {
	kind := os.Args[1]
	if base, ok := strings.CutSuffix(kind, "512"); ok {
		kind, wide, lanes, suffix = base, true, 16, "Z"
	}
	masks := ("DATA tailmask<>+0(SB)/8, $-1\nDATA tailmask<>+8(SB)/8, $-1\nDATA tailmask<>+16(SB)/8, $-1\nDATA tailmask<>+24(SB)/8, $-1\n")
	masks += ("DATA tailmask<>+32(SB)/8, $0\nDATA tailmask<>+40(SB)/8, $0\nDATA tailmask<>+48(SB)/8, $0\nDATA tailmask<>+56(SB)/8, $0\nGLOBL tailmask<>(SB), RODATA|NOPTR, $64\n")
	for _, x := range []struct {
		name string
		f    body
	}{{"add", plain("ADD")}, {"sub", plain("SUB")}, {"mul", plain("MUL")}, {"div", plain("DIV")}, {"max", maxBody("MAX")}, {"min", maxBody("MIN")}} {
		for _, k := range []string{"vv", "vs", "sv"} {
			loop(x.name+strings.ToUpper(k)+suffix, k, x.f)
		}
	}
	for _, x := range []struct {
		name string
		pred int
	}{{"eq", 0}, {"ne", 4}, {"lt", 17}, {"le", 18}, {"gt", 30}, {"ge", 29}} {
		loop(x.name+"VV"+suffix, "vv", compare(x.pred))
		loop(x.name+"VS"+suffix, "vs", compare(x.pred))
	}
	loop("where"+suffix, "vvv", func() {
		p("VXORPS Y3, Y3, Y3")
		cmp(4, "Y3", "Y0", 0)
		blend(0, "Y1", "Y2", "Y0")
	})
	for _, x := range []struct {
		name string
		f    body
	}{
		{"neg", func() { p("VXORPS %s, Y0, Y0", word(0x80000000)) }},
		{"abs", func() { p("VANDPS %s, Y0, Y0", word(0x7fffffff)) }},
		{"sqrt", func() { p("VSQRTPS Y0, Y0") }},
		{"rsqrt", func() { p("VSQRTPS Y0, Y1"); p("VMOVUPS %s, Y0", c(1)); p("VDIVPS Y1, Y0, Y0") }},
		{"exp", expBody}, {"tanh", tanhBody}, {"erf", erfBody}, {"logistic", logisticBody}, {"gelu", geluBody},
	} {
		loop(x.name+suffix, "v", x.f)
	}
	reduce("sum"+suffix, 0, func(src, dst int) { p("VADDPS Y%d, Y%d, Y%d", src, dst, dst) })
	reduce("reduceMax"+suffix, 0xff800000, extreme("MAX"))
	reduce("reduceMin"+suffix, 0x7f800000, extreme("MIN"))
	if !wide {
		data.WriteString(masks)
		bools()
	}
	if kind == "go" {
		fmt.Fprint(w, "// Code generated by gen_elementwise.go; DO NOT EDIT.\n\npackage simd\n"+decl.String())
	} else {
		fmt.Fprint(w, "// Code generated by gen_elementwise.go; DO NOT EDIT.\n\n#include \"textflag.h\"\n\n"+data.String()+text.String())
	}
	w.Flush()
}
