package hnsw

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"rag2/tensor/simd"
)

// Codes says what the walk reads instead of full vectors.
type Codes uint32

// Kinds of codes. All are made from the row minus the mean of all rows, turned by a
// random orthogonal matrix (signs and Walsh–Hadamard transforms), and carry two
// float32 factors that keep the row's length, so that vectors need not be normalised.
// Principal keeps only the quarter of the directions in which rows differ most: as many
// bits as OneBit, with less than half its error on embeddings of text.
const (
	NoCodes   Codes = iota // the walk reads the vectors
	Int8                   // a byte a dimension
	FourBit                // half a byte
	OneBit                 // a bit: RaBitQ (Gao & Long 2024) with one centroid
	Principal              // half a byte for each of a quarter of the dimensions, the principal ones
)

var codeNames = []string{"none", "int8", "4bit", "1bit", "pca"}

func (c Codes) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("codes %d", uint32(c))
}

// ParseCodes reads none, int8, 4bit, 1bit or pca.
func ParseCodes(s string) (Codes, error) {
	if i := slices.Index(codeNames, s); i >= 0 {
		return Codes(i), nil
	}
	return 0, fmt.Errorf("codes %q; one of %v", s, codeNames)
}

// MarshalText is the codes' name.
func (c Codes) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the codes' name.
func (c *Codes) UnmarshalText(b []byte) (err error) {
	*c, err = ParseCodes(string(b))
	return err
}

// codeDim is dim rounded up to whole blocks.
func codeDim(dim int) int {
	return (dim + simd.CodeBlock - 1) / simd.CodeBlock * simd.CodeBlock
}

// codeStride is the length of one row's factors and code.
func codeStride(kind Codes, dim int) int {
	d := codeDim(dim)
	switch kind {
	case Int8:
		return simd.CodeHead + d
	case FourBit:
		return simd.CodeHead + d/2
	case OneBit:
		return simd.CodeHead + d/8
	case Principal:
		return simd.CodeHead + codeWidth(kind, dim)/2
	}
	return 0
}

// codeWidth is the number of dimensions of a code: for Principal a quarter of dim in
// whole blocks, at least one.
func codeWidth(kind Codes, dim int) int {
	if kind == Principal {
		return max(1, (dim/4+simd.CodeBlock/2)/simd.CodeBlock) * simd.CodeBlock
	}
	return codeDim(dim)
}

// coder turns vectors into codes and queries into what scores them. It is read-only
// after newCoder; scratch belongs to the caller.
//
// With r = T(x-μ), T orthogonal (for Principal followed by a projection), and u the code's integer vector, the factor A is
// c·|r|²/(u·r), so that A·u estimates r without bias along r. The scores of two such
// vectors are A·A'·(u·u') + B + B' with
//
//	InnerProduct, Cosine: c = 1,  B = μ·(x-μ) (+ μ·μ once, in the query's Bias)
//	L2:                   c = √2, B = -|x-μ|²
type coder struct {
	kind   Codes
	metric Metric
	dim    int
	mean   []float32
	mean2  float32
	signs  [4][]float32
	p      int       // length of one transform
	width  int       // dimensions of a code
	proj   []float32 // for Principal: T, width × dim
	rows   []uint32  // 0 … width-1
}

// newCoder makes a coder; Principal needs the matrix that newProjection makes.
func newCoder(kind Codes, metric Metric, mean []float32, seed uint64, proj []float32) *coder {
	c := &coder{kind: kind, metric: metric, dim: len(mean), mean: mean, mean2: simd.Dot(mean, mean), width: codeWidth(kind, len(mean)), proj: proj}
	if kind == Principal {
		c.rows = make([]uint32, c.width)
		for i := range c.rows {
			c.rows[i] = uint32(i)
		}
	}
	for c.p = simd.CodeBlock; c.p*2 <= c.width; c.p *= 2 {
	}
	f := float32(1 / math.Sqrt(float64(c.p)))
	for i := range c.signs {
		c.signs[i] = make([]float32, c.p)
		for j := range c.signs[i] {
			c.signs[i][j] = f
			if mix(seed, uint64(i)<<32|uint64(j))&1 == 1 {
				c.signs[i][j] = -f
			}
		}
	}
	return c
}

