package hnsw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"rag2/internal/atomicfile"
	"rag2/internal/npy"
)

// Set is a folder of index segments searched as one, with deletions and a delta of
// new vectors that is scanned. Every vector has an id, which keeps its meaning when
// segments are merged.
//
//	set.json         the manifest (SetManifest), written last
//	*.hnsw, *.npy    segments, in the folder or where their Path says
//	ids-*.npy        <i8 ids of a segment's rows, when they are not First, First+1, …
//	deleted-*.npy    <i8 ids of deleted vectors, ascending
//	delta-*.npy      <f4 vectors not yet in a segment, deltaids-*.npy their ids
//
// A changed file gets a new number; the manifest names the current ones, so that a
// reader or a crash sees the set before or after a change. One process may change a
// set at a time; searches go on meanwhile.
type Set struct {
	dir string

	mu      sync.RWMutex
	m       SetManifest
	open    OpenOptions
	segs    []*segment
	deleted map[int64]bool
	delta   *vectors // nil without one
	dids    []int64
	dnorms  []float32
}

type segment struct {
	x    *Index
	s    SetSegment
	ids  *npy.Array
	deny *RowSet
}

// SetManifest is set.json.
type SetManifest struct {
	Format   int          `json:"format"` // 1
	Metric   string       `json:"metric"`
	Dim      int          `json:"dim"`
	Next     int64        `json:"next_id"`
	Change   int          `json:"change"` // counts changes; numbers the files
	Segments []SetSegment `json:"segments"`
	Deleted  string       `json:"deleted,omitempty"`
	Delta    string       `json:"delta,omitempty"`
	DeltaIDs string       `json:"delta_ids,omitempty"`
	// Taken names the segments that were ever added, so that an import that is repeated
	// after a merge does not add them again.
	Taken []string `json:"taken,omitempty"`
}

// SetSegment is one index of a set.
type SetSegment struct {
	Path  string `json:"path"` // of the index, relative to the set
	Rows  int    `json:"rows"`
	First int64  `json:"first_id"`
	IDs   string `json:"ids,omitempty"`
}

// SetHit is a vector found in a set.
type SetHit struct {
	ID    int64   `json:"id"`
	Score float32 `json:"score"`
}

const setFormat = 1

// CreateSet makes an empty set in dir.
func CreateSet(dir string, dim int, metric Metric) error {
	if dim < 1 || dim > maxDim || int(metric) >= len(metricNames) {
		return fmt.Errorf("set %s: %d dimensions, %v", dir, dim, metric)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	p := filepath.Join(dir, "set.json")
	if _, err := os.Stat(p); err == nil {
		return fmt.Errorf("%s: %w", p, fs.ErrExist)
	}
	return saveManifest(dir, SetManifest{Format: setFormat, Metric: metric.String(), Dim: dim})
}

func saveManifest(dir string, m SetManifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, "set.json"), append(b, '\n'))
}

// OpenSet opens a set and its segments. Vectors of o is ignored: segments know theirs.
func OpenSet(dir string, o OpenOptions) (*Set, error) {
	o.Vectors = nil
	s := &Set{dir: dir, open: o}
	var err error
	if s.m, err = readManifest(dir); err != nil {
		return nil, err
	}
	if err := s.load(nil); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func readManifest(dir string) (m SetManifest, err error) {
	p := filepath.Join(dir, "set.json")
	b, err := os.ReadFile(p)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%s: %w: %v", p, ErrNotOurs, err)
	}
	if m.Format != setFormat {
		return m, fmt.Errorf("%s: format %d, this program reads %d: %w", p, m.Format, setFormat, ErrVersion)
	}
	return m, nil
}

// SegmentPaths are the files of a set's segments, which need not be whole.
func SegmentPaths(dir string) ([]string, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	s := &Set{dir: dir}
	var out []string
	for _, g := range m.Segments {
		out = append(out, s.path(g.Path))
	}
	return out, nil
}

func (s *Set) bad(format string, a ...any) error {
	return &ErrCorrupt{filepath.Join(s.dir, "set.json"), "manifest", 0, fmt.Sprintf(format, a...)}
}

