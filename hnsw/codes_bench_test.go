package hnsw

import (
	"math/rand/v2"
	"testing"

	"rag2/tensor/simd"
)

func BenchmarkQuery(b *testing.B) {
	const dim = 768
	rng := rand.New(rand.NewPCG(1, 1))
	mean, q := make([]float32, dim), make([]float32, dim)
	for i := range q {
		mean[i], q[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
	}
	for _, k := range []Codes{Int8, FourBit, OneBit, Principal} {
		c := newCoder(k, InnerProduct, mean, 1, make([]float32, 192*dim))
		b.Run(k.String(), func(b *testing.B) {
			r := make([]float32, c.scratch())
			var out simd.CodeQuery
			for b.Loop() {
				c.query(q, r, &out)
			}
		})
		b.Run(k.String()+" row", func(b *testing.B) {
			r := make([]float32, c.scratch())
			dst := make([]byte, codeStride(k, dim))
			for b.Loop() {
				c.encode(dst, q, r)
			}
		})
	}
}
