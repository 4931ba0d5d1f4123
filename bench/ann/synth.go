package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"rag2/hnsw"
	"rag2/internal/npy"
	"rag2/tensor/simd"
)

// synth makes n vectors and the queries of a 768-d set fitted to real passages and
// questions: a vector is a point between a passage and one of its neighbours, in the
// passages' PCA basis, with the spectrum continued by its own power law to 768, turned
// at random; lengths are mapped by rank to 1…10. Queries are points between questions,
// with the shift between the two means kept.
func synth(ctx context.Context, real, questions [][]float32, n int, dir string, seed uint64) (vectors, queries string, err error) {
	const dim, spread = 768, 0.25
	d := len(real[0])
	rng := rand.New(rand.NewPCG(seed, 17))
	mean, basis, spectrum := pca(real)
	// The tail of the spectrum, λ ~ i^-a, fitted on its second half.
	var sx, sy, sxx, sxy, m float64
	for i := d / 2; i < d*9/10; i++ {
		x, y := math.Log(float64(i+1)), math.Log(max(spectrum[i], 1e-12))
		sx, sy, sxx, sxy, m = sx+x, sy+y, sxx+x*x, sxy+x*y, m+1
	}
	slope := (m*sxy - sx*sy) / (m*sxx - sx*sx)
	tail := make([]float64, dim-d)
	for i := range tail {
		tail[i] = math.Sqrt(math.Exp((sy + slope*(m*math.Log(float64(d+i+1))-sx)) / m))
	}
	near, err := neighbours(ctx, real, real, 12, dir)
	if err != nil {
		return "", "", err
	}
	qnear, err := neighbours(ctx, questions, questions, 6, dir)
	if err != nil {
		return "", "", err
	}
	coords := func(x []float32) []float32 {
		c := make([]float32, d)
		t := make([]float32, d)
		for j := range x {
			t[j] = x[j] - mean[j]
		}
		for i := range c {
			c[i] = simd.Dot(basis[i], t)
		}
		return c
	}
	shift := make([]float32, dim) // the common part, in the new space
	copy(shift, coords(make([]float32, d)))
	for i := range shift {
		shift[i] = -shift[i]
	}
	project := func(rows [][]float32) [][]float32 {
		out := make([][]float32, len(rows))
		for i, r := range rows {
			out[i] = coords(r)
		}
		return out
	}
	rc, qc := project(real), project(questions)
	// The extra coordinates of neighbours are alike, as the others are: a base for
	// each real vector, mixed by the same weight.
	extra := func(n int) [][]float32 {
		out := make([][]float32, n)
		for i := range out {
			out[i] = make([]float32, len(tail))
			for j := range tail {
				out[i][j] = float32(tail[j] * rng.NormFloat64())
			}
		}
		return out
	}
	re, qe := extra(len(real)), extra(len(questions))
	turn := newTurn(dim, rng)
	point := func(c, e [][]float32, nb [][]hnsw.Hit, i int) []float32 {
		j := nb[i][1+rng.IntN(len(nb[i])-1)].Row
		t := float32(rng.Float64() * 0.5)
		v := make([]float32, dim)
		for k := range d {
			v[k] = c[i][k] + t*(c[j][k]-c[i][k]) + float32(spread*math.Sqrt(spectrum[k])*rng.NormFloat64())
		}
		for k := range tail {
			v[d+k] = e[i][k] + t*(e[j][k]-e[i][k]) + float32(spread*tail[k]*rng.NormFloat64())
		}
		for k := range v {
			v[k] += shift[k]
		}
		turn(v)
		return v
	}
	all := make([][]float32, n)
	for i := range all {
		all[i] = point(rc, re, near, rng.IntN(len(real)))
	}
	lengths(all)
	vectors, queries = filepath.Join(dir, fmt.Sprintf("synth-%d.npy", n)), filepath.Join(dir, fmt.Sprintf("synth-%d-queries.npy", n))
	qs := make([][]float32, min(len(questions), 1000))
	for i := range qs {
		qs[i] = point(qc, qe, qnear, i)
	}
	if err := save(vectors, all, "<f4"); err != nil {
		return "", "", err
	}
	return vectors, queries, save(queries, qs, "<f4")
}

// lengths maps the vectors' lengths by rank to 1…10, evenly.
func lengths(all [][]float32) {
	order := make([]int, len(all))
	norm := make([]float32, len(all))
	for i, v := range all {
		order[i], norm[i] = i, simd.Dot(v, v)
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case norm[a] < norm[b]:
			return -1
		case norm[a] > norm[b]:
			return 1
		}
		return a - b
	})
	for rank, i := range order {
		f := float32((1 + 9*float64(rank)/float64(max(len(all)-1, 1))) / math.Sqrt(float64(norm[i])))
		for j := range all[i] {
			all[i][j] *= f
		}
	}
}

