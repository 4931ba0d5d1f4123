package hnsw

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"rag2/internal/mmapfile"
	"rag2/internal/npy"
	"rag2/tensor/simd"
)

// BuildOptions shape the graph. The zero value is M 16, efConstruction 200.
type BuildOptions struct {
	M              int // neighbours per node above level 0; twice as many at level 0
	EfConstruction int
	Seed           uint64
	Progress       func(done, total int)
}

func (o BuildOptions) defaults() (BuildOptions, error) {
	if o.M == 0 {
		o.M = 16
	}
	if o.EfConstruction == 0 {
		o.EfConstruction = 200
	}
	if o.M < 2 || o.M > 256 || o.EfConstruction < o.M || o.EfConstruction > 1<<16 {
		return o, fmt.Errorf("M %d and efConstruction %d: M is 2…256, efConstruction M…65536", o.M, o.EfConstruction)
	}
	return o, nil
}

// cand is a node with its distance to what is searched for.
type cand struct {
	d  float32
	id uint32
}

// near is a heap with the nearest candidate first, far with the farthest; ties are
// broken by row so that a build depends on nothing but its input.
type near []cand
type far []cand

func less(a, b cand) bool { return a.d < b.d || a.d == b.d && a.id < b.id }

func (h near) Len() int           { return len(h) }
func (h near) Less(i, j int) bool { return less(h[i], h[j]) }
func (h near) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *near) Push(x any)        { *h = append(*h, x.(cand)) }
func (h *near) Pop() any          { x := (*h)[len(*h)-1]; *h = (*h)[:len(*h)-1]; return x }
func (h far) Len() int            { return len(h) }
func (h far) Less(i, j int) bool  { return less(h[j], h[i]) }
func (h far) Swap(i, j int)       { h[i], h[j] = h[j], h[i] }
func (h *far) Push(x any)         { *h = append(*h, x.(cand)) }
func (h *far) Pop() any           { x := (*h)[len(*h)-1]; *h = (*h)[:len(*h)-1]; return x }

// visits marks nodes seen in one search.
type visits struct {
	mark []uint32
	gen  uint32
}

func (v *visits) reset(n int) {
	if len(v.mark) < n {
		v.mark, v.gen = make([]uint32, n), 0
	}
	if v.gen++; v.gen == 0 {
		clear(v.mark)
		v.gen = 1
	}
}

func (v *visits) first(id uint32) bool {
	if v.mark[id] == v.gen {
		return false
	}
	v.mark[id] = v.gen
	return true
}

// searchLayer is Algorithm 2 of the paper: the ef nearest nodes found from the
// entry points, nearest first.
func searchLayer(v *visits, n, ef int, entries []cand, neighbours func(uint32) []uint32, dist func(uint32) float32) []cand {
	v.reset(n)
	var todo near
	var found far
	for _, e := range entries {
		if v.first(e.id) {
			heap.Push(&todo, e)
			heap.Push(&found, e)
		}
	}
	for found.Len() > ef {
		heap.Pop(&found)
	}
	for todo.Len() > 0 {
		c := heap.Pop(&todo).(cand)
		if found.Len() >= ef && less(found[0], c) {
			break
		}
		for _, id := range neighbours(c.id) {
			if !v.first(id) {
				continue
			}
			x := cand{dist(id), id}
			if found.Len() < ef || less(x, found[0]) {
				heap.Push(&todo, x)
				heap.Push(&found, x)
				if found.Len() > ef {
					heap.Pop(&found)
				}
			}
		}
	}
	out := []cand(found)
	slices.SortFunc(out, func(a, b cand) int {
		if less(a, b) {
			return -1
		}
		return 1
	})
	return out
}

// builder holds the growing graph.
type builder struct {
	o     BuildOptions
	a     *npy.Array
	rows  [][]float32
	links [][][]uint32 // node → level → neighbours
	entry uint32
	top   int
	r     float32
	v     visits
}

// dist orders nodes by inner product, the larger the nearer.
func (b *builder) dist(x, y uint32) float32 {
	return -simd.Dot(b.rows[x], b.rows[y])
}

// Build makes the graph of the vectors in npyPath and writes it to path. Rows are
// inserted in order; the result depends on vectors and options alone.
func Build(ctx context.Context, npyPath, path string, opt BuildOptions) error {
	o, err := opt.defaults()
	if err != nil {
		return err
	}
	a, err := npy.Open(npyPath)
	if err != nil {
		return err
	}
	defer a.Close()
	if a.Rows() > math.MaxInt32 {
		return fmt.Errorf("%s: %d rows; at most %d", npyPath, a.Rows(), math.MaxInt32)
	}
	b := &builder{o: o, a: a, rows: make([][]float32, a.Rows()), links: make([][][]uint32, a.Rows())}
	err = mmapfile.Guard(func() error {
		if err := b.norms(npyPath); err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(o.Seed, 0x5851f42d4c957f2d))
		scale := 1 / math.Log(float64(o.M))
		for i := range b.rows {
			if i%64 == 0 {
				if err := ctx.Err(); err != nil {
					return err
				}
				if o.Progress != nil {
					o.Progress(i, len(b.rows))
				}
			}
			level := min(int(-math.Log(1-rng.Float64())*scale), 30)
			b.insert(uint32(i), level)
		}
		b.repair()
		return nil
	})
	if err != nil {
		return err
	}
	if o.Progress != nil {
		o.Progress(len(b.rows), len(b.rows))
	}
	return b.write(path)
}

