package hnsw

import (
	"context"
	"math"
	"slices"
	"unsafe"

	"rag2/tensor/simd"
)

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
		p.buf = b.choose(s, row, s.pool, b.o.M, l, p.buf)
		p.lists[l] = p.buf[from:len(p.buf):len(p.buf)]
	}
}

// edgeLengths is how much of a row's squared length its products are lowered by when
// edges are chosen: 0 compares plain products, 0.5 distances. With plain products long
// rows crowd out nearly all others, and many rows are left with few ways in. An eighth
// scores a tenth fewer rows at equal recall at 24,000 × 384 and 100,000 × 768; with 0.25
// the recall is lower at any breadth.
const edgeLengths = 0.125

// measureLengths fills b.lengths from what the build scores with.
func (b *builder) measureLengths(ctx context.Context) error {
	b.lengths = make([]float32, b.v.n)
	return parallel(ctx, b.o.Workers, (b.v.n+scanChunk-1)/scanChunk, func(_ context.Context, c int) error {
		var s searcher
		var id [1]uint32
		for i := c * scanChunk; i < min((c+1)*scanChunk, b.v.n); i++ {
			id[0] = uint32(i)
			s.loadRow(b.t, &s.q, id[0])
			b.t.score(&s.q, b.lengths[i:i+1], id[:])
			b.lengths[i] *= edgeLengths
		}
		return nil
	})
}

// choose is the neighbour heuristic (Algorithm 4) for row base: candidates, best first,
// are taken unless one taken before is nearer to them than the base is; the best of
// those fill the places left. For InnerProduct, nearer means by the product less
// edgeLengths times the squared length of the one it is seen from. It appends to dst.
func (b *builder) choose(s *searcher, base uint32, all []uint64, m, level int, dst []uint32) []uint32 {
	from := len(dst)
	s.rest = s.rest[:0]
	if len(s.rows) < maxDegree {
		s.ids, s.rows, s.scores = make([]uint32, maxDegree), make([]uint32, maxDegree), make([]float32, maxDegree)
	}
	kept := 0
	var kepts [maxDegree]float32 // their lengths
	length := float32(0)
	if b.lengths != nil {
		length = b.lengths[base]
	}
next:
	for _, k := range all {
		id, sc := keyID(k), keyScore(k)
		row := id
		if level > 0 {
			row = b.g.upRow[id]
		}
		sc -= length
		if kept > 0 {
			s.loadRow(b.t, &s.qe, row)
			for i := 0; i < kept; i += 8 {
				e := min(i+8, kept)
				b.t.score(&s.qe, s.scores[i:e], s.rows[i:e])
				for j, x := range s.scores[i:e] {
					if x-kepts[i+j] > sc {
						s.rest = append(s.rest, id)
						continue next
					}
				}
			}
		}
		s.rows[kept] = row
		if b.lengths != nil {
			kepts[kept] = b.lengths[row]
		}
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
	setList(places, b.choose(s, row, s.pool, len(places), level, buf[:0]))
}
