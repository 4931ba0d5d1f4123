#include "textflag.h"

// Distance kernels for AVX2 + FMA + F16C. Callers pass row numbers that lie inside
// the table, a number of rows divisible by 4, and dimensions divisible by the
// kernel's block; dist.go wraps them and documents the layouts.

DATA distOnes<>+0(SB)/8, $0x0001000100010001
DATA distOnes<>+8(SB)/8, $0x0001000100010001
DATA distOnes<>+16(SB)/8, $0x0001000100010001
DATA distOnes<>+24(SB)/8, $0x0001000100010001
GLOBL distOnes<>(SB), RODATA|NOPTR, $32

DATA distNibble<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA distNibble<>+8(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA distNibble<>+16(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA distNibble<>+24(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL distNibble<>(SB), RODATA|NOPTR, $32

// Signs of the three in-register steps of the Hadamard transform: + for the first
// of a pair, - for the second, at distance 1, 2 and 4.
DATA hadSigns<>+0(SB)/8, $0xbf8000003f800000
DATA hadSigns<>+8(SB)/8, $0xbf8000003f800000
DATA hadSigns<>+16(SB)/8, $0xbf8000003f800000
DATA hadSigns<>+24(SB)/8, $0xbf8000003f800000
DATA hadSigns<>+32(SB)/8, $0x3f8000003f800000
DATA hadSigns<>+40(SB)/8, $0xbf800000bf800000
DATA hadSigns<>+48(SB)/8, $0x3f8000003f800000
DATA hadSigns<>+56(SB)/8, $0xbf800000bf800000
DATA hadSigns<>+64(SB)/8, $0x3f8000003f800000
DATA hadSigns<>+72(SB)/8, $0x3f8000003f800000
DATA hadSigns<>+80(SB)/8, $0xbf800000bf800000
DATA hadSigns<>+88(SB)/8, $0xbf800000bf800000
GLOBL hadSigns<>(SB), RODATA|NOPTR, $96

// ROWS4 turns four row numbers at DX into addresses R8…R11; BX base, R13 stride.
#define ROWS4 \
	MOVL  (DX), R8      \
	MOVL  4(DX), R9     \
	MOVL  8(DX), R10    \
	MOVL  12(DX), R11   \
	IMULQ R13, R8       \
	IMULQ R13, R9       \
	IMULQ R13, R10      \
	IMULQ R13, R11      \
	ADDQ  BX, R8        \
	ADDQ  BX, R9        \
	ADDQ  BX, R10       \
	ADDQ  BX, R11

// REDUCE4 sums Y4+Y8 … Y7+Y11 across their lanes into the four lanes of X4.
#define REDUCE4 \
	VADDPS       Y8, Y4, Y4   \
	VADDPS       Y9, Y5, Y5   \
	VADDPS       Y10, Y6, Y6  \
	VADDPS       Y11, Y7, Y7  \
	VHADDPS      Y5, Y4, Y4   \
	VHADDPS      Y7, Y6, Y6   \
	VHADDPS      Y6, Y4, Y4   \
	VEXTRACTF128 $1, Y4, X5   \
	VADDPS       X5, X4, X4

#define ZERO8 \
	VXORPS Y4, Y4, Y4     \
	VXORPS Y5, Y5, Y5     \
	VXORPS Y6, Y6, Y6     \
	VXORPS Y7, Y7, Y7     \
	VXORPS Y8, Y8, Y8     \
	VXORPS Y9, Y9, Y9     \
	VXORPS Y10, Y10, Y10  \
	VXORPS Y11, Y11, Y11

// func dotRowsF32AVX2(out, q, base *float32, ids *uint32, n, dim, stride int)
TEXT ·dotRowsF32AVX2(SB), NOSPLIT, $0-56
	MOVQ out+0(FP), DI
	MOVQ q+8(FP), SI
	MOVQ base+16(FP), BX
	MOVQ ids+24(FP), DX
	MOVQ n+32(FP), CX
	MOVQ dim+40(FP), R12
	MOVQ stride+48(FP), R13
	MOVQ R12, R15
	ANDQ $~15, R15
f32group:
	CMPQ CX, $4
	JLT  f32done
	ROWS4
	ZERO8
	XORQ AX, AX
	CMPQ AX, R15
	JGE  f32tail
	LEAQ -96(R15), R14 // a row's first six lines have been fetched by gather
	CMPQ AX, R14
	JGE  f32loop
f32ahead:
	PREFETCHT0  384(R8)(AX*4)
	PREFETCHT0  384(R9)(AX*4)
	PREFETCHT0  384(R10)(AX*4)
	PREFETCHT0  384(R11)(AX*4)
	VMOVUPS     (SI)(AX*4), Y0
	VMOVUPS     32(SI)(AX*4), Y1
	VFMADD231PS (R8)(AX*4), Y0, Y4
	VFMADD231PS (R9)(AX*4), Y0, Y5
	VFMADD231PS (R10)(AX*4), Y0, Y6
	VFMADD231PS (R11)(AX*4), Y0, Y7
	VFMADD231PS 32(R8)(AX*4), Y1, Y8
	VFMADD231PS 32(R9)(AX*4), Y1, Y9
	VFMADD231PS 32(R10)(AX*4), Y1, Y10
	VFMADD231PS 32(R11)(AX*4), Y1, Y11
	ADDQ        $16, AX
	CMPQ        AX, R14
	JLT         f32ahead
f32loop:
	VMOVUPS     (SI)(AX*4), Y0
	VMOVUPS     32(SI)(AX*4), Y1
	VFMADD231PS (R8)(AX*4), Y0, Y4
	VFMADD231PS (R9)(AX*4), Y0, Y5
	VFMADD231PS (R10)(AX*4), Y0, Y6
	VFMADD231PS (R11)(AX*4), Y0, Y7
	VFMADD231PS 32(R8)(AX*4), Y1, Y8
	VFMADD231PS 32(R9)(AX*4), Y1, Y9
	VFMADD231PS 32(R10)(AX*4), Y1, Y10
	VFMADD231PS 32(R11)(AX*4), Y1, Y11
	ADDQ        $16, AX
	CMPQ        AX, R15
	JLT         f32loop
f32tail:
	CMPQ        AX, R12
	JGE         f32reduce
	VMOVUPS     (SI)(AX*4), Y0
	VFMADD231PS (R8)(AX*4), Y0, Y4
	VFMADD231PS (R9)(AX*4), Y0, Y5
	VFMADD231PS (R10)(AX*4), Y0, Y6
	VFMADD231PS (R11)(AX*4), Y0, Y7
f32reduce:
	REDUCE4
	VMOVUPS X4, (DI)
	ADDQ    $16, DI
	ADDQ    $16, DX
	SUBQ    $4, CX
	JMP     f32group
f32done:
	VZEROUPPER
	RET

// func dotRowsF16AVX2(out, q *float32, base *uint16, ids *uint32, n, dim, stride int)
TEXT ·dotRowsF16AVX2(SB), NOSPLIT, $0-56
	MOVQ out+0(FP), DI
	MOVQ q+8(FP), SI
	MOVQ base+16(FP), BX
	MOVQ ids+24(FP), DX
	MOVQ n+32(FP), CX
	MOVQ dim+40(FP), R12
	MOVQ stride+48(FP), R13
	MOVQ R12, R15
	ANDQ $~15, R15
f16group:
	CMPQ CX, $4
	JLT  f16done
	ROWS4
	ZERO8
	XORQ AX, AX
	CMPQ AX, R15
	JGE  f16tail
f16loop:
	VMOVUPS     (SI)(AX*4), Y0
	VMOVUPS     32(SI)(AX*4), Y1
	VCVTPH2PS   (R8)(AX*2), Y2
	VCVTPH2PS   (R9)(AX*2), Y3
	VCVTPH2PS   (R10)(AX*2), Y12
	VCVTPH2PS   (R11)(AX*2), Y13
	VFMADD231PS Y2, Y0, Y4
	VFMADD231PS Y3, Y0, Y5
	VFMADD231PS Y12, Y0, Y6
	VFMADD231PS Y13, Y0, Y7
	VCVTPH2PS   16(R8)(AX*2), Y2
	VCVTPH2PS   16(R9)(AX*2), Y3
	VCVTPH2PS   16(R10)(AX*2), Y12
	VCVTPH2PS   16(R11)(AX*2), Y13
	VFMADD231PS Y2, Y1, Y8
	VFMADD231PS Y3, Y1, Y9
	VFMADD231PS Y12, Y1, Y10
	VFMADD231PS Y13, Y1, Y11
	ADDQ        $16, AX
	CMPQ        AX, R15
	JLT         f16loop
f16tail:
	CMPQ        AX, R12
	JGE         f16reduce
	VMOVUPS     (SI)(AX*4), Y0
	VCVTPH2PS   (R8)(AX*2), Y2
	VCVTPH2PS   (R9)(AX*2), Y3
	VCVTPH2PS   (R10)(AX*2), Y12
	VCVTPH2PS   (R11)(AX*2), Y13
	VFMADD231PS Y2, Y0, Y4
	VFMADD231PS Y3, Y0, Y5
	VFMADD231PS Y12, Y0, Y6
	VFMADD231PS Y13, Y0, Y7
f16reduce:
	REDUCE4
	VMOVUPS X4, (DI)
	ADDQ    $16, DI
	ADDQ    $16, DX
	SUBQ    $4, CX
	JMP     f16group
f16done:
	VZEROUPPER
	RET

// func dotF32AVX2(a, b *float32, n int) float32
TEXT ·dotF32AVX2(SB), NOSPLIT, $0-28
	MOVQ   a+0(FP), SI
	MOVQ   b+8(FP), R8
	MOVQ   n+16(FP), R12
	MOVQ   R12, R15
	ANDQ   $~15, R15
	VXORPS Y4, Y4, Y4
	VXORPS Y8, Y8, Y8
	XORQ   AX, AX
	CMPQ   AX, R15
	JGE    d32tail
d32loop:
	VMOVUPS     (SI)(AX*4), Y0
	VMOVUPS     32(SI)(AX*4), Y1
	VFMADD231PS (R8)(AX*4), Y0, Y4
	VFMADD231PS 32(R8)(AX*4), Y1, Y8
	ADDQ        $16, AX
	CMPQ        AX, R15
	JLT         d32loop
d32tail:
	CMPQ        AX, R12
	JGE         d32reduce
	VMOVUPS     (SI)(AX*4), Y0
	VFMADD231PS (R8)(AX*4), Y0, Y4
d32reduce:
	VADDPS       Y8, Y4, Y4
	VHADDPS      Y4, Y4, Y4
	VHADDPS      Y4, Y4, Y4
	VEXTRACTF128 $1, Y4, X5
	VADDPS       X5, X4, X4
	VMOVSS       X4, ret+24(FP)
	VZEROUPPER
	RET

// func l2F32AVX2(a, b *float32, n int) float32
TEXT ·l2F32AVX2(SB), NOSPLIT, $0-28
	MOVQ   a+0(FP), SI
	MOVQ   b+8(FP), R8
	MOVQ   n+16(FP), R12
	MOVQ   R12, R15
	ANDQ   $~15, R15
	VXORPS Y4, Y4, Y4
	VXORPS Y8, Y8, Y8
	XORQ   AX, AX
	CMPQ   AX, R15
	JGE    l2tail
l2loop:
	VMOVUPS     (SI)(AX*4), Y0
	VMOVUPS     32(SI)(AX*4), Y1
	VSUBPS      (R8)(AX*4), Y0, Y0
	VSUBPS      32(R8)(AX*4), Y1, Y1
	VFMADD231PS Y0, Y0, Y4
	VFMADD231PS Y1, Y1, Y8
	ADDQ        $16, AX
	CMPQ        AX, R15
	JLT         l2loop
l2tail:
	CMPQ        AX, R12
	JGE         l2reduce
	VMOVUPS     (SI)(AX*4), Y0
	VSUBPS      (R8)(AX*4), Y0, Y0
	VFMADD231PS Y0, Y0, Y4
l2reduce:
	VADDPS       Y8, Y4, Y4
	VHADDPS      Y4, Y4, Y4
	VHADDPS      Y4, Y4, Y4
	VEXTRACTF128 $1, Y4, X5
	VADDPS       X5, X4, X4
	VMOVSS       X4, ret+24(FP)
	VZEROUPPER
	RET

// LAST sums one register across its lanes in the order of REDUCE4 and stores it.
#define LAST(A, B, XA, off) \
	VADDPS       B, A, A       \
	VHADDPS      A, A, A       \
	VHADDPS      A, A, A       \
	VEXTRACTF128 $1, A, X12    \
	VADDPS       X12, XA, XA   \
	VMOVSS       XA, off(DI)

// func dotTileAVX2(out *float32, q0, q1, r0, r1, r2 *float32, dim int)
// Six inner products of two queries with three rows: out = q0r0 q0r1 q0r2 q1r0 …
TEXT ·dotTileAVX2(SB), NOSPLIT, $0-56
	MOVQ out+0(FP), DI
	MOVQ q0+8(FP), SI
	MOVQ q1+16(FP), DX
	MOVQ r0+24(FP), R8
	MOVQ r1+32(FP), R9
	MOVQ r2+40(FP), R10
	MOVQ dim+48(FP), R12
	MOVQ R12, R15
	ANDQ $~15, R15
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	ZERO8
	XORQ AX, AX
	CMPQ AX, R15
	JGE  tiletail
tileloop:
	VMOVUPS     (SI)(AX*4), Y12
	VMOVUPS     (DX)(AX*4), Y13
	VMOVUPS     (R8)(AX*4), Y14
	VMOVUPS     (R9)(AX*4), Y15
	VFMADD231PS Y14, Y12, Y0
	VFMADD231PS Y14, Y13, Y3
	VMOVUPS     (R10)(AX*4), Y14
	VFMADD231PS Y15, Y12, Y1
	VFMADD231PS Y15, Y13, Y4
	VFMADD231PS Y14, Y12, Y2
	VFMADD231PS Y14, Y13, Y5
	VMOVUPS     32(SI)(AX*4), Y12
	VMOVUPS     32(DX)(AX*4), Y13
	VMOVUPS     32(R8)(AX*4), Y14
	VMOVUPS     32(R9)(AX*4), Y15
	VFMADD231PS Y14, Y12, Y6
	VFMADD231PS Y14, Y13, Y9
	VMOVUPS     32(R10)(AX*4), Y14
	VFMADD231PS Y15, Y12, Y7
	VFMADD231PS Y15, Y13, Y10
	VFMADD231PS Y14, Y12, Y8
	VFMADD231PS Y14, Y13, Y11
	ADDQ        $16, AX
	CMPQ        AX, R15
	JLT         tileloop
tiletail:
	CMPQ        AX, R12
	JGE         tilereduce
	VMOVUPS     (SI)(AX*4), Y12
	VMOVUPS     (DX)(AX*4), Y13
	VFMADD231PS (R8)(AX*4), Y12, Y0
	VFMADD231PS (R9)(AX*4), Y12, Y1
	VFMADD231PS (R10)(AX*4), Y12, Y2
	VFMADD231PS (R8)(AX*4), Y13, Y3
	VFMADD231PS (R9)(AX*4), Y13, Y4
	VFMADD231PS (R10)(AX*4), Y13, Y5
tilereduce:
	LAST(Y0, Y6, X0, 0)
	LAST(Y1, Y7, X1, 4)
	LAST(Y2, Y8, X2, 8)
	LAST(Y3, Y9, X3, 12)
	LAST(Y4, Y10, X4, 16)
	LAST(Y5, Y11, X5, 20)
	VZEROUPPER
	RET

// func halfToFloatAVX2(dst *float32, src *uint16, n int)
TEXT ·halfToFloatAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	XORQ AX, AX
halfloop:
	CMPQ      AX, CX
	JGE       halfdone
	VCVTPH2PS (SI)(AX*2), Y0
	VMOVUPS   Y0, (DI)(AX*4)
	ADDQ      $8, AX
	JMP       halfloop
halfdone:
	VZEROUPPER
	RET

// FINISH4 turns the integer sums in the four lanes of X4 into scores:
// A·(scale·sum + offset) + beta·B + bias, with A and B in front of each row and
// scale, offset, bias, beta at R14.
#define FINISH4 \
	VCVTDQ2PS    X4, X4             \
	VBROADCASTSS (R14), X0          \
	VBROADCASTSS 4(R14), X1         \
	VFMADD213PS  X1, X0, X4         \
	VMOVSS       (R8), X2           \
	VINSERTPS    $0x10, (R9), X2, X2   \
	VINSERTPS    $0x20, (R10), X2, X2  \
	VINSERTPS    $0x30, (R11), X2, X2  \
	VMOVSS       4(R8), X3          \
	VINSERTPS    $0x10, 4(R9), X3, X3  \
	VINSERTPS    $0x20, 4(R10), X3, X3 \
	VINSERTPS    $0x30, 4(R11), X3, X3 \
	VBROADCASTSS 12(R14), X0        \
	VMULPS       X0, X3, X3         \
	VFMADD213PS  X3, X2, X4         \
	VBROADCASTSS 8(R14), X0         \
	VADDPS       X0, X4, X4         \
	VMOVUPS      X4, (DI)

// REDUCEI sums the int32 lanes of Y4…Y7 into the four lanes of X4.
#define REDUCEI \
	VPHADDD      Y5, Y4, Y4  \
	VPHADDD      Y7, Y6, Y6  \
	VPHADDD      Y6, Y4, Y4  \
	VEXTRACTI128 $1, Y4, X5  \
	VPADDD       X5, X4, X4

#define I8ROW(R, A) \
	VMOVDQU    8(R)(AX*1), Y2  \
	VPSIGNB    Y0, Y2, Y2      \
	VPMADDUBSW Y2, Y1, Y2      \
	VPMADDWD   Y14, Y2, Y2     \
	VPADDD     Y2, A, A

// func scoreI8AVX2(out *float32, q *int8, base *byte, ids *uint32, n, dim, stride int, consts *[4]float32)
TEXT ·scoreI8AVX2(SB), NOSPLIT, $0-64
	MOVQ    out+0(FP), DI
	MOVQ    q+8(FP), SI
	MOVQ    base+16(FP), BX
	MOVQ    ids+24(FP), DX
	MOVQ    n+32(FP), CX
	MOVQ    dim+40(FP), R12
	MOVQ    stride+48(FP), R13
	MOVQ    consts+56(FP), R14
	VMOVDQU distOnes<>(SB), Y14
i8group:
	CMPQ  CX, $4
	JLT   i8done
	ROWS4
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7
	XORQ  AX, AX
i8loop:
	VMOVDQU (SI)(AX*1), Y0
	VPABSB  Y0, Y1
	I8ROW(R8, Y4)
	I8ROW(R9, Y5)
	I8ROW(R10, Y6)
	I8ROW(R11, Y7)
	ADDQ    $32, AX
	CMPQ    AX, R12
	JLT     i8loop
	REDUCEI
	FINISH4
	ADDQ    $16, DI
	ADDQ    $16, DX
	SUBQ    $4, CX
	JMP     i8group
i8done:
	VZEROUPPER
	RET

#define U4ROW(R, A) \
	VMOVDQU    8(R)(AX*1), Y2  \
	VPSRLW     $4, Y2, Y3      \
	VPAND      Y15, Y2, Y2     \
	VPAND      Y15, Y3, Y3     \
	VPMADDUBSW Y0, Y2, Y2      \
	VPMADDUBSW Y1, Y3, Y3      \
	VPADDW     Y2, A, A        \
	VPADDW     Y3, A, A

// func score4AVX2(out *float32, q *int8, base *byte, ids *uint32, n, bytes, stride int, consts *[4]float32)
TEXT ·score4AVX2(SB), NOSPLIT, $0-64
	MOVQ    out+0(FP), DI
	MOVQ    q+8(FP), SI
	MOVQ    base+16(FP), BX
	MOVQ    ids+24(FP), DX
	MOVQ    n+32(FP), CX
	MOVQ    bytes+40(FP), R12
	MOVQ    stride+48(FP), R13
	MOVQ    consts+56(FP), R14
	VMOVDQU distOnes<>(SB), Y14
	VMOVDQU distNibble<>(SB), Y15
u4group:
	CMPQ  CX, $4
	JLT   u4done
	ROWS4
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7
	XORQ  AX, AX
u4outer: // at most four blocks fit 16-bit sums: 4·2·2·15·127 < 32768
	LEAQ    128(AX), R15
	CMPQ    R15, R12
	CMOVQGT R12, R15
	VPXOR   Y8, Y8, Y8
	VPXOR   Y9, Y9, Y9
	VPXOR   Y10, Y10, Y10
	VPXOR   Y11, Y11, Y11
u4loop:
	VMOVDQU  (SI)(AX*2), Y0
	VMOVDQU  32(SI)(AX*2), Y1
	U4ROW(R8, Y8)
	U4ROW(R9, Y9)
	U4ROW(R10, Y10)
	U4ROW(R11, Y11)
	ADDQ     $32, AX
	CMPQ     AX, R15
	JLT      u4loop
	VPMADDWD Y14, Y8, Y8
	VPMADDWD Y14, Y9, Y9
	VPMADDWD Y14, Y10, Y10
	VPMADDWD Y14, Y11, Y11
	VPADDD   Y8, Y4, Y4
	VPADDD   Y9, Y5, Y5
	VPADDD   Y10, Y6, Y6
	VPADDD   Y11, Y7, Y7
	CMPQ     AX, R12
	JLT      u4outer
	REDUCEI
	FINISH4
	ADDQ     $16, DI
	ADDQ     $16, DX
	SUBQ     $4, CX
	JMP      u4group
u4done:
	VZEROUPPER
	RET

// func score1AVX2(out *float32, planes *uint64, base *byte, ids *uint32, n, words, stride int, consts *[4]float32)
// Scalar POPCNT: four a cycle on Zen, one on Intel, and no table in either case.
TEXT ·score1AVX2(SB), NOSPLIT, $0-64
	MOVQ out+0(FP), DI
	MOVQ base+16(FP), BX
	MOVQ ids+24(FP), DX
	MOVQ n+32(FP), CX
	MOVQ words+40(FP), R12
b1row:
	CMPQ  CX, $0
	JLE   b1done
	MOVL  (DX), R8
	IMULQ stride+48(FP), R8
	ADDQ  BX, R8
	MOVQ  planes+8(FP), SI
	XORQ  AX, AX
	XORQ  R10, R10
	XORQ  R11, R11
	XORQ  R13, R13
	XORQ  R15, R15
b1loop:
	MOVQ    8(R8)(AX*8), R9
	MOVQ    (SI), R14
	ANDQ    R9, R14
	POPCNTQ R14, R14
	ADDQ    R14, R10
	MOVQ    8(SI), R14
	ANDQ    R9, R14
	POPCNTQ R14, R14
	ADDQ    R14, R11
	MOVQ    16(SI), R14
	ANDQ    R9, R14
	POPCNTQ R14, R14
	ADDQ    R14, R13
	ANDQ    24(SI), R9
	POPCNTQ R9, R9
	ADDQ    R9, R15
	ADDQ    $32, SI
	INCQ    AX
	CMPQ    AX, R12
	JLT     b1loop
	LEAQ         (R10)(R11*2), R10
	SHLQ         $1, R15
	SUBQ         R15, R13
	LEAQ         (R10)(R13*4), R10
	MOVQ         consts+56(FP), R14
	VXORPS       X0, X0, X0
	VCVTSI2SSQ   R10, X0, X0
	VMOVSS       (R14), X1
	VMOVSS       4(R14), X2
	VFMADD213SS  X2, X1, X0
	VMOVSS       (R8), X1
	VMOVSS       4(R8), X2
	VMULSS       12(R14), X2, X2
	VFMADD213SS  X2, X1, X0
	VADDSS       8(R14), X0, X0
	VMOVSS       X0, (DI)
	ADDQ         $4, DI
	ADDQ         $4, DX
	DECQ         CX
	JMP          b1row
b1done:
	RET

// func gatherAVX2(out, adj *uint32, n int, seen *uint8, rows int, base *byte, stride, lines int) int
// No branch depends on what was seen: a wrong guess would wait for the mark to arrive.
TEXT ·gatherAVX2(SB), NOSPLIT, $0-72
	MOVQ out+0(FP), DI
	MOVQ adj+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ seen+24(FP), BX
	MOVQ rows+32(FP), R12
	XORQ AX, AX            // neighbours read
	XORQ R15, R15          // kept
ghloop:
	CMPQ    AX, CX
	JGE     ghfetch
	MOVL    (SI)(AX*4), DX
	CMPQ    DX, R12
	JGE     ghfetch         // the end mark, or a number outside the table
	INCQ    AX
	MOVL    DX, (DI)(R15*4)
	MOVL    DX, R13
	SHRL    $3, R13
	ANDL    $7, DX
	MOVBLZX (BX)(R13*1), R8
	BTSL    DX, R8          // the carry is the mark as it was
	MOVB    R8, (BX)(R13*1)
	SBBQ    $-1, R15
	JMP     ghloop
ghfetch:
	MOVQ R15, ret+64(FP)
	MOVQ base+40(FP), R9
	MOVQ stride+48(FP), R10
	MOVQ lines+56(FP), R11
	SHLQ $6, R11
	JEQ  ghdone
	LEAQ (DI)(R15*4), CX
ghrow:
	CMPQ  DI, CX
	JGE   ghdone
	MOVL  (DI), DX
	ADDQ  $4, DI
	IMULQ R10, DX
	ADDQ  R9, DX
	LEAQ  (DX)(R11*1), R13
ghline:
	PREFETCHT0 (DX)
	ADDQ       $64, DX
	CMPQ       DX, R13
	JLT        ghline
	JMP        ghrow
ghdone:
	RET

// func prefetch2(p *uint32)
TEXT ·prefetch2(SB), NOSPLIT, $0-8
	MOVQ       p+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	RET

// func hadamardAVX2(x *float32, n int)
// n is a power of two, at least 16.
TEXT ·hadamardAVX2(SB), NOSPLIT, $0-16
	MOVQ    x+0(FP), DI
	MOVQ    n+8(FP), CX
	VMOVUPS hadSigns<>+0(SB), Y13
	VMOVUPS hadSigns<>+32(SB), Y14
	VMOVUPS hadSigns<>+64(SB), Y15
	XORQ    AX, AX
hdinner:
	VMOVUPS     (DI)(AX*4), Y0
	VPERMILPS   $0xB1, Y0, Y1
	VFMADD213PS Y1, Y13, Y0
	VPERMILPS   $0x4E, Y0, Y1
	VFMADD213PS Y1, Y14, Y0
	VPERM2F128  $0x01, Y0, Y0, Y1
	VFMADD213PS Y1, Y15, Y0
	VMOVUPS     Y0, (DI)(AX*4)
	ADDQ        $8, AX
	CMPQ        AX, CX
	JLT         hdinner
	MOVQ        $8, DX       // half the span of a butterfly
hdspan:
	CMPQ DX, CX
	JGE  hddone
	XORQ AX, AX
hdblock:
	LEAQ (AX)(DX*1), R8      // second half
	MOVQ R8, R9              // end of the first
hdpair:
	VMOVUPS (DI)(AX*4), Y0
	VMOVUPS (DI)(R8*4), Y1
	VADDPS  Y1, Y0, Y2
	VSUBPS  Y1, Y0, Y3
	VMOVUPS Y2, (DI)(AX*4)
	VMOVUPS Y3, (DI)(R8*4)
	ADDQ    $8, AX
	ADDQ    $8, R8
	CMPQ    AX, R9
	JLT     hdpair
	ADDQ    DX, AX
	CMPQ    AX, CX
	JLT     hdblock
	SHLQ    $1, DX
	JMP     hdspan
hddone:
	VZEROUPPER
	RET
