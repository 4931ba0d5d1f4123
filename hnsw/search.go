package hnsw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"sort"
	"sync/atomic"

	"rag2/internal/atomicfile"
	"rag2/tensor/simd"
)

// SearchOptions steer a search.
type SearchOptions struct {
	// Ef is the breadth of the walk; 0 is the index's setting, or max(64, 2k). It is
	// never below k.
	Ef int
	// Rescore is how many of the walk's best rows are scored again by their vectors at
	// most when the walk reads codes; 0 is the index's setting, or a number that fits
	// the codes. It is k to Ef. Rescoring ends earlier when no row left is likely to
	// come among the k best.
	Rescore int
	// Exact scans instead of walking the graph.
	Exact bool
	// Keep says which rows may be returned; nil is all. It is called from the
	// goroutine of the search. When few rows pass, or the walk finds fewer than k, the
	// search is exact.
	Keep func(row int) bool
	// Allow and Deny are Keep as sets; a row must pass all that are given.
	Allow, Deny *RowSet
}

// Settings are an index's own defaults, kept in a small JSON file beside it.
type Settings struct {
	Ef      int `json:"ef,omitempty"`
	Rescore int `json:"rescore,omitempty"`
	// What Tune measured when it chose them.
	Recall float64 `json:"recall,omitempty"`
	K      int     `json:"k,omitempty"`
}

// SettingsPath is where an index's settings are kept.
func SettingsPath(index string) string { return index + ".settings.json" }

