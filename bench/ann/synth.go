package main

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"

	"rag2/hnsw"
	"rag2/internal/npy"
	"rag2/tensor/simd"

	"golang.org/x/sync/errgroup"
)

// synthDim is the dimension of the synthetic set.
const synthDim = 768

// generator makes the rows of a 768-d set fitted to real passages and questions. A row
// is a point between a passage and one of its neighbours, in the passages' PCA basis,
// with the spectrum continued by its own power law to 768, turned at random; lengths
// are mapped to 1…10, evenly, by their rank in a sample. Queries are points between
// questions, with the shift between the two means kept. A row depends on its number
// alone, so that a set is the beginning of every larger one.
type generator struct {
	seed          uint64
	d             int
	spread        []float64 // of the noise, by dimension
	shift         []float32 // the common part
	rows, queries cloud
	turn          func(v, buf []float32)
	norms         []float32 // of a sample, ascending
}

// cloud is real vectors in the new space, with their neighbours.
type cloud struct {
	at   [][]float32
	near [][]hnsw.Hit
}

func newGenerator(ctx context.Context, real, questions [][]float32, dir string, seed uint64) (*generator, error) {
	const spread = 0.25
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
	for i := d; i < synthDim; i++ {
		spectrum = append(spectrum, math.Exp((sy+slope*(m*math.Log(float64(i+1))-sx))/m))
	}
	g := &generator{seed: seed, d: d, spread: make([]float64, synthDim), shift: make([]float32, synthDim)}
	for i, l := range spectrum {
		g.spread[i] = spread * math.Sqrt(l)
	}
	// place turns x to the basis and draws the extra coordinates: those of neighbours
	// are mixed by the same weight as the others, and so are alike.
	place := func(x []float32) []float32 {
		c := make([]float32, synthDim)
		t := make([]float32, d)
		for j := range x {
			t[j] = x[j] - mean[j]
		}
		for i := range d {
			c[i] = simd.Dot(basis[i], t)
		}
		for i := d; i < synthDim; i++ {
			c[i] = float32(math.Sqrt(spectrum[i]) * rng.NormFloat64())
		}
		return c
	}
	for i := range d {
		g.shift[i] = simd.Dot(basis[i], mean)
	}
	for _, c := range []struct {
		to   *cloud
		from [][]float32
		k    int
	}{{&g.rows, real, 12}, {&g.queries, questions, 6}} {
		for _, x := range c.from {
			c.to.at = append(c.to.at, place(x))
		}
		var err error
		if c.to.near, err = neighbours(ctx, c.from, c.from, c.k, dir); err != nil {
			return nil, err
		}
	}
	g.turn = newTurn(synthDim, rng)
	v, buf := make([]float32, synthDim), make([]float32, synthDim)
	for i := range 1 << 14 {
		g.unscaled(i, v, buf)
		g.norms = append(g.norms, simd.Dot(v, v))
	}
	slices.Sort(g.norms)
	return g, nil
}

// point makes a vector beside base of a cloud.
func (g *generator) point(c *cloud, base int, rng *rand.Rand, v, buf []float32) {
	near := c.near[base]
	a, b := c.at[base], c.at[near[1+rng.IntN(len(near)-1)].Row]
	t := float32(rng.Float64() * 0.5)
	for k := range v {
		v[k] = a[k] + t*(b[k]-a[k]) + float32(g.spread[k]*rng.NormFloat64()) + g.shift[k]
	}
	g.turn(v, buf)
}

func (g *generator) unscaled(i int, v, buf []float32) {
	rng := rand.New(rand.NewPCG(g.seed, uint64(i)))
	g.point(&g.rows, rng.IntN(len(g.rows.at)), rng, v, buf)
}

// row puts row i into v; buf is scratch of the same length.
func (g *generator) row(i int, v, buf []float32) {
	g.unscaled(i, v, buf)
	n := simd.Dot(v, v)
	rank, _ := slices.BinarySearch(g.norms, n)
	f := float32((1 + 9*float64(rank)/float64(len(g.norms))) / math.Sqrt(float64(n)))
	for j := range v {
		v[j] *= f
	}
}

// write makes files of n rows and of the queries.
func (g *generator) write(ctx context.Context, n int, vectors, queries string) error {
	qs := make([][]float32, min(len(g.queries.at), 1000))
	buf := make([]float32, synthDim)
	for i := range qs {
		qs[i] = make([]float32, synthDim)
		g.point(&g.queries, i, rand.New(rand.NewPCG(g.seed+1, uint64(i))), qs[i], buf)
	}
	if err := save(queries, qs, "<f4"); err != nil {
		return err
	}
	w, err := npy.NewWriter(vectors, synthDim, "<f2")
	if err != nil {
		return err
	}
	defer w.Abort()
	const block = 1 << 12
	rows := make([]float32, block*synthDim)
	for from := 0; from < n; from += block {
		m := min(block, n-from)
		e, ctx := errgroup.WithContext(ctx)
		cpus := runtime.GOMAXPROCS(0)
		for c := range cpus {
			e.Go(func() error {
				buf := make([]float32, synthDim)
				for i := m * c / cpus; i < m*(c+1)/cpus; i++ {
					g.row(from+i, rows[i*synthDim:(i+1)*synthDim], buf)
				}
				return ctx.Err()
			})
		}
		if err := e.Wait(); err != nil {
			return err
		}
		for i := range m {
			if err := w.WriteRow(rows[i*synthDim : (i+1)*synthDim]); err != nil {
				return err
			}
		}
	}
	return w.Commit()
}

// newTurn is a random orthogonal map: signs, Hadamard transforms of overlapping
// parts, a shuffle. buf is scratch.
func newTurn(dim int, rng *rand.Rand) func(v, buf []float32) {
	p := 1
	for p*2 <= dim {
		p *= 2
	}
	perm := rng.Perm(dim)
	signs := make([]float32, 4*dim)
	for i := range signs {
		signs[i] = 1 - 2*float32(rng.IntN(2))
	}
	f := float32(1 / math.Sqrt(float64(p)))
	return func(v, buf []float32) {
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
