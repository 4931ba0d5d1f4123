package hnsw

import (
	"context"
	"math"
)

// unreachable marks the rows that level 0 leads to from the entry and calls missing
// for each other row, in order, which may add edges and then visit again.
type reach struct {
	g     *graph
	seen  []uint64
	stack []uint32
	count int
}

func (r *reach) has(id uint32) bool { return r.seen[id/64]>>(id%64)&1 != 0 }

// visit marks everything that id leads to.
func (r *reach) visit(ctx context.Context, id uint32) error {
	push := func(id uint32) {
		if !r.has(id) {
			r.seen[id/64] |= 1 << (id % 64)
			r.count++
			r.stack = append(r.stack, id)
		}
	}
	push(id)
	for n := 0; len(r.stack) > 0; n++ {
		if n%(1<<16) == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		x := r.stack[len(r.stack)-1]
		r.stack = r.stack[:len(r.stack)-1]
		for _, y := range r.g.list0(x) {
			if int(y) >= r.g.n {
				break
			}
			push(y)
		}
	}
	return nil
}

// repair makes every node reachable at level 0 from the entry: a node that is not
// gets an edge from the nearest reachable node with a free place, or takes the place
// of an edge that is not needed to reach its target.
func (b *builder) repair(ctx context.Context) error {
	n := b.v.n
	if len(b.order) == 0 {
		return nil
	}
	r := &reach{g: b.g, seen: make([]uint64, (n+63)/64)}
	if err := r.visit(ctx, b.g.entryRow); err != nil {
		return err
	}
	s := <-b.workers
	defer func() { b.workers <- s }()
	for i := 0; i < n && r.count < len(b.order); i++ {
		id := uint32(i)
		if b.dup(i) || r.has(id) {
			continue
		}
		s.loadRow(b.t, &s.q, id)
		_, at, score := s.descend(b.g, b.t, &s.q, 0)
		s.walk(b.g, b.t, &s.q, 0, b.o.EfConstruction, at, score)
		if !b.attach(r, s, id) {
			if err := b.attachAnywhere(r, s, id); err != nil {
				return err
			}
		}
		if err := r.visit(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// attach links id from the best reachable node of the pool with a free place.
func (b *builder) attach(r *reach, s *searcher, id uint32) bool {
	for _, k := range s.pool {
		x := keyID(k)
		places := b.g.list0(x)
		if u := used(places); x != id && r.has(x) && len(u) < len(places) {
			places[len(u)] = id
			return true
		}
	}
	return false
}

// attachAnywhere looks at every reachable node. When all are full, id is put between
// one of them and its last neighbour: that edge is replaced by two.
func (b *builder) attachAnywhere(r *reach, s *searcher, id uint32) error {
	best, score := uint32(endMark), float32(math.Inf(-1))
	fullBest, fullScore := b.g.entryRow, float32(math.Inf(-1))
	var one [1]uint32
	var sc [1]float32
	for i := range b.v.n {
		x := uint32(i)
		if x == id || !r.has(x) {
			continue
		}
		one[0] = x
		b.t.score(&s.q, sc[:], one[:])
		places := b.g.list0(x)
		if len(used(places)) < len(places) {
			if sc[0] > score || best == endMark {
				best, score = x, sc[0]
			}
		} else if sc[0] > fullScore {
			fullBest, fullScore = x, sc[0]
		}
	}
	if best != endMark {
		places := b.g.list0(best)
		places[len(used(places))] = id
		return nil
	}
	places, mine := b.g.list0(fullBest), b.g.list0(id)
	y := places[len(places)-1]
	places[len(places)-1] = id
	if u := used(mine); len(u) < len(mine) {
		mine[len(u)] = y
	} else {
		mine[len(mine)-1] = y
	}
	return nil
}
