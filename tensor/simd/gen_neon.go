//go:build ignore

// gen_neon writes neon_arm64.s and neon_arm64.go: the NEON kernels. Vector float
// instructions, which Go's assembler lacks, are words; the text beside each is what
// TestNEONWords gives to another assembler.
//
//	go run gen_neon.go s > neon_arm64.s
//	go run gen_neon.go go > neon_arm64.go
package main

import (
	"fmt"
	"math"
	"os"
	"strings"
)

var (
	text, decl strings.Builder
	body       *strings.Builder = &text
	consts     []uint32         // of the loop being written: in V16, V17 …
)

func p(format string, a ...any) { fmt.Fprintf(body, "\t"+format+"\n", a...) }
func label(s string)            { fmt.Fprintf(body, "%s:\n", s) }

func head(name, sig, result string, size int) {
	r := result
	if r != "" {
		r = " (" + r + ")"
	}
	fmt.Fprintf(&decl, "\n//go:noescape\nfunc %s(%s)%s\n", name, sig, r)
	fmt.Fprintf(body, "\n// func %s(%s)%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, sig, r, name, size)
}

func load(args ...string) {
	for i, a := range args {
		f := strings.Fields(a)
		p("MOVD %s+%d(FP), %s", f[0], 8*i, f[1])
	}
}

// three are instructions with destination and two sources of a type, one destination
// and one source.
var three = map[string]uint32{
	"fadd": 0x4E20D400, "fsub": 0x4EA0D400, "fmul": 0x6E20DC00, "fdiv": 0x6E20FC00, "fmax": 0x4E20F400, "fmin": 0x4EA0F400,
	"fmla": 0x4E20CC00, "fmls": 0x4EA0CC00, "fcmeq": 0x4E20E400, "fcmge": 0x6E20E400, "fcmgt": 0x6EA0E400, "faddp": 0x6E20D400,
	"fmaxp": 0x6E20F400, "fminp": 0x6EA0F400, "add": 0x4EA08400, "addp": 0x4EA0BC00,
}

var logic = map[string]uint32{"and": 0x4E201C00, "orr": 0x4EA01C00, "bic": 0x4E601C00, "bsl": 0x6E601C00}

var two = map[string]uint32{"fneg": 0x6EA0F800, "fabs": 0x4EA0F800, "fsqrt": 0x6EA1F800, "frintn": 0x4E218800, "fcvtns": 0x4E21A800, "scvtf": 0x4E21D800}

func word(w uint32, format string, a ...any) {
	p("WORD $0x%08X // %s", w, fmt.Sprintf(format, a...))
}

func op3(name string, d, n, m int) {
	if w, ok := logic[name]; ok {
		word(w|uint32(m<<16|n<<5|d), "%s v%d.16b, v%d.16b, v%d.16b", name, d, n, m)
		return
	}
	w, ok := three[name]
	if !ok {
		panic(name)
	}
	word(w|uint32(m<<16|n<<5|d), "%s v%d.4s, v%d.4s, v%d.4s", name, d, n, m)
}

func op2(name string, d, n int) { word(two[name]|uint32(n<<5|d), "%s v%d.4s, v%d.4s", name, d, n) }

// mov copies a register.
func mov(d, n int) { op3("orr", d, n, n) }

// fmlaLane: d += n·m[lane].
func fmlaLane(d, n, m, lane int) {
	word(0x4F801000|uint32(lane&1<<21|lane>>1<<11|m<<16|n<<5|d), "fmla v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, lane)
}

func shl(d, n, s int) { word(0x4F005400|uint32((32+s)<<16|n<<5|d), "shl v%d.4s, v%d.4s, #%d", d, n, s) }

// wide are instructions from narrow sources.
func smull(d, n, m int) {
	word(0x0E20C000|uint32(m<<16|n<<5|d), "smull v%d.8h, v%d.8b, v%d.8b", d, n, m)
}
func smlal2(d, n, m int) {
	word(0x4E208000|uint32(m<<16|n<<5|d), "smlal2 v%d.8h, v%d.16b, v%d.16b", d, n, m)
}
func sadalp(d, n int) { word(0x4E606800|uint32(n<<5|d), "sadalp v%d.4s, v%d.8h", d, n) }
func cnt(d, n int)    { word(0x4E205800|uint32(n<<5|d), "cnt v%d.16b, v%d.16b", d, n) }
func uadalp(d, n int) { word(0x6E206800|uint32(n<<5|d), "uadalp v%d.8h, v%d.16b", d, n) }
func uaddlp4(d, n int) {
	word(0x6E602800|uint32(n<<5|d), "uaddlp v%d.4s, v%d.8h", d, n)
}
func uaddlp2(d, n int) { word(0x6EA02800|uint32(n<<5|d), "uaddlp v%d.2d, v%d.4s", d, n) }
func ushr4(d, n int)   { word(0x6F0C0400|uint32(n<<5|d), "ushr v%d.16b, v%d.16b, #4", d, n) }
func fcvtl(d, n int, high bool) {
	if high {
		word(0x4E217800|uint32(n<<5|d), "fcvtl2 v%d.4s, v%d.8h", d, n)
	} else {
		word(0x0E217800|uint32(n<<5|d), "fcvtl v%d.4s, v%d.4h", d, n)
	}
}
func shll16(d, n int, high bool) {
	if high {
		word(0x6E613800|uint32(n<<5|d), "shll2 v%d.4s, v%d.8h, #16", d, n)
	} else {
		word(0x2E613800|uint32(n<<5|d), "shll v%d.4s, v%d.4h, #16", d, n)
	}
}
func fcmeq0(d, n int) { word(0x4EA0D800|uint32(n<<5|d), "fcmeq v%d.4s, v%d.4s, #0.0", d, n) }

// k is the register that holds a constant.
func kw(bits uint32) int {
	for i, c := range consts {
		if c == bits {
			return 16 + i
		}
	}
	if len(consts) == 16 {
		panic("too many constants")
	}
	consts = append(consts, bits)
	return 15 + len(consts)
}

func k(v float64) int { return kw(math.Float32bits(float32(v))) }

// poly: V(acc) = the polynomial of V(x); uses V(tmp) in turn with it. The register of
// the result is returned.
func poly(x, acc, tmp int, c ...float64) int {
	mov(acc, k(c[0]))
	for _, v := range c[1:] {
		mov(tmp, k(v))
		op3("fmla", tmp, acc, x)
		acc, tmp = tmp, acc
	}
	return acc
}

// The bodies are those of gen_elementwise: V0 = f(V0, V1, V2), using V2 … V7.
func expBody() {
	op3("fmin", 0, 0, k(89))
	op3("fmax", 0, 0, k(-87.336544))
	op3("fmul", 1, 0, k(1.44269504088896341))
	op2("frintn", 1, 1)
	op3("fmls", 0, 1, k(0.693359375))
	op3("fmls", 0, 1, k(-2.12194440e-4))
	y := poly(0, 2, 3, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
	op3("fmul", 4, 0, 0)
	op3("fmla", 0, y, 4)
	op3("fadd", 0, 0, k(1))
	op2("fcvtns", 1, 1)
	op3("add", 1, 1, kw(126))
	shl(1, 1, 23)
	op3("fadd", 0, 0, 0)
	op3("fmul", 0, 0, 1)
}

func rational(limit float64, num, den []float64) {
	op3("fmin", 0, 0, k(limit))
	op2("fneg", 1, k(limit))
	op3("fmax", 0, 0, 1)
	op3("fmul", 1, 0, 0)
	y := poly(1, 2, 3, num...)
	op3("fmul", 0, 0, y)
	z := poly(1, 2, 3, den...)
	op3("fdiv", 0, 0, z)
}

func tanhBody() {
	mov(4, 0)
	rational(7.90531110763549805, []float64{-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
		1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03}, []float64{1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03})
	op2("fabs", 1, 4)
	op3("fcmgt", 1, k(0.0004), 1) // |x| < 0.0004: x
	op3("bsl", 1, 4, 0)
	mov(0, 1)
}

func erfBody() {
	rational(4, []float64{-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
		-2.95459980854025e-03, -1.60960333262415e-02}, []float64{-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02})
}

func one(f func(one int)) func() { return func() { f(k(1)) } }

// loop emits name(dst, a, b, c, n): four elements at a time, then one.
func loop(name, kinds string, f func()) {
	args := []string{"a", "b", "c"}[:len(kinds)]
	regs := []string{"R1", "R2", "R3"}
	head(name, "dst, "+strings.Join(args, ", ")+" *float32, n int", "", 16+8*len(kinds))
	list := []string{"dst R0"}
	for i, a := range args {
		list = append(list, a+" "+regs[i])
	}
	load(append(list, "n R4")...)
	// The body says which constants it needs; they are loaded before.
	var inner strings.Builder
	outer := body
	consts, body = nil, &inner
	f()
	body = outer
	for i, c := range consts {
		p("MOVW $0x%08x, R9", c)
		p("VDUP R9, V%d.S4", 16+i)
	}
	for i := range kinds {
		if kinds[i] == 's' {
			p("VLD1R (%s), [V%d.S4]", regs[i], 14+i)
		}
	}
	for _, step := range []int{4, 1} {
		l := fmt.Sprintf("by%d", step)
		next := map[int]string{4: "tail", 1: "done"}[step]
		label(l)
		p("CMP $%d, R4", step)
		p("BLT %s", next)
		for i := range kinds {
			switch {
			case kinds[i] == 's':
				mov(i, 14+i)
			case step == 4:
				p("VLD1.P 16(%s), [V%d.S4]", regs[i], i)
			default:
				p("FMOVS.P 4(%s), F%d", regs[i], i)
			}
		}
		body.WriteString(inner.String())
		if step == 4 {
			p("VST1.P [V0.S4], 16(R0)")
		} else {
			p("FMOVS.P F0, 4(R0)")
		}
		p("SUB $%d, R4", step)
		p("B %s", l)
		label(next)
	}
	p("RET")
}

// reduce emits name(a, n) for n ≥ 1.
func reduce(name, op, pair, scalar string, neutral uint32) {
	head(name, "a *float32, n int", "r float32", 20)
	load("a R1", "n R4")
	p("MOVW $0x%08x, R9", neutral)
	for i := range 4 {
		p("VDUP R9, V%d.S4", i)
	}
	label("by16")
	p("CMP $16, R4")
	p("BLT by4")
	p("VLD1.P 64(R1), [V4.S4, V5.S4, V6.S4, V7.S4]")
	for i := range 4 {
		op3(op, i, i, 4+i)
	}
	p("SUB $16, R4")
	p("B by16")
	label("by4")
	p("CMP $4, R4")
	p("BLT join")
	p("VLD1.P 16(R1), [V4.S4]")
	op3(op, 0, 0, 4)
	p("SUB $4, R4")
	p("B by4")
	label("join")
	op3(op, 0, 0, 2)
	op3(op, 1, 1, 3)
	op3(op, 0, 0, 1)
	op3(pair, 0, 0, 0)
	op3(pair, 0, 0, 0)
	label("by1")
	p("CBZ R4, done")
	p("FMOVS.P 4(R1), F1")
	p("%s F1, F0, F0", scalar)
	p("SUB $1, R4")
	p("B by1")
	label("done")
	p("FMOVS F0, r+16(FP)")
	p("RET")
}

// gemm: c[rows,16] = init + a·b; see gemmArgs. In a tile A is [k][rows]; up to three
// floats behind it are read. V0 … V23 sums, V24 … V27 b, V28 … V31 a.
func gemm(rows int, tile bool) {
	name := fmt.Sprintf("gemmNEON%d", rows)
	if tile {
		name += "tile"
	}
	head(name, "args *gemmArgs", "", 8)
	p("MOVD args+0(FP), R0")
	for i, r := range []string{"R1", "R5", "R2", "R3", "R4", "R11", "R12", "R13"} { // k a aRow aK b bK init initLd
		p("MOVD %d(R0), %s", 8*i, r)
	}
	for r := range rows {
		p("VLD1 (R12), [V%d.S4, V%d.S4, V%d.S4, V%d.S4]", 4*r, 4*r+1, 4*r+2, 4*r+3)
		p("ADD R13, R12")
	}
	if !tile {
		for r := 1; r < rows; r++ {
			p("ADD R2, R%d, R%d", 4+r, 5+r) // R5 … R10 the rows
		}
	}
	label("loop")
	p("VLD1 (R4), [V24.S4, V25.S4, V26.S4, V27.S4]")
	p("ADD R11, R4")
	if tile {
		p("PRFM 512(R4), PLDL1KEEP")
		p("VLD1 (R5), [V28.S4]")
		if rows > 4 {
			p("FMOVD 16(R5), F29")
		}
		p("ADD $%d, R5", 4*rows)
		for r := range rows {
			for q := range 4 {
				fmlaLane(4*r+q, 24+q, 28+r/4, r%4)
			}
		}
	} else {
		for r := range rows {
			a := 28 + r%4
			p("VLD1R (R%d), [V%d.S4]", 5+r, a)
			p("ADD R3, R%d", 5+r)
			for q := range 4 {
				op3("fmla", 4*r+q, 24+q, a)
			}
		}
	}
	p("SUB $1, R1")
	p("CBNZ R1, loop")
	p("MOVD 64(R0), R12")
	p("MOVD 72(R0), R13")
	for r := range rows {
		p("VST1 [V%d.S4, V%d.S4, V%d.S4, V%d.S4], (R12)", 4*r, 4*r+1, 4*r+2, 4*r+3)
		p("ADD R13, R12")
	}
	p("RET")
}

// dots emits the loop over R12 elements, a multiple of 8, of inner products (or squared
// distances) of the vectors at qs with those at rs; the sums are reduced to the first
// lanes of V(i·len(rs)+j). The registers move.
func dots(qs, rs []string, f16, l2 bool) {
	n := len(qs) * len(rs)
	for i := range 2 * n {
		p("VEOR V%d.B16, V%d.B16, V%d.B16", i, i, i)
	}
	label("dot")
	p("CBZ R12, dotsum")
	for i, q := range qs {
		p("VLD1.P 32(%s), [V%d.S4, V%d.S4]", q, 16+2*i, 17+2*i)
	}
	for j, r := range rs {
		if f16 {
			p("VLD1.P 16(%s), [V22.H8]", r)
			fcvtl(20, 22, false)
			fcvtl(21, 22, true)
		} else {
			p("VLD1.P 32(%s), [V20.S4, V21.S4]", r)
		}
		for i := range qs {
			for h := range 2 {
				acc := h*n + i*len(rs) + j
				if l2 {
					op3("fsub", 23, 16+2*i+h, 20+h)
					op3("fmla", acc, 23, 23)
				} else {
					op3("fmla", acc, 16+2*i+h, 20+h)
				}
			}
		}
	}
	p("SUB $8, R12")
	p("B dot")
	label("dotsum")
	for i := range n {
		op3("fadd", i, i, n+i)
		op3("faddp", i, i, i)
		op3("faddp", i, i, i)
	}
}

func pair(name string, l2 bool) {
	head(name, "a, b *float32, n int", "s float32", 28)
	load("a R1", "b R2", "n R12")
	dots([]string{"R1"}, []string{"R2"}, false, l2)
	p("FMOVS F0, s+24(FP)")
	p("RET")
}

func dotRows(name, base string, f16 bool) {
	head(name, fmt.Sprintf("out, q *float32, base *%s, ids *uint32, n, dim, stride int", base), "", 56)
	load("out R0", "q R6", "base R2", "ids R3", "n R4", "dim R7", "stride R5")
	label("group")
	p("CMP $4, R4")
	p("BLT done")
	rows := []string{"R8", "R9", "R10", "R11"}
	for i, r := range rows {
		p("MOVWU %d(R3), R12", 4*i)
		p("MADD R5, R2, R12, %s", r)
	}
	p("MOVD R6, R1")
	p("MOVD R7, R12")
	dots([]string{"R1"}, rows, f16, false)
	for i := range 4 {
		p("FMOVS F%d, %d(R0)", i, 4*i)
	}
	p("ADD $16, R0")
	p("ADD $16, R3")
	p("SUB $4, R4")
	p("B group")
	label("done")
	p("RET")
}

func dotTile() {
	head("dotTileNEON", "out, q0, q1, r0, r1, r2 *float32, dim int", "", 56)
	load("out R0", "q0 R1", "q1 R2", "r0 R3", "r1 R4", "r2 R5", "dim R12")
	dots([]string{"R1", "R2"}, []string{"R3", "R4", "R5"}, false, false)
	for i := range 6 {
		p("FMOVS F%d, %d(R0)", i, 4*i)
	}
	p("RET")
}

// widen emits the conversion of n 16-bit elements, a multiple of 8.
func widen(name string, f func(d, n int, high bool)) {
	head(name, "dst *float32, src *uint16, n int", "", 24)
	load("dst R0", "src R1", "n R4")
	label("loop")
	p("CBZ R4, done")
	p("VLD1.P 16(R1), [V0.H8]")
	f(1, 0, false)
	f(2, 0, true)
	p("VST1.P [V1.S4, V2.S4], 32(R0)")
	p("SUB $8, R4")
	p("B loop")
	label("done")
	p("RET")
}

// sums of products of signed bytes with signed bytes or 4-bit codes; n code bytes, a
// multiple of 64, or of 32.
func sum(name string, bits int) {
	head(name, "q *int8, code *byte, n int", "s int", 32)
	load("q R1", "code R2", "n R4")
	p("VEOR V0.B16, V0.B16, V0.B16")
	p("VEOR V1.B16, V1.B16, V1.B16")
	if bits == 4 {
		p("MOVD $15, R9")
		p("VDUP R9, V16.B16")
	}
	label("loop")
	p("VLD1.P 64(R1), [V4.B16, V5.B16, V6.B16, V7.B16]")
	if bits == 8 {
		p("VLD1.P 64(R2), [V8.B16, V9.B16, V10.B16, V11.B16]")
	} else {
		p("VLD1.P 32(R2), [V8.B16, V9.B16]")
		ushr4(10, 8)
		ushr4(11, 9)
		op3("and", 8, 8, 16)
		op3("and", 9, 9, 16)
	}
	for i := range 4 {
		smull(12+i, 4+i, 8+i)
		smlal2(12+i, 4+i, 8+i) // 2·127·127 fits 16 bits
		sadalp(i%2, 12+i)
	}
	p("SUB $%d, R4", 8*bits)
	p("CBNZ R4, loop")
	op3("add", 0, 0, 1)
	op3("addp", 0, 0, 0)
	op3("addp", 0, 0, 0)
	p("VMOV V0.S[0], R5")
	p("SXTW R5, R5")
	p("MOVD R5, s+24(FP)")
	p("RET")
}

// sum1 adds 1, 2, 4 and −8 for every bit set in a code and in its plane.
func sum1() {
	head("sum1NEON", "planes *uint64, code *byte, words int", "s int", 32)
	load("planes R1", "code R2", "words R4")
	p("VEOR V0.B16, V0.B16, V0.B16")
	p("VEOR V1.B16, V1.B16, V1.B16")
	label("loop")
	p("VLD1.P 32(R1), [V4.B16, V5.B16]")
	p("VLD1R.P 8(R2), [V6.D2]")
	for i := range 2 {
		op3("and", 4+i, 4+i, 6)
		cnt(4+i, 4+i)
		uadalp(i, 4+i)
	}
	p("SUB $1, R4")
	p("CBNZ R4, loop")
	for i := range 2 {
		uaddlp4(i, i)
		uaddlp2(i, i)
	}
	p("VMOV V0.D[0], R5")
	p("VMOV V0.D[1], R6")
	p("VMOV V1.D[0], R7")
	p("VMOV V1.D[1], R8")
	p("ADD R6<<1, R5")
	p("ADD R7<<2, R5")
	p("SUB R8<<3, R5")
	p("MOVD R5, s+24(FP)")
	p("RET")
}

func elementwise() {
	for _, x := range []string{"add", "sub", "mul", "div", "max", "min"} {
		for _, kinds := range []string{"vv", "vs", "sv"} {
			loop(x+strings.ToUpper(kinds)+"NEON", kinds, func() { op3("f"+x, 0, 0, 1) })
		}
	}
	for _, x := range []struct {
		name, op string
		swap     bool
	}{{"eq", "fcmeq", false}, {"lt", "fcmgt", true}, {"le", "fcmge", true}, {"gt", "fcmgt", false}, {"ge", "fcmge", false}, {"ne", "", false}} {
		for _, kinds := range []string{"vv", "vs"} {
			loop(x.name+strings.ToUpper(kinds)+"NEON", kinds, one(func(one int) {
				switch {
				case x.op == "":
					op3("fcmeq", 0, 0, 1)
					op3("bic", 0, one, 0)
					return
				case x.swap:
					op3(x.op, 0, 1, 0)
				default:
					op3(x.op, 0, 0, 1)
				}
				op3("and", 0, 0, one)
			}))
		}
	}
	loop("whereNEON", "vvv", func() {
		fcmeq0(0, 0)
		op3("bsl", 0, 2, 1)
	})
	for _, x := range []struct {
		name string
		f    func()
	}{
		{"neg", func() { op2("fneg", 0, 0) }},
		{"abs", func() { op2("fabs", 0, 0) }},
		{"sqrt", func() { op2("fsqrt", 0, 0) }},
		{"rsqrt", func() { op2("fsqrt", 0, 0); op3("fdiv", 0, k(1), 0) }},
		{"exp", expBody}, {"tanh", tanhBody}, {"erf", erfBody},
		{"logistic", func() { op2("fneg", 0, 0); expBody(); op3("fadd", 0, 0, k(1)); op3("fdiv", 0, k(1), 0) }},
		{"gelu", func() {
			mov(4, 0)
			op3("fmul", 0, 0, k(1/math.Sqrt2))
			erfBody()
			op3("fadd", 0, 0, k(1))
			op3("fmul", 4, 4, k(0.5))
			op3("fmul", 0, 0, 4)
		}},
	} {
		loop(x.name+"NEON", "v", x.f)
	}
	reduce("sumNEON", "fadd", "faddp", "FADDS", 0)
	reduce("reduceMaxNEON", "fmax", "fmaxp", "FMAXS", 0xff800000)
	reduce("reduceMinNEON", "fmin", "fminp", "FMINS", 0x7f800000)
}

func main() {
	elementwise()
	for rows := 1; rows <= 6; rows++ {
		gemm(rows, false)
		if rows > 1 {
			gemm(rows, true)
		}
	}
	pair("dotF32NEON", false)
	pair("l2F32NEON", true)
	dotRows("dotRowsF32NEON", "float32", false)
	dotRows("dotRowsF16NEON", "uint16", true)
	dotTile()
	widen("widenF16NEON", fcvtl)
	widen("widenBF16NEON", shll16)
	sum("sum8NEON", 8)
	sum("sum4NEON", 4)
	sum1()
	if os.Args[1] == "go" {
		fmt.Print("// Code generated by gen_neon.go; DO NOT EDIT.\n\npackage simd\n" + decl.String())
	} else {
		fmt.Print("// Code generated by gen_neon.go; DO NOT EDIT.\n\n#include \"textflag.h\"\n" + text.String())
	}
}