// mix is splitmix64 of two numbers: random bits that depend on nothing else.
func mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019
	for range 2 {
		z ^= z >> 30
		z *= 0xbf58476d1ce4e5b9
		z ^= z >> 27
		z *= 0x94d049bb133111eb
		z ^= z >> 31
	}
	return z
}

// scratch is the length of the scratch that encode and query need.
func (c *coder) scratch() int {
	if c.kind == Principal {
		return c.dim + c.width
	}
	return c.width
}

// rotate is T, in place; r has width elements. The transforms cover the first
// and the last p elements in turn, twice each, so that all are mixed.
func (c *coder) rotate(r []float32) {
	for i := range c.signs {
		part := r[:c.p]
		if i%2 == 1 {
			part = r[len(r)-c.p:]
		}
		if i%2 == 1 && len(r) == c.p && i > 1 {
			break
		}
		simd.Binary(simd.Mul, part, part, c.signs[i])
		simd.Hadamard(part)
	}
}

// residual is r = T(x-λμ) (x scaled to unit length for Cosine) in a part of scratch,
// |r|², |x-λμ|² and μ·(x-λμ).
func (c *coder) residual(x, scratch []float32, lambda float32) (r []float32, r2, x2, mx float32) {
	f := float32(1)
	if c.metric == Cosine {
		if n := simd.Dot(x, x); n > 0 {
			f = float32(1 / math.Sqrt(float64(n)))
		}
	}
	r = scratch[:c.scratch()]
	mean := c.mean[:len(x)]
	for i, v := range x {
		r[i] = v*f - lambda*mean[i]
	}
	mx = simd.Dot(r[:c.dim], c.mean)
	if c.kind == Principal {
		y := r[c.dim:]
		simd.DotRowsF32(y, r[:c.dim], c.proj, c.rows)
		return y, simd.Dot(y, y), simd.Dot(r[:c.dim], r[:c.dim]), mx
	}
	clear(r[len(x):])
	c.rotate(r)
	r2 = simd.Dot(r, r)
	return r, r2, r2, mx
}

// encode writes the factors and code of x to dst.
func (c *coder) encode(dst []byte, x, scratch []float32) {
	r, r2, x2, mx := c.residual(x, scratch, 1)
	code := dst[simd.CodeHead:codeStride(c.kind, c.dim)]
	var ur float32
	switch c.kind {
	case Int8:
		ur = encode8(code, r)
	case FourBit, Principal:
		ur = encode4(code, r, r2)
	case OneBit:
		ur = encode1(code, r)
	}
	a, b := float32(0), mx
	if ur > 0 {
		a = r2 / ur
	}
	if c.metric == L2 {
		a, b = a*math.Sqrt2, -x2
	}
	binary.LittleEndian.PutUint32(dst, math.Float32bits(a))
	binary.LittleEndian.PutUint32(dst[4:], math.Float32bits(b))
}

// largest is the greatest absolute value.
func largest(r []float32) float32 { return max(simd.Maximum(r), -simd.Minimum(r)) }

// round8 is the nearest whole number, halves up, as an int.
func round8(x float32) int { return int(x+256.5) - 256 }

func encode8(code []byte, r []float32) (ur float32) {
	most := largest(r)
	if most == 0 {
		clear(code)
		return 0
	}
	f := 127 / most
	for i, v := range r {
		u := min(max(round8(v*f), -127), 127)
		code[i] = byte(int8(u))
		ur += float32(u) * v
	}
	return ur
}