// load opens everything the manifest names; segments of before that it still names
// are shared.
func (s *Set) load(before []*segment) error {
	if _, err := ParseMetric(s.m.Metric); err != nil {
		return s.bad("%v", err)
	}
	s.deleted = map[int64]bool{}
	if s.m.Deleted != "" {
		ids, err := readIDs(filepath.Join(s.dir, s.m.Deleted))
		if err != nil {
			return err
		}
		for _, id := range ids {
			s.deleted[id] = true
		}
	}
	for _, d := range s.m.Segments {
		g := &segment{s: d}
		if i := slices.IndexFunc(before, func(b *segment) bool { return b.s == d }); i >= 0 {
			g.x, g.ids = before[i].x, before[i].ids
			s.segs = append(s.segs, g)
			if err := g.denied(s.deleted); err != nil {
				return err
			}
			continue
		}
		var err error
		if g.x, err = OpenWith(s.path(d.Path), s.open); err != nil {
			return err
		}
		s.segs = append(s.segs, g)
		if g.x.Len() != d.Rows || g.x.Dim() != s.m.Dim || g.x.p.metric.String() != s.m.Metric {
			return s.bad("%s: %d × %d, %v; the set says %d × %d, %s", d.Path, g.x.Len(), g.x.Dim(), g.x.p.metric, d.Rows, s.m.Dim, s.m.Metric)
		}
		if d.IDs != "" {
			if g.ids, err = npy.Open(filepath.Join(s.dir, d.IDs)); err != nil {
				return err
			}
			if g.ids.DType != "<i8" || g.ids.Rows() != d.Rows || g.ids.Cols() != 1 {
				return s.bad("%s: not %d ids", d.IDs, d.Rows)
			}
		}
		if err := g.denied(s.deleted); err != nil {
			return err
		}
	}
	if s.m.Delta == "" {
		return nil
	}
	var err error
	if s.delta, err = openVectors([]string{filepath.Join(s.dir, s.m.Delta)}); err != nil {
		return err
	}
	if s.dids, err = readIDs(filepath.Join(s.dir, s.m.DeltaIDs)); err != nil {
		return err
	}
	if len(s.dids) != s.delta.n || s.delta.dim != s.m.Dim {
		return s.bad("%s holds %d × %d vectors for %d ids", s.m.Delta, s.delta.n, s.delta.dim, len(s.dids))
	}
	if s.metric() == Cosine {
		s.dnorms = make([]float32, s.delta.n)
		return s.delta.normFactors(context.Background(), Cosine, 1, s.dnorms)
	}
	return nil
}

func (s *Set) metric() Metric { m, _ := ParseMetric(s.m.Metric); return m }

func (s *Set) path(p string) string {
	p = filepath.FromSlash(p)
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(s.dir, p)
}

// id of a segment's row.
func (g *segment) id(row int) int64 {
	if g.ids == nil {
		return g.s.First + int64(row)
	}
	return int64(le.Uint64(g.ids.Data()[8*row:]))
}

// denied collects the rows of deleted ids.
func (g *segment) denied(deleted map[int64]bool) error {
	g.deny = NewRowSet()
	if len(deleted) == 0 {
		return nil
	}
	return guarded(func() error {
		if g.ids == nil {
			for id := range deleted {
				if r := id - g.s.First; r >= 0 && r < int64(g.s.Rows) {
					g.deny.Add(int(r))
				}
			}
			return nil
		}
		for r := range g.s.Rows {
			if deleted[g.id(r)] {
				g.deny.Add(r)
			}
		}
		return nil
	})
}

// SetOptions steer a search of a set.
type SetOptions struct {
	Ef, Rescore int
	Exact       bool
	Keep        func(id int64) bool // ids that may be returned
	Workers     int                 // goroutines over segments; 0 = 1
}

// Search returns the k nearest vectors of all segments and the delta, best first,
// ties by id. Deleted ones are never returned, and fewer than k only when there are
// no more.
func (s *Set) Search(ctx context.Context, q []float32, k int, o SetOptions) ([]SetHit, Stats, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var st Stats
	if err := checkQuery(q, s.m.Dim, k); err != nil {
		return nil, st, err
	}
	hits := make([][]SetHit, len(s.segs)+1)
	stats := make([]Stats, len(s.segs)+1)
	err := parallel(ctx, max(o.Workers, 1), len(hits), func(ctx context.Context, i int) error {
		if i == len(s.segs) {
			return s.searchDelta(ctx, q, k, o, &hits[i], &stats[i])
		}
		g := s.segs[i]
		so := SearchOptions{Ef: o.Ef, Rescore: o.Rescore, Exact: o.Exact}
		if g.deny.Len() > 0 {
			so.Deny = g.deny
		}
		if o.Keep != nil {
			so.Keep = func(r int) bool { return o.Keep(g.id(r)) }
		}
		h, gs, err := g.x.Search(ctx, q, k, so)
		stats[i] = gs
		for _, x := range h {
			hits[i] = append(hits[i], SetHit{g.id(x.Row), x.Score})
		}
		return err
	})
	if err != nil {
		return nil, st, err
	}
	var all []SetHit
	for i := range hits {
		all = append(all, hits[i]...)
		st.add(stats[i])
	}
	slices.SortFunc(all, func(a, b SetHit) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		case a.ID < b.ID:
			return -1
		}
		return 1
	})
	return all[:min(k, len(all))], st, nil
}

