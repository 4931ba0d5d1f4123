package hnsw

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"rag2/internal/npy"
)

// change writes a manifest made by f, reopens the set from it and removes files that
// the new manifest no longer names.
func (s *Set) change(f func(m *SetManifest) error) error {
	s.mu.RLock()
	m := s.m
	m.Segments = slices.Clone(m.Segments)
	s.mu.RUnlock()
	m.Change++
	if err := f(&m); err != nil {
		return err
	}
	if err := saveManifest(s.dir, m); err != nil {
		return err
	}
	n := &Set{dir: s.dir, open: s.open, m: m}
	if err := n.load(s.segs); err != nil {
		n.segs = without(n.segs, s.segs)
		return errors.Join(err, n.Close())
	}
	s.mu.Lock()
	old := &Set{segs: without(s.segs, n.segs), delta: s.delta}
	gone := owned(s.m)
	s.m, s.segs, s.deleted, s.delta, s.dids, s.dnorms = n.m, n.segs, n.deleted, n.delta, n.dids, n.dnorms
	err := old.Close()
	s.mu.Unlock()
	for p := range gone {
		if !owned(m)[p] {
			if e := os.Remove(filepath.Join(s.dir, p)); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

// without is the segments of a whose indexes b does not share.
func without(a, b []*segment) []*segment {
	return slices.DeleteFunc(slices.Clone(a), func(x *segment) bool {
		return slices.ContainsFunc(b, func(y *segment) bool { return x.x == y.x })
	})
}

// owned is the files that change with the manifest; segments are the caller's.
func owned(m SetManifest) map[string]bool {
	out := map[string]bool{}
	for _, p := range []string{m.Deleted, m.Delta, m.DeltaIDs} {
		if p != "" {
			out[p] = true
		}
	}
	for _, g := range m.Segments {
		if g.IDs != "" {
			out[g.IDs] = true
		}
	}
	return out
}

// AddSegment takes an index into the set. Its rows get the ids given, or the next
// ones in order; the first is returned.
func (s *Set) AddSegment(index string, ids ...int64) (first int64, err error) {
	x, err := Open(index)
	if err != nil {
		return 0, err
	}
	n := x.Len()
	if err := x.Close(); err != nil {
		return 0, err
	}
	err = s.change(func(m *SetManifest) error {
		first = m.Next
		if m.Next > maxID {
			return fmt.Errorf("set %s: ids are used up", s.dir)
		}
		g := SetSegment{Path: relative(s.dir, index), Rows: n, First: first}
		m.Next += int64(n)
		if len(ids) > 0 {
			if len(ids) != n {
				return fmt.Errorf("%s has %d rows, %d ids were given: %w", index, n, len(ids), ErrRows)
			}
			first, g.First, m.Next = ids[0], 0, max(first, slices.Max(ids)+1)
			g.IDs = fmt.Sprintf("ids-%06d.npy", m.Change)
			if err := writeIDs(filepath.Join(s.dir, g.IDs), ids); err != nil {
				return err
			}
		}
		m.Segments = append(m.Segments, g)
		m.Taken = append(slices.Clone(m.Taken), g.Path)
		return nil
	})
	return first, err
}

func relative(dir, p string) string {
	if a, err := filepath.Abs(p); err == nil {
		if d, err := filepath.Abs(dir); err == nil {
			if r, err := filepath.Rel(d, a); err == nil {
				return filepath.ToSlash(r)
			}
		}
	}
	return p
}

// Append adds vectors to the delta and returns the first of their ids. The delta is
// rewritten: it is for small additions.
func (s *Set) Append(rows [][]float32) (first int64, err error) {
	for i, r := range rows {
		if err := checkQuery(r, s.m.Dim, 1); err != nil {
			return 0, fmt.Errorf("row %d: %w", i, err)
		}
	}
	err = s.change(func(m *SetManifest) error {
		first = m.Next
		m.Delta = fmt.Sprintf("delta-%06d.npy", m.Change)
		m.DeltaIDs = fmt.Sprintf("deltaids-%06d.npy", m.Change)
		w, err := npy.NewWriter(filepath.Join(s.dir, m.Delta), m.Dim, "<f4")
		if err != nil {
			return err
		}
		defer w.Abort()
		var ids []int64
		err = guarded(func() error {
			for i, id := range s.dids {
				if s.deleted[id] {
					continue
				}
				if err := w.WriteRow(s.delta.row(i, nil)); err != nil {
					return err
				}
				ids = append(ids, id)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := w.WriteRow(r); err != nil {
				return err
			}
			ids = append(ids, m.Next)
			m.Next++
		}
		if err := w.Commit(); err != nil {
			return err
		}
		return writeIDs(filepath.Join(s.dir, m.DeltaIDs), ids)
	})
	return first, err
}

// Delete hides vectors. Ids that are unknown or deleted already are ignored; the
// number newly deleted is returned.
func (s *Set) Delete(ids ...int64) (n int, err error) {
	err = s.change(func(m *SetManifest) error {
		all := make([]int64, 0, len(s.deleted)+len(ids))
		for id := range s.deleted {
			all = append(all, id)
		}
		for _, id := range ids {
			if id >= 0 && id < m.Next && !s.deleted[id] && s.knows(id) {
				all = append(all, id)
			}
		}
		slices.Sort(all)
		all = slices.Compact(all)
		n = len(all) - len(s.deleted)
		m.Deleted = fmt.Sprintf("deleted-%06d.npy", m.Change)
		return writeIDs(filepath.Join(s.dir, m.Deleted), all)
	})
	return n, err
}

func (s *Set) knows(id int64) bool {
	if slices.Contains(s.dids, id) {
		return true
	}
	for _, g := range s.segs {
		if g.ids == nil {
			if r := id - g.s.First; r >= 0 && r < int64(g.s.Rows) {
				return true
			}
			continue
		}
		for r := range g.s.Rows {
			if g.id(r) == id {
				return true
			}
		}
	}
	return false
}

// MergeOptions steer Merge.
type MergeOptions struct {
	// Segments is how many may remain, 0 = 8. The smallest are merged, with the delta
	// and with segments of which a tenth or more is deleted.
	Segments int
	// Build shapes the new segment; its metric is the set's. When M, EfConstruction,
	// Seed and FullPrecision are those of the largest segment merged, and nothing of it
	// was deleted, its graph is taken over and only the others' rows are inserted.
	Build BuildOptions
}

// Merge makes one segment of several, so that at most o.Segments remain. Vectors stay
// where they are unless some were deleted or come from the delta: then the new
// segment gets a .npy of its own. Memory is that of one build (see Plan). Old segment
// files are left to the caller; their paths are returned.
func (s *Set) Merge(ctx context.Context, o MergeOptions) (replaced []string, err error) {
	if o.Segments == 0 {
		o.Segments = 8
	}
	if err := o.Build.Validate(); err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	if o.Segments < 1 {
		return nil, fmt.Errorf("merge to %d segments", o.Segments)
	}
	o.Build.Metric = s.metric()
	order := make([]int, len(s.segs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return s.segs[b].s.Rows - s.segs[a].s.Rows })
	delta := s.delta != nil && s.delta.n > 0
	worn := func(i int) bool { return 10*s.segs[i].deny.Len() >= s.segs[i].s.Rows && s.segs[i].deny.Len() > 0 }
	if len(order) <= o.Segments && !delta && !slices.ContainsFunc(order, worn) {
		return nil, nil
	}
	var merged []int
	kept := 0
	for _, i := range order { // the largest stay
		if kept < o.Segments-1 && !worn(i) {
			kept++
		} else {
			merged = append(merged, i)
		}
	}
	if len(merged) == 1 && !delta && !worn(merged[0]) {
		return nil, nil
	}
	change := s.m.Change + 1
	out := filepath.Join(s.dir, fmt.Sprintf("segment-%06d.hnsw", change))
	var paths []string
	var ids []int64
	whole := !delta
	for _, i := range merged { // largest first
		g := s.segs[i]
		whole = whole && g.deny.Len() == 0
		for _, h := range g.x.v.shards {
			paths = append(paths, h.path)
		}
		for r := range g.s.Rows {
			if !g.deny.Has(r) {
				ids = append(ids, g.id(r))
			}
		}
	}
	if whole {
		o.Build.base = s.segs[merged[0]].x.path
	} else {
		p := filepath.Join(s.dir, fmt.Sprintf("vectors-%06d.npy", change))
		if ids, err = s.compact(ctx, p, merged, ids); err != nil {
			return nil, err
		}
		paths = []string{p}
	}
	if err := BuildShards(ctx, paths, out, o.Build); err != nil {
		return nil, err
	}
	err = s.change(func(m *SetManifest) error {
		var segs []SetSegment
		for i, g := range m.Segments {
			if slices.Contains(merged, i) {
				replaced = append(replaced, s.path(g.Path))
			} else {
				segs = append(segs, g)
			}
		}
		n := SetSegment{Path: filepath.Base(out), Rows: len(ids), IDs: fmt.Sprintf("ids-%06d.npy", m.Change)}
		m.Segments = append(segs, n)
		m.Delta, m.DeltaIDs = "", ""
		if err := writeIDs(filepath.Join(s.dir, n.IDs), ids); err != nil {
			return err
		}
		return s.forget(m, ids)
	})
	return replaced, err
}

// forget drops deletions of ids that no longer occur in any segment.
func (s *Set) forget(m *SetManifest, added []int64) error {
	var left []int64
	for id := range s.deleted {
		for _, g := range s.segs {
			kept := slices.ContainsFunc(m.Segments, func(x SetSegment) bool { return x.Path == g.s.Path })
			if kept && g.ids == nil && id >= g.s.First && id < g.s.First+int64(g.s.Rows) {
				left = append(left, id)
			} else if kept && g.ids != nil && g.deny.Len() > 0 {
				left = append(left, id)
			}
		}
	}
	if m.Deleted = ""; len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	m.Deleted = fmt.Sprintf("deleted-%06d.npy", m.Change)
	return writeIDs(filepath.Join(s.dir, m.Deleted), slices.Compact(left))
}

// compact writes the vectors of segments that are not deleted, and the delta's.
func (s *Set) compact(ctx context.Context, path string, merged []int, ids []int64) ([]int64, error) {
	dtype := "<f2"
	for _, i := range merged {
		for _, h := range s.segs[i].x.v.shards {
			if h.a.DType != "<f2" {
				dtype = "<f4"
			}
		}
	}
	if s.delta != nil && s.delta.n > 0 {
		dtype = "<f4"
	}
	w, err := npy.NewWriter(path, s.m.Dim, dtype)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	err = guarded(func() error {
		buf := make([]float32, s.m.Dim)
		for _, i := range merged {
			g := s.segs[i]
			for r := range g.s.Rows {
				if r%4096 == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				if g.deny.Has(r) {
					continue
				}
				if err := w.WriteRow(g.x.v.row(r, buf)); err != nil {
					return err
				}
			}
		}
		for r, id := range s.dids {
			if s.deleted[id] {
				continue
			}
			if err := w.WriteRow(s.delta.row(r, buf)); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, w.Commit()
}
