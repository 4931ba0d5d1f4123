package hnsw

import (
	"math"
	"slices"

	"rag2/tensor/simd"
)

// tableKind is the memory layout that a walk scores from.
type tableKind int

const (
	tableRows tableKind = iota // several .npy files, or an unusual dtype
	tableF32
	tableF16
	table8
	table4
	table1
)

// table is what a walk reads for each row: vectors or codes.
type table struct {
	kind   tableKind
	metric Metric
	bytes  []byte // the rows, for fetching ahead
	stride int
	lines  int // cache lines fetched ahead of scoring
	f32    []float32
	f16    []uint16
	v      *vectors
	norms  []float32 // for full vectors: |x|² for L2, 1/|x| for Cosine
	coder  *coder
	// For building by centred products from full vectors: μ·x of each row, and |μ|².
	shift []float32
	mean2 float32
}

// maxPrefetch bounds the cache lines fetched per row; the CPU's own prefetcher
// follows long rows. Eight to ten measured best for 8-bit codes and float16 at 768
// dimensions; shorter rows are fetched whole.
const maxPrefetch = 10

func vectorTable(v *vectors, metric Metric, norms []float32) *table {
	t := &table{kind: tableRows, metric: metric, v: v, norms: norms}
	if len(v.shards) == 1 {
		s := &v.shards[0]
		switch {
		case s.f32 != nil:
			t.kind, t.f32, t.bytes, t.stride = tableF32, s.f32, s.a.Data(), 4*v.dim
		case s.f16 != nil:
			t.kind, t.f16, t.bytes, t.stride = tableF16, s.f16, s.a.Data(), 2*v.dim
		}
	}
	t.lines = min((t.stride+63)/64, maxPrefetch)
	return t
}

func codeTable(c *coder, codes []byte) *table {
	t := &table{kind: map[Codes]tableKind{Int8: table8, FourBit: table4, Principal: table4, OneBit: table1}[c.kind], metric: c.metric, bytes: codes, coder: c}
	t.stride = codeStride(c.kind, c.dim)
	t.lines = min((t.stride+63)/64+1, maxPrefetch)
	return t
}

// query is a query made ready for a table.
type query struct {
	vec  []float32 // of unit length for Cosine
	bias float32
	code simd.CodeQuery
	r    []float32 // scratch
	row  []float32 // scratch
}

// prepare reads q. It allocates only the first time.
func (t *table) prepare(x *query, q []float32) {
	x.vec = append(x.vec[:0], q...)
	x.bias = 0
	switch t.metric {
	case Cosine:
		f := float32(1 / math.Sqrt(float64(simd.Dot(q, q))))
		for i := range x.vec {
			x.vec[i] *= f
		}
	case L2:
		x.bias = -simd.Dot(q, q)
	}
	if t.coder != nil {
		if d := t.coder.scratch(); len(x.r) != d {
			x.r = make([]float32, d)
		}
		t.coder.query(q, x.r, &x.code)
	}
}

// score puts the scores of rows ids into out.
func (t *table) score(x *query, out []float32, ids []uint32) {
	switch t.kind {
	case table8:
		simd.Score8(out, &x.code, t.bytes, t.stride, ids)
		return
	case table4:
		simd.Score4(out, &x.code, t.bytes, t.stride, ids)
		return
	case table1:
		simd.Score1(out, &x.code, t.bytes, t.stride, ids)
		return
	case tableF32:
		simd.DotRowsF32(out, x.vec, t.f32, ids)
	case tableF16:
		simd.DotRowsF16(out, x.vec, t.f16, ids)
	default:
		for i, id := range ids {
			if cap(x.row) < len(x.vec) {
				x.row = make([]float32, len(x.vec))
			}
			out[i] = simd.Dot(x.vec, t.v.row(int(id), x.row[:len(x.vec)]))
		}
	}
	switch t.metric {
	case InnerProduct:
		if t.shift != nil {
			for i, id := range ids {
				out[i] += x.bias - t.shift[id]
			}
		}
	case Cosine:
		for i, id := range ids {
			out[i] *= t.norms[id]
		}
	case L2:
		for i, id := range ids {
			out[i] = 2*out[i] - t.norms[id] + x.bias
		}
	}
}

// searcher is the scratch of one search; it belongs to one goroutine at a time.
type searcher struct {
	seen      []uint8  // a bit a row
	visited   []uint32 // the rows seen, to forget them; the rest is room
	pool      []uint64 // keys, best first
	ids       []uint32
	rows      []uint32
	rest      []uint32
	scores    []float32
	estimates []float32
	q, qe     query // for the walk, for rescoring
	keep      func(row int) bool
	kept      topK
	nodes     int // neighbour lists read
	scored    int // rows scored from the walk's table
	hits      []Hit
}

// key orders candidates by falling score, then by row; its lowest bit marks those
// that have been expanded.
func key(score float32, id uint32) uint64 {
	u := math.Float32bits(score)
	if u>>31 != 0 {
		u = ^u
	} else {
		u |= 1 << 31
	}
	return uint64(^u)<<32 | uint64(id)<<1
}

func keyScore(k uint64) float32 {
	u := ^uint32(k >> 32)
	if u>>31 != 0 {
		u &^= 1 << 31
	} else {
		u = ^u
	}
	return math.Float32frombits(u)
}

func keyID(k uint64) uint32 { return uint32(k) >> 1 }

