package hnsw

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"rag2/tensor/simd"
)

// builder holds the growing graph.
//
// For InnerProduct, edges are chosen by (x-μ)·(y-μ): a query's order of rows is the
// same for x and x-μ, while x·y is ruled by the common part when vectors lie away
// from the origin, and then edges lead everywhere to the same few rows.
type builder struct {
	o        BuildOptions
	path     string
	v        *vectors
	scan     *scanned
	dups     [][2]uint32
	isDup    []uint64 // bitmap
	g        *graph
	t        *table
	coder    *coder
	norms    []float32
	lengths  []float32 // for InnerProduct: edgeLengths·|x-μ|² of each row, see choose
	order    []uint32  // rows in the order of insertion, duplicates left out
	pos      int       // rows inserted
	round    int
	baseRows int // taken over from o.base

	own [][]byte // memory outside the Go heap

	workers chan *searcher
	placed  []placing
	edges   [maxLevel + 1][]uint64 // target<<32 | source, per level

	lastSave time.Time
	saveCost time.Duration
	saves    int
	// Steps for tests: called after each round, with an error to stop.
	afterRound func(round int) error
}

// placing is the neighbours chosen for one new node.
type placing struct {
	row   uint32
	up    uint32
	lists [][]uint32 // by level
	buf   []uint32
}

// Build makes the index of the vectors in npyPath and writes it to path. The file
// depends on vectors, options and instruction set level alone: not on the number of
// workers, and not on how often the build was stopped and taken up again.
func Build(ctx context.Context, npyPath, path string, o BuildOptions) error {
	return BuildShards(ctx, []string{npyPath}, path, o)
}

// BuildShards is Build over several .npy files, whose rows follow one another.
func BuildShards(ctx context.Context, npyPaths []string, path string, o BuildOptions) error {
	b, err := newBuilder(ctx, npyPaths, path, o)
	if err != nil {
		return err
	}
	return errors.Join(b.run(ctx), b.close())
}

// memory is zeroed memory of huge pages: codes and lists are read at random, and
// ordinary pages cost a walk through the page tables each time.
func (b *builder) memory(n int) ([]byte, error) {
	m, err := newMemory(n)
	if err != nil || n == 0 {
		return nil, err
	}
	b.own = append(b.own, m)
	return m[:n:n], nil
}

func (b *builder) close() error {
	err := b.v.close()
	for _, m := range b.own {
		err = errors.Join(err, freeMemory(m))
	}
	b.own, b.t, b.g = nil, nil, nil
	return err
}

