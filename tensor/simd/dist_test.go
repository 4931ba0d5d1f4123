package simd

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"
)

// near says whether two sums of n products agree, given the sum of magnitudes.
func near(a, b, mag float32) bool {
	if a == b || math.IsNaN(float64(a)) && math.IsNaN(float64(b)) {
		return true
	}
	if math.IsInf(float64(mag), 0) || math.IsNaN(float64(mag)) {
		// The order of additions decides between NaN and infinity.
		bad := func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }
		return bad(a) && bad(b)
	}
	return math.Abs(float64(a)-float64(b)) <= 2e-6*float64(mag)+1e-30
}

func magnitude(a, b []float32) (s float32) {
	for i := range a {
		s += float32(math.Abs(float64(a[i]) * float64(b[i])))
	}
	return s
}

// specials puts NaN, infinities, zeros and denormals into v.
func specials(rng *rand.Rand, v []float32) {
	s := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, 1e-42, -0}
	for range 1 + rng.IntN(3) {
		if len(v) > 0 {
			v[rng.IntN(len(v))] = s[rng.IntN(len(s))]
		}
	}
}

func floats(rng *rand.Rand, n int) []float32 {
	off := rng.IntN(8) // unaligned starts
	v := make([]float32, n+off)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return v[off:]
}

func checkDistances(t *testing.T, seed uint64, dim, rows int, special bool) {
	rng := rand.New(rand.NewPCG(seed, 7))
	q, table := floats(rng, dim), floats(rng, dim*rows)
	half := make([]uint16, len(table))
	for i := range table {
		h := float16.Fromfloat32(table[i])
		half[i], table[i] = h.Bits(), h.Float32()
	}
	if special {
		specials(rng, q)
		specials(rng, table)
		for i := range table {
			half[i] = float16.Fromfloat32(table[i]).Bits()
			table[i] = float16.Frombits(half[i]).Float32()
		}
	}
	ids := make([]uint32, rng.IntN(20))
	for i := range ids {
		ids[i] = uint32(rng.IntN(rows))
	}
	a, b := make([]float32, len(ids)), make([]float32, len(ids))
	DotRowsF32(a, q, table, ids)
	DotRowsF16(b, q, half, ids)
	for i, id := range ids {
		row := table[int(id)*dim : (int(id)+1)*dim]
		mag := magnitude(q, row)
		want := dotGeneric(q, row)
		if !near(a[i], want, mag) {
			t.Errorf("dim %d: f32 row %v, want %v", dim, a[i], want)
		}
		if !near(b[i], want, mag) {
			t.Errorf("dim %d: f16 row %v, want %v", dim, b[i], want)
		}
		if d := Dot(q, row); math.Float32bits(d) != math.Float32bits(a[i]) && d == d {
			t.Errorf("dim %d: Dot %v and DotRowsF32 %v differ", dim, d, a[i])
		}
		if x, y := L2(q, row), l2Generic(q, row); !near(x, y, y) {
			t.Errorf("dim %d: L2 %v, want %v", dim, x, y)
		}
	}
	conv := make([]float32, len(half))
	HalfToFloat(conv, half)
	for i := range conv {
		if conv[i] != table[i] && table[i] == table[i] {
			t.Fatalf("half %#x became %v, want %v", half[i], conv[i], table[i])
		}
	}
	if rows >= 4 {
		r := func(i int) []float32 { return table[i*dim : (i+1)*dim] }
		var out [6]float32
		DotTile(&out, q, r(3), r(0), r(1), r(2))
		for i := range 3 {
			for j, p := range [][]float32{q, r(3)} {
				if d := Dot(p, r(i)); math.Float32bits(d) != math.Float32bits(out[3*j+i]) && d == d {
					t.Errorf("dim %d: tile %v, Dot %v", dim, out[3*j+i], d)
				}
			}
		}
	}
}