// begin starts a walk over n rows with nothing seen.
func (s *searcher) begin(n, degree int) {
	if len(s.seen) < (n+7)/8 {
		s.seen = make([]uint8, (n+7)/8)
	} else {
		for _, id := range s.visited {
			s.seen[id>>3] = 0
		}
	}
	s.visited = s.visited[:0]
	if len(s.ids) < degree {
		s.ids, s.rows, s.scores = make([]uint32, degree), make([]uint32, degree), make([]float32, degree)
	}
	s.pool = s.pool[:0]
}

// gather appends the neighbours in adj that were not seen to s.visited; n is the rows
// there are.
func (s *searcher) gather(adj []uint32, n int, t *table, stride, lines int) {
	at := len(s.visited)
	s.visited = slices.Grow(s.visited, len(adj))
	m := simd.Gather(s.visited[at:at+len(adj)], adj, s.seen, n, t.bytes, stride, lines)
	s.visited = s.visited[:at+m]
}

// descend walks greedily from the entry down to level to (≥ 1 means the lists of
// that level have not been looked at yet) and returns the node reached: its number
// above level 0 (meaningful while to ≥ 1 or the node came from above) and its row.
func (s *searcher) descend(g *graph, t *table, x *query, to int) (up, row uint32, score float32) {
	s.begin(g.n, 2*g.m)
	up, row = g.entryUp, g.entryRow
	s.rows[0] = row
	t.score(x, s.scores[:1], s.rows[:1])
	score = s.scores[0]
	s.scored++
	for l := g.top; l > to; l-- {
		for moved := true; moved; {
			moved = false
			s.nodes++
			n := 0
			ls := g.upper(up, l)
			for _, u := range ls {
				if int(u) >= len(g.upRow) {
					break
				}
				if r := g.upRow[u]; int(r) < g.n {
					s.rows[n], s.ids[n] = r, u
					n++
				}
			}
			t.score(x, s.scores[:n], s.rows[:n])
			s.scored += n
			for i, sc := range s.scores[:n] {
				if sc > score {
					up, row, score, moved = s.ids[i], s.rows[i], sc, true
				}
			}
		}
	}
	return up, row, score
}

// walk is Algorithm 2 of the paper on one level: it leaves the ef best nodes found
// from start in s.pool, as keys of rows (level 0) or of numbers above it. A sorted
// pool with a mark for expanded nodes stands for the two heaps.
//
// Once the pool is full, the neighbours of a node are scored after those of the next
// have been asked for: the memory of one list is waited for while the other is scored.
// Before, the next node is mostly among the neighbours themselves.
func (s *searcher) walk(g *graph, t *table, x *query, level, ef int, start uint32, score float32) {
	n := g.n
	if level > 0 {
		n = len(g.upRow)
	}
	s.begin(g.n, 4*g.m)
	if cap(s.pool) < ef+1 {
		s.pool = make([]uint64, 0, ef+64)
	}
	pool := append(s.pool[:0], key(score, start))
	if int(start) >= n {
		s.pool = s.pool[:0]
		return
	}
	s.gather([]uint32{start}, n, t, 0, 0)
	if s.keep != nil && s.keep(int(start)) {
		s.kept.offer(Hit{int(start), score})
	}
	worst := float32(math.Inf(-1)) // of a full pool
	next, done := 0, 1             // s.visited is scored up to done
	for {
		for next < len(pool) && pool[next]&1 != 0 {
			next++
		}
		end := len(s.visited)
		if next < len(pool) {
			k := pool[next]
			pool[next] = k | 1
			next++
			s.nodes++
			if level > 0 {
				s.gather(g.upper(keyID(k), level), n, t, 0, 0)
			} else {
				s.gather(g.list0(keyID(k)), n, t, t.stride, t.lines)
				if next < len(pool) {
					simd.Prefetch(g.list0(keyID(pool[next])))
				}
			}
		} else if done == end {
			break
		}
		if level > 0 || len(pool) < ef || end == len(s.visited) {
			end = len(s.visited)
		}
		ids := s.visited[done:end]
		done = end
		m := len(ids)
		scores := s.scores[:m]
		if level == 0 {
			t.score(x, scores, ids)
		} else {
			for i, u := range ids {
				if s.rows[i] = g.upRow[u]; int(s.rows[i]) >= g.n {
					s.rows[i] = 0
				}
			}
			t.score(x, scores, s.rows[:m])
		}
		s.scored += m
		if s.keep != nil {
			for i, id := range ids {
				if scores[i] == scores[i] && (len(s.kept.hits) < s.kept.k || scores[i] >= s.kept.hits[0].Score) && s.keep(int(id)) {
					s.kept.offer(Hit{int(id), scores[i]})
				}
			}
		}
		for i, sc := range scores {
			if !(sc >= worst) {
				continue
			}
			nk := key(sc, ids[i])
			at := len(pool)
			if at == ef {
				if nk >= pool[at-1]&^1 {
					continue
				}
				at--
			} else {
				pool = append(pool, 0)
			}
			// Binary search among pool[:at], then shift.
			lo, hi := 0, at
			for lo < hi {
				mid := int(uint(lo+hi) >> 1)
				if pool[mid] < nk {
					lo = mid + 1
				} else {
					hi = mid
				}
			}
			if level == 0 && lo <= next+1 {
				simd.Prefetch(g.list0(ids[i]))
			}
			copy(pool[lo+1:at+1], pool[lo:at])
			pool[lo] = nk
			if lo < next {
				next = lo
			}
			if len(pool) == ef {
				worst = keyScore(pool[ef-1])
			}
		}
	}
	s.pool = pool
}