// newTurn is a random orthogonal map: signs, Hadamard transforms of overlapping
// parts, a shuffle.
func newTurn(dim int, rng *rand.Rand) func([]float32) {
	p := 1
	for p*2 <= dim {
		p *= 2
	}
	perm := rng.Perm(dim)
	signs := make([]float32, 4*dim)
	for i := range signs {
		signs[i] = 1 - 2*float32(rng.IntN(2))
	}
	buf := make([]float32, dim)
	f := float32(1 / math.Sqrt(float64(p)))
	return func(v []float32) {
		for r := range 4 {
			for i := range v {
				buf[perm[i]] = v[i] * signs[r*dim+i]
			}
			copy(v, buf)
			part := v[:p]
			if r%2 == 1 {
				part = v[len(v)-p:]
			}
			simd.Hadamard(part)
			for i := range part {
				part[i] *= f
			}
		}
	}
}

// neighbours finds the k nearest of each query among rows, by a graph.
func neighbours(ctx context.Context, rows, queries [][]float32, k int, dir string) ([][]hnsw.Hit, error) {
	p := filepath.Join(dir, "neighbours.npy")
	if err := save(p, rows, "<f4"); err != nil {
		return nil, err
	}
	if err := hnsw.Build(ctx, p, p+".hnsw", hnsw.BuildOptions{Metric: hnsw.L2, EfConstruction: 60}); err != nil {
		return nil, err
	}
	x, err := hnsw.OpenWith(p+".hnsw", hnsw.OpenOptions{Resident: true})
	if err != nil {
		return nil, err
	}
	defer x.Close()
	h, _, err := x.SearchBatch(ctx, queries, k, hnsw.SearchOptions{Ef: 60}, 2)
	return h, err
}

// intrinsicDimension is the mean of Levina and Bickel's estimate over sampled rows,
// from the k nearest by Euclidean distance.
func intrinsicDimension(ctx context.Context, rows [][]float32, k int, dir string) (float64, error) {
	var sample [][]float32
	for i := 0; i < len(rows); i += max(1, len(rows)/500) {
		sample = append(sample, rows[i])
	}
	h, err := neighbours(ctx, rows, sample, k+1, dir)
	if err != nil {
		return 0, err
	}
	sum, n := 0.0, 0
	for _, hs := range h {
		last := math.Sqrt(-float64(hs[len(hs)-1].Score))
		s, m := 0.0, 0
		for _, x := range hs[1 : len(hs)-1] {
			if r := math.Sqrt(-float64(x.Score)); r > 0 {
				s += math.Log(last / r)
				m++
			}
		}
		if s > 0 {
			sum += s / float64(m)
			n++
		}
	}
	return float64(n) / sum, nil // the harmonic mean, as MacKay and Ghahramani correct it
}

// pca is the mean, the eigenvectors and the eigenvalues, largest first, by cyclic
// Jacobi rotations of the covariance.
func pca(rows [][]float32) (mean []float32, basis [][]float32, spectrum []float64) {
	d := len(rows[0])
	mean = make([]float32, d)
	for _, r := range rows {
		for j, x := range r {
			mean[j] += x / float32(len(rows))
		}
	}
	cols := make([][]float32, d) // centred, one row a dimension
	for j := range cols {
		cols[j] = make([]float32, len(rows))
		for i, r := range rows {
			cols[j][i] = r[j] - mean[j]
		}
	}
	a := make([][]float64, d)
	v := make([][]float64, d)
	for i := range a {
		a[i], v[i] = make([]float64, d), make([]float64, d)
		v[i][i] = 1
		for j := range i + 1 {
			a[i][j] = float64(simd.Dot(cols[i], cols[j])) / float64(len(rows))
			a[j][i] = a[i][j]
		}
	}
	for range 8 {
		for p := range d {
			for q := p + 1; q < d; q++ {
				if math.Abs(a[p][q]) <= 1e-12*math.Sqrt(math.Abs(a[p][p]*a[q][q])) {
					continue
				}
				theta := (a[q][q] - a[p][p]) / (2 * a[p][q])
				t := 1 / (math.Abs(theta) + math.Sqrt(theta*theta+1))
				if theta < 0 {
					t = -t
				}
				c := 1 / math.Sqrt(t*t+1)
				s := t * c
				for k := range d {
					x, y := a[k][p], a[k][q]
					a[k][p], a[k][q] = c*x-s*y, s*x+c*y
				}
				ap, aq, vp, vq := a[p], a[q], v[p], v[q]
				for k := range d {
					x, y := ap[k], aq[k]
					ap[k], aq[k] = c*x-s*y, s*x+c*y
					x, y = vp[k], vq[k]
					vp[k], vq[k] = c*x-s*y, s*x+c*y
				}
			}
		}
	}
	order := make([]int, d)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if a[i][i] > a[j][j] {
			return -1
		}
		return 1
	})
	for _, i := range order {
		b := make([]float32, d)
		for k := range b {
			b[k] = float32(v[i][k])
		}
		basis = append(basis, b)
		spectrum = append(spectrum, max(a[i][i], 0))
	}
	return mean, basis, spectrum
}

func load(path string) ([][]float32, error) {
	a, err := npy.Open(path)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	out := make([][]float32, a.Rows())
	for i := range out {
		out[i] = append(make([]float32, 0, a.Cols()), a.Row32(i, nil)...)
	}
	return out, nil
}

func save(path string, rows [][]float32, dtype string) error {
	w, err := npy.NewWriter(path, len(rows[0]), dtype)
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, r := range rows {
		if err := w.WriteRow(r); err != nil {
			return err
		}
	}
	return w.Commit()
}