// encode4 takes the step, of five around the best for a normal distribution, whose
// code points most nearly along r.
func encode4(code []byte, r []float32, r2 float32) (ur float32) {
	clear(code)
	if r2 == 0 {
		for i := range code {
			code[i] = 0x88
		}
		return 0
	}
	sigma := float32(math.Sqrt(float64(r2) / float64(len(r))))
	best, step := float32(-1), float32(0)
	for _, s := range [...]float32{0.27, 0.305, 0.34, 0.375, 0.41} {
		f := 1 / (s * sigma)
		var dot, uu float32
		for _, v := range r {
			u := float32(min(max(int(v*f+8), 0), 15)) - 7.5
			dot += u * v
			uu += u * u
		}
		if q := dot * dot / uu; q > best {
			best, step, ur = q, f, dot
		}
	}
	for i, v := range r {
		u := byte(min(max(int(v*step+8), 0), 15))
		if i%64 >= 32 {
			u <<= 4
		}
		code[i/64*32+i%32] |= u
	}
	return ur
}

func encode1(code []byte, r []float32) (ur float32) {
	clear(code)
	for i, v := range r {
		if v > 0 {
			code[i/8] |= 1 << (i % 8)
			ur += v
		} else {
			ur -= v
		}
	}
	return ur
}

func (c *coder) lambda(q []float32) float32 {
	if !(c.mean2 > 0) {
		return 0
	}
	l := simd.Dot(q, c.mean) / c.mean2
	if c.metric == Cosine {
		l /= float32(math.Sqrt(float64(simd.Dot(q, q))))
	}
	if !(l > -1e6 && l < 1e6) { // a mean of rounding errors
		return 0
	}
	return l
}

// query makes q ready for scoring; out's slices are reused.
func (c *coder) query(q, scratch []float32, out *simd.CodeQuery) {
	// For products, q·x = (q-λμ)·(x-μ) + λμ·(x-μ) + q·μ for any λ; the one that makes
	// q-λμ shortest makes the code's error smallest.
	lambda := float32(1)
	if c.metric != L2 {
		lambda = c.lambda(q)
	}
	r, r2, q2, mq := c.residual(q, scratch, lambda)
	f := float32(1)
	if out.Bias, out.Beta = mq+lambda*c.mean2, lambda; c.metric == L2 {
		f, out.Bias, out.Beta = math.Sqrt2, -q2, 1
	}
	out.Scale, out.Offset = 0, 0
	if c.kind == OneBit {
		c.query1(r, r2, f, out)
		return
	}
	if len(out.I8) != len(r) {
		out.I8 = make([]int8, len(r))
	}
	most := largest(r)
	if !(most > 0) || most > math.MaxFloat32 {
		clear(out.I8)
		return
	}
	s := 127 / most
	sum := 0
	for i, v := range r {
		u := int32(v*s+128.5) - 128
		out.I8[i] = int8(u)
		sum += int(u)
	}
	if out.Scale = f / s; c.kind != Int8 {
		out.Offset = -7.5 * float32(sum) * out.Scale
	}
}

// query1 quantises r to -8…7 and lays out its bit planes. The estimate of r·u is
// Σ ±q = 2·Σ_set q - Σ q.
func (c *coder) query1(r []float32, r2, f float32, out *simd.CodeQuery) {
	if len(out.Planes) != len(r)/16 {
		out.Planes = make([]uint64, len(r)/16)
	}
	clear(out.Planes)
	if !(r2 > 0) || r2 > math.MaxFloat32 {
		return
	}
	s := 1 / (0.335 * float32(math.Sqrt(float64(r2)/float64(len(r)))))
	sum, dot := 0, float32(0)
	for w := range len(r) / 64 {
		var p0, p1, p2, p3 uint64
		for _, v := range r[64*w : 64*w+64] {
			u := min(max(int(v*s+1024.5)-1024, -8), 7)
			sum += u
			dot += float32(u) * v
			b := uint64(u) // its four low bits come in from above, the first ends lowest
			p0 = p0>>1 | b<<63
			p1 = p1>>1 | b>>1<<63
			p2 = p2>>1 | b>>2<<63
			p3 = p3>>1 | b>>3<<63
		}
		copy(out.Planes[4*w:], []uint64{p0, p1, p2, p3})
	}
	if !(dot > 0) {
		return
	}
	g := f * r2 / dot
	out.Scale, out.Offset = 2*g, -g*float32(sum)
}
