package hnsw

import (
	"context"
	"fmt"
	"math"

	"rag2/tensor/simd"
)

// maxPrincipalDim bounds the matrix of products of dimensions, 64 MiB.
const maxPrincipalDim = 4096

const (
	projectionSample = 1 << 15 // rows looked at, spread over all
	projectionRounds = 24      // of the iteration; later ones change no figure of recall
)

// checkCodes says before a build, not after it, that its codes cannot be made.
func checkCodes(kind Codes, dim int) error {
	if kind == Principal && dim > maxPrincipalDim {
		return fmt.Errorf("codes %v of %d dimensions; at most %d: choose %v", kind, dim, maxPrincipalDim, OneBit)
	}
	return nil
}

// newProjection finds the directions in which rows differ most (orthogonal iteration on
// the products of dimensions over a sample) and turns them at random, so that a code's
// dimensions are alike: codeWidth × dim, orthonormal rows, except that a matrix wider
// than dim turns dim of them and zeros. It depends on vectors, mean and seed.
func newProjection(ctx context.Context, v *vectors, metric Metric, mean []float32, seed uint64, workers int) ([]float32, error) {
	dim := v.dim
	if err := checkCodes(Principal, dim); err != nil {
		return nil, err
	}
	products, err := dimensionProducts(ctx, v, metric, mean, workers)
	if err != nil {
		return nil, err
	}
	all := make([]uint32, dim)
	for i := range all {
		all[i] = uint32(i)
	}
	c := newCoder(Principal, metric, mean, seed, nil)
	found := min(c.width, dim)
	q, y := make([]float32, found*dim), make([]float32, found*dim)
	for i := range q {
		q[i] = randomSign(seed, i)
	}
	if err := orthonormal(ctx, q, dim, seed); err != nil {
		return nil, err
	}
	for range projectionRounds {
		err := parallel(ctx, workers, found, func(_ context.Context, k int) error {
			simd.DotRowsF32(y[k*dim:(k+1)*dim], q[k*dim:(k+1)*dim], products, all)
			return nil
		})
		if err != nil {
			return nil, err
		}
		q, y = y, q
		if err := orthonormal(ctx, q, dim, seed); err != nil { // minutes in all at 4096 dimensions
			return nil, err
		}
	}
	out := make([]float32, c.width*dim)
	column := make([]float32, c.width)
	for j := range dim {
		clear(column)
		for i := range found {
			column[i] = q[i*dim+j]
		}
		c.rotate(column)
		for i, x := range column {
			out[i*dim+j] = x
		}
	}
	return out, nil
}

// dimensionProducts is the mean over sampled rows of (x-μ)(x-μ)', dim × dim.
func dimensionProducts(ctx context.Context, v *vectors, metric Metric, mean []float32, workers int) ([]float32, error) {
	const block = 512
	dim := v.dim
	m := min(v.n, projectionSample)
	all := make([]uint32, dim)
	for i := range all {
		all[i] = uint32(i)
	}
	out := make([]float32, dim*dim)
	t := make([]float32, dim*block) // dimension by row
	var row []float32
	for from := 0; from < m; from += block {
		clear(t)
		err := guarded(func() error {
			for i := from; i < min(from+block, m); i++ {
				row = v.row(int(int64(i)*int64(v.n)/int64(m)), row)
				f := float32(1)
				if n := simd.Dot(row, row); metric == Cosine && n > 0 {
					f = float32(1 / math.Sqrt(float64(n)))
				}
				for j, x := range row {
					t[j*block+i-from] = x*f - mean[j]
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		err = parallel(ctx, workers, dim, func(_ context.Context, j int) error {
			var part [maxPrincipalDim]float32
			simd.DotRowsF32(part[:j+1], t[j*block:(j+1)*block], t, all[:j+1])
			for k, x := range part[:j+1] {
				out[j*dim+k] += x
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	f := 1 / float32(max(m, 1))
	for j := range dim {
		for k := range j + 1 {
			out[j*dim+k] *= f
			out[k*dim+j] = out[j*dim+k]
		}
	}
	return out, nil
}

func randomSign(seed uint64, i int) float32 { return 1 - 2*float32(mix(seed, 1<<40|uint64(i))&1) }

// orthonormal makes the rows of q orthonormal, in order (Gram–Schmidt, twice). A row
// that is nothing but what earlier ones hold, as happens when rows of data span less, is
// drawn at random instead.
func orthonormal(ctx context.Context, q []float32, dim int, seed uint64) error {
	for k := 0; k*dim < len(q); k++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		row := q[k*dim : (k+1)*dim]
		for try := 0; ; try++ {
			before := simd.Dot(row, row)
			for range 2 {
				for j := range k {
					other := q[j*dim : (j+1)*dim]
					s := simd.Dot(row, other)
					for i, x := range other {
						row[i] -= s * x
					}
				}
			}
			if n := simd.Dot(row, row); n > 1e-8*before && before > 0 {
				f := float32(1 / math.Sqrt(float64(n)))
				for i := range row {
					row[i] *= f
				}
				break
			}
			for i := range row {
				row[i] = randomSign(seed, (k+1)<<20|try<<32|i)
			}
		}
	}
	return nil
}