func newBuilder(ctx context.Context, npyPaths []string, path string, o BuildOptions) (*builder, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("build %s: %w", path, err)
	}
	if !hostIsLittleEndian() {
		return nil, fmt.Errorf("build %s: a little-endian CPU is needed", path)
	}
	o = o.defaults()
	if o.Checkpoint == "" {
		o.Checkpoint = path + ".ckpt"
	}
	v, err := openVectors(npyPaths)
	if err != nil {
		return nil, err
	}
	b := &builder{o: o, path: path, v: v, lastSave: time.Now()}
	err = checkCodes(o.Codes, v.dim)
	if err == nil {
		err = b.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// prepare scans the vectors, finds duplicates, makes build codes and the order.
func (b *builder) prepare(ctx context.Context) (err error) {
	if b.scan, err = b.v.scan(ctx, b.o.Metric, b.o.Workers); err != nil {
		return err
	}
	n := b.v.n
	b.isDup = make([]uint64, (n+63)/64)
	if err := guarded(func() error { b.dups = b.v.duplicates(b.scan.hashes); return nil }); err != nil {
		return err
	}
	b.scan.hashes = nil
	for _, d := range b.dups {
		b.isDup[d[0]/64] |= 1 << (d[0] % 64)
	}
	if b.o.Metric != InnerProduct {
		b.norms = make([]float32, n)
		if err := b.v.normFactors(ctx, b.o.Metric, b.o.Workers, b.norms); err != nil {
			return err
		}
	}
	b.coder = newCoder(Int8, b.o.Metric, b.scan.mean, b.o.Seed, nil)
	if b.o.FullPrecision {
		b.t = vectorTable(b.v, b.o.Metric, b.norms)
		if b.o.Metric == InnerProduct {
			b.t.shift = make([]float32, n)
			if err := b.v.eachRow(ctx, b.o.Workers, func(i int, x []float32) { b.t.shift[i] = simd.Dot(x, b.scan.mean) }); err != nil {
				return err
			}
			b.t.mean2 = b.coder.mean2
		}
	} else {
		codes, err := b.memory(n * codeStride(Int8, b.v.dim))
		if err != nil {
			return err
		}
		if err := encodeRows(ctx, b.v, b.coder, b.o.Workers, 0, n, codes); err != nil {
			return err
		}
		b.t = codeTable(b.coder, codes)
	}
	if b.o.Metric == InnerProduct {
		if err := b.measureLengths(ctx); err != nil {
			return err
		}
	}
	level0, err := b.memory(8 * b.o.M * n)
	if err != nil {
		return err
	}
	b.g = newGraph(n, b.o.M, b.o.Seed, b.dup, asU32(level0))
	for i := range n {
		if !b.dup(i) {
			b.order = append(b.order, uint32(i))
		}
	}
	if err := b.takeBase(); err != nil {
		return err
	}
	shuffle(b.order[b.pos:], b.o.Seed)
	b.workers = make(chan *searcher, b.o.Workers)
	for range b.o.Workers {
		b.workers <- &searcher{}
	}
	return nil
}

func shuffle(v []uint32, seed uint64) {
	rand.New(rand.NewPCG(seed, 0x5851f42d4c957f2d)).Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
}

func (b *builder) dup(row int) bool { return b.isDup[row/64]>>(row%64)&1 != 0 }

// normFactors fills |x|² (L2) or 1/|x| (Cosine).
func (v *vectors) normFactors(ctx context.Context, metric Metric, workers int, out []float32) error {
	return v.eachRow(ctx, workers, func(i int, x []float32) {
		if out[i] = simd.Dot(x, x); metric == Cosine {
			out[i] = float32(1 / math.Sqrt(float64(out[i])))
		}
	})
}

// eachRow calls f with every row, from several goroutines.
func (v *vectors) eachRow(ctx context.Context, workers int, f func(i int, x []float32)) error {
	return parallel(ctx, workers, (v.n+scanChunk-1)/scanChunk, func(_ context.Context, c int) error {
		var buf []float32
		for i := c * scanChunk; i < min((c+1)*scanChunk, v.n); i++ {
			buf = v.row(i, buf)
			f(i, buf)
		}
		return nil
	})
}

// encodeRows writes the codes of rows [from, to) to dst.
func encodeRows(ctx context.Context, v *vectors, c *coder, workers, from, to int, dst []byte) error {
	stride := codeStride(c.kind, v.dim)
	const chunk = 512
	return parallel(ctx, workers, (to-from+chunk-1)/chunk, func(_ context.Context, k int) error {
		var buf []float32
		r := make([]float32, c.scratch())
		for i := from + k*chunk; i < min(from+(k+1)*chunk, to); i++ {
			buf = v.row(i, buf)
			c.encode(dst[(i-from)*stride:(i-from+1)*stride], buf, r)
		}
		return nil
	})
}

// run inserts in rounds, repairs, and writes the file.
func (b *builder) run(ctx context.Context) error {
	if err := b.resume(); err != nil {
		return err
	}
	for b.pos < len(b.order) {
		if err := b.insertRound(ctx); err != nil {
			return b.stopped(err)
		}
		if b.o.Progress != nil {
			b.o.Progress(b.pos+len(b.dups), b.v.n)
		}
		if err := b.maybeSave(); err != nil {
			return err
		}
		if b.afterRound != nil {
			if err := b.afterRound(b.round); err != nil {
				return b.stopped(err)
			}
		}
	}
	if err := guarded(func() error { return b.repair(ctx) }); err != nil {
		return b.stopped(err)
	}
	if b.o.Progress != nil {
		b.o.Progress(b.v.n, b.v.n)
	}
	if err := b.write(ctx); err != nil {
		return b.stopped(err)
	}
	return b.removeCheckpoint()
}
