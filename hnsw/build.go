package hnsw

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"rag2/tensor/simd"
)

// BuildOptions shape an index. The zero value is inner product, M 16,
// efConstruction 200, no codes, all CPUs.
type BuildOptions struct {
	Metric         Metric
	Codes          Codes // what the walk of a search reads; NoCodes: the vectors
	M              int   // neighbours per node above level 0; twice as many at level 0
	EfConstruction int
	Seed           uint64
	Workers        int // goroutines; the file does not depend on it
	// FullPrecision builds the graph from the vectors themselves. Otherwise from 8-bit
	// codes of them, made in memory (dim+8 bytes a row): faster, and as good unless
	// neighbours are closer together than the 8-bit grid.
	FullPrecision bool
	// Checkpoint is where the state of a build is kept; "" is the index's path with
	// ".ckpt". A build that finds a checkpoint of the same vectors and options takes it
	// up and makes the file that an uninterrupted build would have made.
	Checkpoint string
	// CheckpointEvery is the least time between checkpoints, 0 = 20 s; they also wait
	// until they cost less than 3 % of the time. Negative writes none.
	CheckpointEvery time.Duration
	Progress        func(done, total int)

	base string // an index of the first rows whose graph is taken over
}

func (o BuildOptions) defaults() BuildOptions {
	if o.M == 0 {
		o.M = 16
	}
	if o.EfConstruction == 0 {
		o.EfConstruction = max(200, o.M)
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.CheckpointEvery == 0 {
		o.CheckpointEvery = 20 * time.Second
	}
	return o
}

// Validate lists everything that is wrong with the options.
func (o BuildOptions) Validate() error {
	o = o.defaults()
	var errs []error
	if o.M < 2 || o.M > maxDegree/2 {
		errs = append(errs, fmt.Errorf("parameter M is %d, not 2…%d", o.M, maxDegree/2))
	}
	if o.EfConstruction < o.M || o.EfConstruction > 1<<16 {
		errs = append(errs, fmt.Errorf("efConstruction is %d, not M…65536", o.EfConstruction))
	}
	if int(o.Metric) >= len(metricNames) {
		errs = append(errs, fmt.Errorf("metric %d is unknown", o.Metric))
	}
	if int(o.Codes) >= len(codeNames) {
		errs = append(errs, fmt.Errorf("codes %d are unknown", o.Codes))
	}
	if o.Workers < 1 || o.Workers > 4096 {
		errs = append(errs, fmt.Errorf("%d workers, not 1…4096", o.Workers))
	}
	return errors.Join(errs...)
}

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
	order    []uint32 // rows in the order of insertion, duplicates left out
	pos      int      // rows inserted
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
	if err := b.prepare(ctx); err != nil {
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
	b.coder = newCoder(Int8, b.o.Metric, b.scan.mean, b.o.Seed)
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
		r := make([]float32, codeDim(v.dim))
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

// roundSize is how many nodes are placed against a graph of n: a fiftieth, so that
// few miss a neighbour of their own round.
func roundSize(n int) int { return min(max(n/50, 1), 1<<14) }

// insertRound places the next rows against the graph as it is, then adds their edges
// both ways. Until the graph changes, an error leaves it as it was.
func (b *builder) insertRound(ctx context.Context) error {
	batch := b.order[b.pos:min(b.pos+roundSize(b.pos), len(b.order))]
	if len(b.placed) < len(batch) {
		b.placed = append(b.placed, make([]placing, len(batch)-len(b.placed))...)
	}
	placed := b.placed[:len(batch)]
	if b.pos > 0 {
		err := parallel(ctx, b.o.Workers, len(batch), func(_ context.Context, i int) error {
			s := <-b.workers
			b.place(s, batch[i], &placed[i])
			b.workers <- s
			return nil
		})
		if err != nil {
			return err
		}
	} else {
		b.place(nil, batch[0], &placed[0])
	}
	for l := range b.edges {
		b.edges[l] = b.edges[l][:0]
	}
	for i := range placed {
		p := &placed[i]
		for l, ls := range p.lists {
			self := p.row
			if l == 0 {
				setList(b.g.list0(p.row), ls)
			} else {
				self = p.up
				setList(b.g.upper(p.up, l), ls)
			}
			for _, t := range ls {
				b.edges[l] = append(b.edges[l], uint64(t)<<32|uint64(self))
			}
		}
	}
	// From here on the round is finished whatever the context says.
	for l, e := range b.edges {
		if err := b.connectAll(l, e); err != nil {
			return err
		}
	}
	for i := range placed { // the highest node is the entry, the first of its level
		if p := &placed[i]; b.pos == 0 && i == 0 || len(p.lists)-1 > b.g.top {
			b.g.top, b.g.entryRow, b.g.entryUp = len(p.lists)-1, p.row, p.up
		}
	}
	b.pos += len(batch)
	b.round++
	return nil
}

// upNumber is a row's number above level 0.
func (g *graph) upNumber(row uint32) uint32 {
	i, _ := slices.BinarySearch(g.upRow, row)
	return uint32(i)
}

// loadRow makes stored row id the query.
func (s *searcher) loadRow(t *table, x *query, id uint32) {
	if t.kind == table8 {
		r := t.bytes[int(id)*t.stride : (int(id)+1)*t.stride]
		x.code.Scale = math.Float32frombits(le.Uint32(r))
		x.code.Offset = 0
		x.code.Bias, x.code.Beta = math.Float32frombits(le.Uint32(r[4:])), 1
		switch t.metric {
		case InnerProduct: // centred
			x.code.Bias, x.code.Beta = 0, 0
		case Cosine:
			x.code.Bias += t.coder.mean2
		}
		c := r[simd.CodeHead:]
		x.code.I8 = unsafe.Slice((*int8)(unsafe.Pointer(&c[0])), len(c))
		return
	}
	if cap(x.row) < t.v.dim {
		x.row = make([]float32, t.v.dim)
	}
	x.vec = append(x.vec[:0], t.v.row(int(id), x.row[:t.v.dim])...)
	switch x.bias = 0; t.metric {
	case InnerProduct:
		if t.shift != nil {
			x.bias = t.mean2 - t.shift[id]
		}
	case L2:
		x.bias = -t.norms[id]
	case Cosine:
		for i := range x.vec {
			x.vec[i] *= t.norms[id]
		}
	}
}

// place finds the neighbours of a new row.
func (b *builder) place(s *searcher, row uint32, p *placing) {
	level := levelOf(b.o.Seed, int(row), b.o.M)
	p.row, p.up, p.buf = row, 0, p.buf[:0]
	p.lists = p.lists[:0]
	for range level + 1 {
		p.lists = append(p.lists, nil)
	}
	if level > 0 {
		p.up = b.g.upNumber(row)
	}
	if s == nil {
		return
	}
	s.loadRow(b.t, &s.q, row)
	up, at, score := s.descend(b.g, b.t, &s.q, level)
	for l := min(level, b.g.top); l >= 0; l-- {
		if l > 0 {
			s.walk(b.g, b.t, &s.q, l, b.o.EfConstruction, up, score)
			up = keyID(s.pool[0])
			at = b.g.upRow[up]
		} else {
			s.walk(b.g, b.t, &s.q, 0, b.o.EfConstruction, at, score)
		}
		score = keyScore(s.pool[0])
		from := len(p.buf)
		p.buf = b.choose(s, s.pool, b.o.M, l, p.buf)
		p.lists[l] = p.buf[from:len(p.buf):len(p.buf)]
	}
}

// choose is the neighbour heuristic (Algorithm 4): candidates, best first, are taken
// unless one taken before is nearer to them than the base is; the best of those fill
// the places left, which costs a quarter more building and saves a tenth of the
// reads at equal recall. It appends to dst.
func (b *builder) choose(s *searcher, all []uint64, m, level int, dst []uint32) []uint32 {
	from := len(dst)
	s.rest = s.rest[:0]
	if len(s.rows) < maxDegree {
		s.ids, s.rows, s.scores = make([]uint32, maxDegree), make([]uint32, maxDegree), make([]float32, maxDegree)
	}
	kept := 0
next:
	for _, k := range all {
		id, sc := keyID(k), keyScore(k)
		row := id
		if level > 0 {
			row = b.g.upRow[id]
		}
		if kept > 0 {
			s.loadRow(b.t, &s.qe, row)
			for i := 0; i < kept; i += 8 {
				e := min(i+8, kept)
				b.t.score(&s.qe, s.scores[i:e], s.rows[i:e])
				for _, x := range s.scores[i:e] {
					if x > sc {
						s.rest = append(s.rest, id)
						continue next
					}
				}
			}
		}
		s.rows[kept] = row
		dst = append(dst, id)
		if kept++; kept == m {
			break
		}
	}
	dst = dst[:from+kept]
	for _, r := range s.rest {
		if len(dst)-from >= m {
			break
		}
		dst = append(dst, r)
	}
	return dst
}

// connectAll adds the edges of a round at one level. Targets are independent.
func (b *builder) connectAll(level int, edges []uint64) error {
	if len(edges) == 0 {
		return nil
	}
	slices.Sort(edges)
	var groups []int
	for i := range edges {
		if i == 0 || edges[i]>>32 != edges[i-1]>>32 {
			groups = append(groups, i)
		}
	}
	return parallel(context.Background(), b.o.Workers, len(groups), func(_ context.Context, i int) error {
		end := len(edges)
		if i+1 < len(groups) {
			end = groups[i+1]
		}
		s := <-b.workers
		b.connect(s, uint32(edges[groups[i]]>>32), level, edges[groups[i]:end])
		b.workers <- s
		return nil
	})
}

// connect adds edges from one node, choosing among its neighbours when they are more
// than its places.
func (b *builder) connect(s *searcher, target uint32, level int, edges []uint64) {
	places, row := b.g.list0(target), target
	if level > 0 {
		places, row = b.g.upper(target, level), b.g.upRow[target]
	}
	old := used(places)
	if len(old)+len(edges) <= len(places) {
		for i, e := range edges {
			places[len(old)+i] = uint32(e)
		}
		return
	}
	s.loadRow(b.t, &s.q, row)
	s.pool = s.pool[:0]
	add := func(ids []uint32) {
		rows := s.rows[:len(ids)]
		for i, id := range ids {
			if rows[i] = id; level > 0 {
				rows[i] = b.g.upRow[id]
			}
		}
		b.t.score(&s.q, s.scores[:len(ids)], rows)
		for i, id := range ids {
			s.pool = append(s.pool, key(s.scores[i], id))
		}
	}
	if len(s.rows) < maxDegree {
		s.ids, s.rows, s.scores = make([]uint32, maxDegree), make([]uint32, maxDegree), make([]float32, maxDegree)
	}
	add(old)
	for len(edges) > 0 {
		n := min(len(edges), len(s.ids))
		for i, e := range edges[:n] {
			s.ids[i] = uint32(e)
		}
		add(s.ids[:n])
		edges = edges[n:]
	}
	slices.Sort(s.pool)
	var buf [maxDegree]uint32
	setList(places, b.choose(s, s.pool, len(places), level, buf[:0]))
}

// params describes the build so far.
func (b *builder) params() params {
	p := params{n: b.v.n, dim: b.v.dim, m: b.o.M, efc: b.o.EfConstruction, metric: b.o.Metric, codes: b.o.Codes, seed: b.o.Seed,
		entryRow: b.g.entryRow, entryUp: b.g.entryUp, top: b.g.top, uppers: len(b.g.upRow), lists: len(b.g.upLists) / b.o.M,
		dups: len(b.dups), maxNorm: b.scan.maxNorm, full: b.o.FullPrecision, inserted: b.pos, round: b.round, base: b.baseRows}
	h, _ := hex.DecodeString(b.scan.contents)
	copy(p.contents[:], h)
	return p
}

// write puts the finished index in place.
func (b *builder) write(ctx context.Context) error {
	shards, err := b.v.describe(filepath.Dir(b.path), b.scan.sums)
	if err != nil {
		return err
	}
	sh, err := json.Marshal(shards)
	if err != nil {
		return err
	}
	p := b.params()
	dups := make([]uint32, 0, 2*len(b.dups))
	for _, d := range b.dups {
		dups = append(dups, d[1], d[0])
	}
	parts := []section{bytesSection("PARM", p.bytes()), bytesSection("SHRD", sh), bytesSection("MEAN", f32Bytes(b.scan.mean)), u32Section("DUPS", dups)}
	if b.norms != nil {
		parts = append(parts, bytesSection("NORM", f32Bytes(b.norms)))
	}
	g := b.g.sections()
	parts = append(parts, g[1], g[2], g[3], g[0])
	switch {
	case b.o.Codes == NoCodes:
	case b.o.Codes == Int8 && b.t.kind == table8:
		parts = append(parts, bytesSection("CODE", b.t.bytes))
	default:
		c := newCoder(b.o.Codes, b.o.Metric, b.scan.mean, b.o.Seed)
		stride := codeStride(b.o.Codes, b.v.dim)
		parts = append(parts, section{"CODE", int64(stride) * int64(b.v.n), func(w io.Writer) error {
			const chunk = 1 << 14
			buf := make([]byte, chunk*stride)
			for i := 0; i < b.v.n; i += chunk {
				e := min(i+chunk, b.v.n)
				if err := encodeRows(ctx, b.v, c, b.o.Workers, i, e, buf); err != nil {
					return err
				}
				if _, err := w.Write(buf[:(e-i)*stride]); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	return writeFile(b.path, magic, parts)
}