func TestDistances(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for dim := range 70 {
			checkDistances(t, uint64(dim), dim, 9, dim%3 == 2)
		}
		for _, dim := range []int{96, 127, 384, 385, 768, 1024} {
			checkDistances(t, uint64(dim), dim, 12, false)
		}
	})
}

func FuzzDistances(f *testing.F) {
	f.Add(uint64(1), uint16(384), uint8(7), false)
	f.Add(uint64(2), uint16(3), uint8(1), true)
	f.Fuzz(func(t *testing.T, seed uint64, dim uint16, rows uint8, special bool) {
		checkDistances(t, seed, int(dim%1100), 1+int(rows), special)
	})
}

func checkCodes(t *testing.T, seed uint64, blocks, rows int) {
	rng := rand.New(rand.NewPCG(seed, 8))
	dim := 64 * blocks
	q := &CodeQuery{Scale: rng.Float32(), Offset: float32(rng.NormFloat64()), Bias: float32(rng.NormFloat64()), Beta: float32(rng.NormFloat64()), I8: make([]int8, dim), Planes: make([]uint64, 4*blocks)}
	for i := range q.I8 {
		q.I8[i] = int8(rng.IntN(255) - 127)
		if seed%5 == 0 {
			q.I8[i] = 127
		}
	}
	for i := range q.Planes {
		q.Planes[i] = rng.Uint64()
	}
	ids := make([]uint32, rng.IntN(20))
	for i := range ids {
		ids[i] = uint32(rng.IntN(rows))
	}
	table := func(bytes int) ([]byte, int) {
		stride := CodeHead + bytes + rng.IntN(3)
		b := make([]byte, stride*rows)
		for r := range rows {
			row := b[r*stride : (r+1)*stride]
			for i := range row {
				if row[i] = byte(rng.Uint32()); row[i] == 0x80 {
					row[i] = 0x7f
				}
				if seed%5 == 0 {
					row[i] = 0x7f // the largest sums of signed bytes
					if bytes == dim/2 {
						row[i] = 0xff
					}
				}
			}
			binary.LittleEndian.PutUint32(row, math.Float32bits(float32(rng.NormFloat64())))
			binary.LittleEndian.PutUint32(row[4:], math.Float32bits(float32(rng.NormFloat64())))
		}
		return b, stride
	}
	for _, k := range []struct {
		name  string
		bytes int
		f     func([]float32, *CodeQuery, []byte, int, []uint32)
		sum   func([]byte) int
	}{
		{"int8", dim, Score8, func(c []byte) int { return sum8(q.I8, c) }},
		{"4-bit", dim / 2, Score4, func(c []byte) int { return sum4(q.I8, c) }},
		{"1-bit", dim / 8, Score1, func(c []byte) int { return sum1(q.Planes, c) }},
	} {
		b, stride := table(k.bytes)
		got, want := make([]float32, len(ids)), make([]float32, len(ids))
		k.f(got, q, b, stride, ids)
		codeGeneric(want, q, b, stride, ids, k.sum)
		for i := range got {
			if !near(got[i], want[i], float32(math.Abs(float64(want[i])))+10+q.Scale*float32(dim)*30000) {
				t.Errorf("%s, %d dimensions: %v, want %v", k.name, dim, got[i], want[i])
			}
		}
		// Integer sums are exact: with factors 1 and 0 the score is the sum.
		for r := range rows {
			binary.LittleEndian.PutUint32(b[r*stride:], math.Float32bits(1))
			binary.LittleEndian.PutUint32(b[r*stride+4:], 0)
		}
		one := &CodeQuery{Scale: 1, Beta: 1, I8: q.I8, Planes: q.Planes}
		k.f(got, one, b, stride, ids)
		for i, id := range ids {
			if s := k.sum(b[int(id)*stride+CodeHead : (int(id)+1)*stride]); got[i] != float32(s) {
				t.Errorf("%s, %d dimensions: sum %v, want %d", k.name, dim, got[i], s)
			}
		}
	}
}