// SaveSettings keeps settings for an index; they hold from its next Open.
func SaveSettings(index string, s Settings) error {
	if s.Ef < 0 || s.Rescore < 0 || s.Ef > 1<<20 || s.Rescore > 1<<20 {
		return fmt.Errorf("settings of %s: ef %d, rescore %d", index, s.Ef, s.Rescore)
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(SettingsPath(index), append(b, '\n'))
}

func (x *Index) loadSettings() error {
	b, err := os.ReadFile(SettingsPath(x.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &x.set); err != nil || x.set.Ef < 0 || x.set.Ef > 1<<20 || x.set.Rescore < 0 {
		return fmt.Errorf("%s: not settings of an index; remove it or run tune again (%v)", SettingsPath(x.path), err)
	}
	return nil
}

// Settings are the index's own defaults.
func (x *Index) Settings() Settings { return x.set }

// Stats counts the work of a search.
type Stats struct {
	VectorReads int  `json:"vector_reads"` // full vectors
	CodeReads   int  `json:"code_reads"`
	NodeReads   int  `json:"node_reads"` // neighbour lists; each lies in one 4 KiB page when M is a power of two up to 512
	Exact       bool `json:"exact"`
	Ef          int  `json:"ef,omitempty"`
	Duplicates  int  `json:"duplicates,omitempty"` // hits added as copies of found rows
}

func (s *Stats) add(o Stats) {
	s.VectorReads += o.VectorReads
	s.CodeReads += o.CodeReads
	s.NodeReads += o.NodeReads
	s.Duplicates += o.Duplicates
	s.Exact = s.Exact || o.Exact
}

// Search returns the k nearest rows, best first, ties by row. k larger than the
// number of vectors gives them all.
func (x *Index) Search(ctx context.Context, q []float32, k int, o SearchOptions) ([]Hit, Stats, error) {
	return x.SearchInto(ctx, nil, q, k, o)
}

// SearchInto is Search that appends to dst; with room in dst it allocates nothing
// once the index's scratch has grown.
func (x *Index) SearchInto(ctx context.Context, dst []Hit, q []float32, k int, o SearchOptions) ([]Hit, Stats, error) {
	var st Stats
	if err := checkQuery(q, x.p.dim, k); err != nil {
		return dst, st, err
	}
	if err := ctx.Err(); err != nil {
		return dst, st, err
	}
	k = min(k, x.p.n)
	if k == 0 {
		return dst, Stats{Exact: true}, nil
	}
	keep := o.keep()
	share := x.share(keep, o)
	ef := x.ef(k, o)
	// The scan costs about as much as scoring the kept rows; a filtered walk must see
	// ef kept rows, hence ef/share in all, with their neighbours.
	if o.Exact || k == x.p.n || keep != nil && share*float64(x.p.n) <= max(1000, float64(ef)*8/share) {
		return x.exactInto(ctx, dst, q, k, keep)
	}
	s := x.pool.Get().(*searcher)
	n := len(dst)
	var err error
	if keep == nil {
		err = guarded(func() error { return x.walk(s, q, k, ef, o, &st) })
	} else {
		err = guarded(func() error { return x.walkKept(s, q, k, ef, share, keep, o, &st) })
	}
	dst = append(dst, s.hits...)
	s.keep = nil
	x.pool.Put(s)
	if err != nil {
		return dst[:n], st, err
	}
	if len(dst)-n < k && keep != nil { // the walk did not reach enough kept rows
		h, est, err := x.exactInto(ctx, dst[:n], q, k, keep)
		est.add(st)
		return h, est, err
	}
	return dst, st, nil
}

func (o *SearchOptions) keep() func(int) bool {
	if o.Allow == nil && o.Deny == nil {
		return o.Keep
	}
	f, allow, deny := o.Keep, o.Allow, o.Deny
	return func(r int) bool {
		return (allow == nil || allow.Has(r)) && (deny == nil || !deny.Has(r)) && (f == nil || f(r))
	}
}

// share estimates which part of the rows a filter keeps: exactly for sets, from a
// fixed sample for functions.
func (x *Index) share(keep func(int) bool, o SearchOptions) float64 {
	switch {
	case keep == nil:
		return 1
	case o.Keep == nil && o.Deny == nil:
		return float64(o.Allow.Len()) / float64(x.p.n)
	case o.Keep == nil && o.Allow == nil:
		return 1 - float64(o.Deny.Len())/float64(x.p.n)
	}
	const sample = 512
	n := 0
	for i := range sample {
		if keep(int(mix(1, uint64(i)) % uint64(x.p.n))) {
			n++
		}
	}
	return (float64(n) + 0.5) / (sample + 1)
}

func (x *Index) ef(k int, o SearchOptions) int {
	ef := o.Ef
	if ef <= 0 {
		ef = x.set.Ef
	}
	if ef <= 0 {
		ef = max(64, 2*k)
	}
	return min(max(ef, k), x.p.n)
}

func (x *Index) rescore(k, ef int, o SearchOptions) int {
	r := o.Rescore
	if r <= 0 {
		r = x.set.Rescore
	}
	if r <= 0 {
		r = map[Codes]int{NoCodes: k, Int8: k + 10, FourBit: 2*k + 10, OneBit: 5*k + ef/2, Principal: 4*k + ef/4}[x.p.codes]
	}
	return min(max(r, k), ef)
}

func (x *Index) exactInto(ctx context.Context, dst []Hit, q []float32, k int, keep func(int) bool) ([]Hit, Stats, error) {
	reads := 0
	counted := keep
	if keep != nil {
		counted = func(r int) bool {
			if keep(r) {
				reads++
				return true
			}
			return false
		}
	} else {
		reads = x.p.n
	}
	h, err := x.v.exact(ctx, x.p.metric, x.norms, [][]float32{q}, k, counted, 1)
	if err != nil {
		return dst, Stats{Exact: true}, err
	}
	return append(dst, h[0]...), Stats{VectorReads: reads, Exact: true}, nil
}

// walk leaves the k best rows in s.hits.
func (x *Index) walk(s *searcher, q []float32, k, ef int, o SearchOptions, st *Stats) error {
	s.nodes, s.scored, s.keep = 0, 0, nil
	x.walkT.prepare(&s.q, q)
	_, row, score := s.descend(x.g, x.walkT, &s.q, 0)
	s.walk(x.g, x.walkT, &s.q, 0, ef, row, score)
	r := x.rescore(k, ef, o)
	s.hits = s.hits[:0]
	for _, p := range s.pool[:min(r, len(s.pool))] {
		s.hits = append(s.hits, Hit{int(keyID(p)), keyScore(p)})
	}
	x.finish(s, q, k, ef, nil, st)
	return nil
}

// walkKept is walk over all rows that collects those a filter keeps.
func (x *Index) walkKept(s *searcher, q []float32, k, ef int, share float64, keep func(int) bool, o SearchOptions, st *Stats) error {
	s.nodes, s.scored = 0, 0
	r := x.rescore(k, ef, o)
	s.kept.reset(r)
	s.keep = keep
	if len(x.dups) > 0 { // a row stands for its copies
		s.keep = func(row int) bool {
			if keep(row) {
				return true
			}
			return slices.ContainsFunc(x.copies(uint32(row)), func(c dupPair) bool { return keep(int(c.row)) })
		}
	}
	wide := min(int(math.Ceil(float64(ef)/share)), x.p.n)
	x.walkT.prepare(&s.q, q)
	_, row, score := s.descend(x.g, x.walkT, &s.q, 0)
	s.walk(x.g, x.walkT, &s.q, 0, wide, row, score)
	s.hits = append(s.hits[:0], s.kept.sorted()...)
	x.finish(s, q, k, wide, keep, st)
	return nil
}

// finish scores the candidates in s.hits by their vectors, adds copies and keeps k.
func (x *Index) finish(s *searcher, q []float32, k, ef int, keep func(int) bool, st *Stats) {
	st.Ef, st.NodeReads = ef, s.nodes
	if x.p.codes == NoCodes {
		st.VectorReads = s.scored
	} else {
		st.CodeReads = s.scored
	}
	x.rescored(s, q, k)
	st.VectorReads += len(s.hits)
	slices.SortFunc(s.hits, better)
	s.hits = s.hits[:min(len(s.hits), max(k, 0))]
	if len(x.dups) == 0 {
		return
	}
	n := len(s.hits)
	for _, h := range s.hits[:n] {
		for _, c := range x.copies(uint32(h.Row)) {
			if int(c.row) < x.p.n && (keep == nil || keep(int(c.row))) {
				s.hits = append(s.hits, Hit{int(c.row), h.Score})
				st.Duplicates++
			}
		}
	}
	if keep != nil { // the rows that stood for kept copies only
		s.hits = slices.DeleteFunc(s.hits, func(h Hit) bool { return !keep(h.Row) })
	}
	slices.SortFunc(s.hits, better)
	s.hits = s.hits[:min(len(s.hits), k)]
}

// rescoreMore is the rows read at a time after the first 2k.
const rescoreMore = 16

// rescoreSigmas is how many standard deviations of the estimates' error a row may lie
// below the k-th best and still be read. Three lose nothing with 4-bit codes and 0.003 of
// recall with Principal ones, a million rows and 59 reads (four: 0.001, 93); 1-bit
// codes lose 0.006 of recall at ef 300 with three and nothing with four.
func (c Codes) rescoreSigmas() float64 {
	if c == OneBit {
		return 4
	}
	return 3
}

// rescored replaces the estimates of s.hits, which are best first, by the scores that
// an exact search gives, and drops the rest once none of it is likely to come among
// the k best: judged by the error of the estimates seen so far.
func (x *Index) rescored(s *searcher, q []float32, k int) {
	x.prepareFull(s, q)
	all := s.hits
	if x.p.codes == NoCodes {
		x.trueScores(s, q, all)
		return
	}
	s.kept.reset(k)
	var sum, sum2 float64
	for n := 0; n < len(all); {
		end := min(n+rescoreMore, len(all))
		if n == 0 {
			end = min(max(2*k, rescoreMore), len(all))
		}
		part := all[n:end]
		s.estimates = s.estimates[:0]
		for _, h := range part {
			s.estimates = append(s.estimates, h.Score)
		}
		x.trueScores(s, q, part)
		for i, h := range part {
			e := float64(h.Score) - float64(s.estimates[i])
			sum, sum2 = sum+e, sum2+e*e
			s.kept.offer(h)
		}
		if n = end; n == len(all) {
			break
		}
		mean := sum / float64(n)
		most := float64(all[n].Score) + mean + x.p.codes.rescoreSigmas()*math.Sqrt(max(sum2/float64(n)-mean*mean, 0))
		if len(s.kept.hits) == k && most < float64(s.kept.hits[0].Score) {
			all = all[:n]
		}
	}
	s.hits = all
}

// trueScores replaces scores by those of an exact search; prepareFull comes before.
func (x *Index) trueScores(s *searcher, q []float32, hits []Hit) {
	t := x.full
	n := len(hits)
	if len(s.rows) < n {
		s.ids, s.rows, s.scores = make([]uint32, n+64), make([]uint32, n+64), make([]float32, n+64)
	}
	rows, scores := s.rows[:n], s.scores[:n]
	for i, h := range hits {
		rows[i] = uint32(h.Row)
	}
	if x.cold {
		for _, r := range rows {
			x.v.willNeed(int(r))
		}
	}
	if t.metric == L2 {
		for i, r := range rows {
			if cap(s.qe.row) < x.p.dim {
				s.qe.row = make([]float32, x.p.dim)
			}
			scores[i] = -simd.L2(q, x.v.row(int(r), s.qe.row[:x.p.dim]))
		}
	} else {
		t.score(&s.qe, scores, rows)
	}
	for i := range hits {
		hits[i].Score = scores[i]
	}
}

func (x *Index) prepareFull(s *searcher, q []float32) {
	s.qe.vec = append(s.qe.vec[:0], q...)
	if x.p.metric == Cosine {
		x.full.prepare(&s.qe, q)
	}
}

type dupPair struct{ first, row uint32 }

// copies are the rows with the same content as row, which is the first of them.
func (x *Index) copies(row uint32) []dupPair {
	n := len(x.dups) / 2
	lo := sort.Search(n, func(i int) bool { return x.dups[2*i] >= row })
	var out []dupPair
	for ; lo < n && x.dups[2*lo] == row; lo++ {
		out = append(out, dupPair{row, x.dups[2*lo+1]})
	}
	return out
}

// SearchBatch searches for each query, on at most workers goroutines. Results do not
// depend on their number or on the other queries.
func (x *Index) SearchBatch(ctx context.Context, qs [][]float32, k int, o SearchOptions, workers int) ([][]Hit, Stats, error) {
	var st Stats
	if o.Exact && o.Keep == nil && o.Allow == nil && o.Deny == nil {
		h, err := x.Exact(ctx, qs, k, workers)
		return h, Stats{VectorReads: x.p.n, Exact: true}, err
	}
	out := make([][]Hit, len(qs))
	stats := make([]Stats, len(qs))
	var failed atomic.Int64
	failed.Store(-1)
	err := parallel(ctx, max(workers, 1), len(qs), func(ctx context.Context, i int) (err error) {
		if out[i], stats[i], err = x.Search(ctx, qs[i], k, o); err != nil {
			failed.CompareAndSwap(-1, int64(i))
		}
		return err
	})
	if err != nil {
		if i := failed.Load(); i >= 0 {
			err = fmt.Errorf("query %d: %w", i, err)
		}
		return nil, st, err
	}
	for _, s := range stats {
		st.add(s)
	}
	return out, st, nil
}

// RowSet is a set of row numbers. Reading is safe from any number of goroutines.
type RowSet struct {
	words []uint64
	n     int
}

// NewRowSet makes a set of the given rows.
func NewRowSet(rows ...int) *RowSet {
	s := &RowSet{}
	for _, r := range rows {
		s.Add(r)
	}
	return s
}

// Add puts a row into the set; negative rows are ignored.
func (s *RowSet) Add(row int) {
	if row < 0 || s.Has(row) {
		return
	}
	if w := row / 64; w >= len(s.words) {
		s.words = append(s.words, make([]uint64, w+1-len(s.words))...)
	}
	s.words[row/64] |= 1 << (row % 64)
	s.n++
}

// Has reports whether row is in the set.
func (s *RowSet) Has(row int) bool {
	return row >= 0 && row/64 < len(s.words) && s.words[row/64]>>(row%64)&1 != 0
}

// Len is the number of rows in the set.
func (s *RowSet) Len() int { return s.n }