func (b *builder) norms(path string) error {
	most := 0.0
	for i := range b.rows {
		b.rows[i] = b.a.Row32(i, nil)
		n2, err := checkVector(b.rows[i])
		if err != nil {
			return fmt.Errorf("%s: row %d: %w", path, i, err)
		}
		most = max(most, n2)
	}
	b.r = float32(math.Sqrt(most))
	return nil
}

func (b *builder) insert(id uint32, level int) {
	b.links[id] = make([][]uint32, level+1)
	if id == 0 {
		b.entry, b.top = 0, level
		return
	}
	dist := func(x uint32) float32 { return b.dist(id, x) }
	at := []cand{{dist(b.entry), b.entry}}
	for l := b.top; l > level; l-- {
		at = searchLayer(&b.v, len(b.rows), 1, at, func(x uint32) []uint32 { return b.links[x][l] }, dist)
	}
	for l := min(level, b.top); l >= 0; l-- {
		at = searchLayer(&b.v, len(b.rows), b.o.EfConstruction, at, func(x uint32) []uint32 { return b.links[x][l] }, dist)
		for _, c := range b.choose(at, b.o.M) {
			b.links[id][l] = append(b.links[id][l], c.id)
			b.connect(c.id, cand{c.d, id}, l)
		}
	}
	if level > b.top {
		b.entry, b.top = id, level
	}
}

// degree is the most neighbours a node has at a level.
func (b *builder) degree(level int) int {
	if level == 0 {
		return 2 * b.o.M
	}
	return b.o.M
}

// connect adds an edge from x, choosing again among its neighbours when it is full.
func (b *builder) connect(x uint32, c cand, l int) {
	ls := b.links[x][l]
	if len(ls) < b.degree(l) {
		b.links[x][l] = append(ls, c.id)
		return
	}
	all := []cand{c}
	for _, y := range ls {
		all = append(all, cand{b.dist(x, y), y})
	}
	slices.SortFunc(all, func(a, b cand) int {
		if less(a, b) {
			return -1
		}
		return 1
	})
	kept := b.choose(all, b.degree(l))
	ls = ls[:0]
	for _, k := range kept {
		ls = append(ls, k.id)
	}
	b.links[x][l] = ls
}

// choose is the neighbour heuristic (Algorithm 4): candidates, nearest first, are
// taken if they are nearer to the base than to any taken before; what is left
// fills the rest.
func (b *builder) choose(all []cand, m int) []cand {
	if len(all) <= m {
		return all
	}
	var kept, rest []cand
	for _, c := range all {
		if len(kept) == m {
			break
		}
		ok := true
		for _, k := range kept {
			if b.dist(c.id, k.id) < c.d {
				ok = false
				break
			}
		}
		if ok {
			kept = append(kept, c)
		} else {
			rest = append(rest, c)
		}
	}
	for _, c := range rest {
		if len(kept) == m {
			break
		}
		kept = append(kept, c)
	}
	return kept
}

// repair makes every node reachable at level 0 from the entry: a node that is not
// gets an edge from the nearest reachable node with room.
func (b *builder) repair() {
	n := len(b.rows)
	if n == 0 {
		return
	}
	seen := make([]bool, n)
	var stack []uint32
	visit := func(id uint32) {
		stack = append(stack, id)
		seen[id] = true
		for len(stack) > 0 {
			x := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, y := range b.links[x][0] {
				if !seen[y] {
					seen[y] = true
					stack = append(stack, y)
				}
			}
		}
	}
	visit(b.entry)
	for i := range seen {
		if seen[i] {
			continue
		}
		id := uint32(i)
		best := cand{float32(math.Inf(1)), id}
		dist := func(x uint32) float32 { return b.dist(id, x) }
		for _, c := range searchLayer(&b.v, n, b.o.EfConstruction, []cand{{dist(b.entry), b.entry}}, func(x uint32) []uint32 { return b.links[x][0] }, dist) {
			if len(b.links[c.id][0]) < b.degree(0) {
				best = c
				break
			}
		}
		if best.id == id { // all near ones are full: look at every reachable node
			for j := range seen {
				if c := (cand{b.dist(id, uint32(j)), uint32(j)}); seen[j] && len(b.links[j][0]) < b.degree(0) && less(c, best) {
					best = c
				}
			}
		}
		if best.id == id { // every node is full: the entry's farthest neighbour is also another's
			ls := b.links[b.entry][0]
			ls[len(ls)-1], best.id = id, b.entry
		} else {
			b.links[best.id][0] = append(b.links[best.id][0], id)
		}
		visit(id)
	}
}