func TestCodes(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for blocks := 1; blocks < 18; blocks++ {
			checkCodes(t, uint64(blocks), blocks, 11)
		}
	})
}

func FuzzCodes(f *testing.F) {
	f.Add(uint64(5), uint8(12), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, blocks, rows uint8) {
		checkCodes(t, seed, 1+int(blocks%24), 1+int(rows))
	})
}

func TestGather(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		const rows = 101
		table, out := make([]byte, 8*rows), make([]uint32, 40)
		seen := make([]uint8, (rows+7)/8)
		seen[0] = 1 << 7
		for _, lines := range []int{0, 2} {
			m := append([]uint8(nil), seen...)
			n := Gather(out, []uint32{7, 9, 100, 9, 0, math.MaxUint32, 5, 6}, m, rows, table, 8, lines)
			if n != 3 || out[0] != 9 || out[1] != 100 || out[2] != 0 || m[0] != 1<<7|1 || m[1] != 1<<1 || m[12] != 1<<4 {
				t.Errorf("%d %v %x", n, out[:n], m)
			}
		}
		if n := Gather(out, []uint32{rows}, seen, rows, table, 8, 2); n != 0 {
			t.Errorf("a number outside the table was kept")
		}
		rng := rand.New(rand.NewPCG(1, 1))
		m, had := make([]uint8, len(seen)), map[uint32]bool{}
		for range 100 {
			adj := make([]uint32, rng.IntN(len(out)+1))
			var want []uint32
			for i := range adj {
				if adj[i] = rng.Uint32N(rows); !had[adj[i]] {
					want = append(want, adj[i])
				}
				had[adj[i]] = true
			}
			if n := Gather(out, adj, m, rows, table, 8, 1); !slices.Equal(out[:n], want) {
				t.Fatalf("of %v: %v, want %v", adj, out[:n], want)
			}
			if rng.IntN(4) == 0 {
				clear(m)
				clear(had)
			}
		}
		Prefetch(out)
		Prefetch(nil)
	})
}

func TestHadamard(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		for n := 1; n <= 2048; n *= 2 {
			x := floats(rng, n)
			want := append([]float32(nil), x...)
			hadamardGeneric(want)
			Hadamard(x)
			for i := range x {
				if math.Abs(float64(x[i]-want[i])) > 1e-4*math.Sqrt(float64(n)) {
					t.Fatalf("n %d at %d: %v, want %v", n, i, x[i], want[i])
				}
			}
		}
	})
}

func BenchmarkDistances(b *testing.B) {
	const rows, dim, n = 40_000, 384, 16
	rng := rand.New(rand.NewPCG(1, 1))
	q, table := floats(rng, dim), floats(rng, rows*dim)
	half, codes := make([]uint16, rows*dim), make([]byte, rows*(dim+8))
	cq := &CodeQuery{Scale: 1, I8: make([]int8, dim), Planes: make([]uint64, dim/16)}
	ids, out := make([]uint32, n), make([]float32, n)
	run := func(name string, f func()) {
		for _, cold := range []bool{false, true} {
			b.Run(name+map[bool]string{false: "/cached", true: "/random"}[cold], func(b *testing.B) {
				for b.Loop() {
					if cold {
						for i := range ids {
							ids[i] = rng.Uint32N(rows)
						}
					}
					f()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/row")
			})
		}
	}
	run("f32", func() { DotRowsF32(out, q, table, ids) })
	run("f16", func() { DotRowsF16(out, q, half, ids) })
	run("int8", func() { Score8(out, cq, codes, dim+8, ids) })
	run("4bit", func() { Score4(out, cq, codes, dim/2+8, ids) })
	run("1bit", func() { Score1(out, cq, codes, dim/8+8, ids) })
	x := floats(rng, 512)
	b.Run("hadamard512", func(b *testing.B) {
		for b.Loop() {
			Hadamard(x)
			for i := range x {
				x[i] *= 0.04
			}
		}
	})
}