// SearchRows is Search of a set whose ids are row numbers, with an index's options.
func (s *Set) SearchRows(ctx context.Context, q []float32, k int, o SearchOptions) ([]Hit, Stats, error) {
	so := SetOptions{Ef: o.Ef, Rescore: o.Rescore, Exact: o.Exact}
	if keep := o.keep(); keep != nil {
		so.Keep = func(id int64) bool { return keep(int(id)) }
	}
	found, st, err := s.Search(ctx, q, k, so)
	hits := make([]Hit, len(found))
	for i, h := range found {
		hits[i] = Hit{int(h.ID), h.Score}
	}
	return hits, st, err
}

// Indexes are the set's segments; a change of the set may close them.
func (s *Set) Indexes() []*Index {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*Index, len(s.segs))
	for i, g := range s.segs {
		out[i] = g.x
	}
	return out
}

func (s *Set) searchDelta(ctx context.Context, q []float32, k int, o SetOptions, out *[]SetHit, st *Stats) error {
	if s.delta == nil || s.delta.n == 0 {
		return nil
	}
	h, err := s.delta.exact(ctx, s.metric(), s.dnorms, [][]float32{q}, k, func(r int) bool {
		return !s.deleted[s.dids[r]] && (o.Keep == nil || o.Keep(s.dids[r]))
	}, 1)
	if err != nil {
		return err
	}
	st.VectorReads = s.delta.n
	for _, x := range h[0] {
		*out = append(*out, SetHit{s.dids[x.Row], x.Score})
	}
	return nil
}

// Len is the number of vectors that are not deleted.
func (s *Set) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := len(s.dids)
	for _, id := range s.dids {
		if s.deleted[id] {
			n--
		}
	}
	for _, g := range s.segs {
		n += g.s.Rows - g.deny.Len()
	}
	return n
}

// SetState says how far a set has moved from its segments.
type SetState struct {
	Segments  int     `json:"segments"`
	Rows      int     `json:"rows"`
	Deleted   int     `json:"deleted"`
	Delta     int     `json:"delta"`
	Tombstone float64 `json:"tombstone_share"`
	// Advice is what to do about it, "" for nothing: a delta above 1 % or tombstones
	// above 10 % slow every search, and more than 8 segments do too.
	Advice string `json:"advice,omitempty"`
}

// State describes the set.
func (s *Set) State() SetState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := SetState{Segments: len(s.segs), Delta: len(s.dids)}
	for _, g := range s.segs {
		t.Rows += g.s.Rows
		t.Deleted += g.deny.Len()
	}
	t.Rows += t.Delta
	if t.Rows > 0 {
		t.Tombstone = float64(t.Deleted) / float64(t.Rows)
	}
	switch {
	case t.Tombstone >= 0.10:
		t.Advice = "rebuild: a tenth or more is deleted"
	case t.Delta > 1000 && float64(t.Delta) > 0.01*float64(t.Rows):
		t.Advice = "merge: the delta is more than 1 %"
	case t.Segments > 8:
		t.Advice = "merge: more than 8 segments"
	}
	return t
}

// Close closes all segments. No search may be running.
func (s *Set) Close() error {
	var err error
	for _, g := range s.segs {
		if g.x != nil {
			err = errors.Join(err, g.x.Close())
		}
		if g.ids != nil {
			err = errors.Join(err, g.ids.Close())
		}
	}
	if s.delta != nil {
		err = errors.Join(err, s.delta.close())
	}
	s.segs, s.delta = nil, nil
	return err
}

func readIDs(path string) ([]int64, error) {
	a, err := npy.Open(path)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if a.DType != "<i8" || a.Cols() != 1 {
		return nil, fmt.Errorf("%s: %s × %d, not <i8 ids: %w", path, a.DType, a.Cols(), npy.ErrFormat)
	}
	out := make([]int64, a.Rows())
	err = guarded(func() error {
		for i := range out {
			out[i] = int64(le.Uint64(a.Data()[8*i:]))
		}
		return nil
	})
	return out, err
}

func writeIDs(path string, ids []int64) error {
	h := fmt.Sprintf("{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }", len(ids))
	b := append([]byte("\x93NUMPY\x01\x00\x00\x00"), h...)
	for (len(b)+1)%64 != 0 {
		b = append(b, ' ')
	}
	b = append(b, '\n')
	le.PutUint16(b[8:], uint16(len(b)-10))
	for _, id := range ids {
		b = le.AppendUint64(b, uint64(id))
	}
	return atomicfile.WriteFile(path, b)
}

// maxID leaves room for row numbers to be added.
const maxID = math.MaxInt64 - maxRows
