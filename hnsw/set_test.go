package hnsw

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"rag2/internal/npy"
)

func rowsOf(t testing.TB, path string) [][]float32 {
	t.Helper()
	a, err := npy.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	out := make([][]float32, a.Rows())
	for i := range out {
		out[i] = append([]float32(nil), a.Row32(i, nil)...)
	}
	return out
}

func newSet(t testing.TB, parts ...string) *Set {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "set")
	if err := CreateSet(dir, 16, InnerProduct); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSet(dir, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for i, p := range parts {
		g := filepath.Join(dir, fmt.Sprintf("seg%d.hnsw", i))
		if err := Build(context.Background(), p, g, BuildOptions{Codes: Int8, M: 8, EfConstruction: 60}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddSegment(g); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// model is what a set should hold.
type model map[int64][]float32

func (m model) check(t *testing.T, s *Set, queries [][]float32, what string) {
	t.Helper()
	if s.Len() != len(m) {
		t.Errorf("%s: %d vectors, want %d", what, s.Len(), len(m))
	}
	for _, q := range queries {
		got, st, err := s.Search(context.Background(), q, 10, SetOptions{Exact: true})
		if err != nil || !st.Exact && len(s.segs) > 0 {
			t.Fatalf("%s: %v %+v", what, err, st)
		}
		top := topK{k: 10}
		for id, v := range m {
			var dot float32
			for i := range v {
				dot += v[i] * q[i]
			}
			top.offer(Hit{int(id), dot})
		}
		want := top.sorted()
		if len(got) != len(want) {
			t.Fatalf("%s: %d hits, want %d", what, len(got), len(want))
		}
		for i := range got {
			if d := got[i].Score - want[i].Score; d > 1e-3 || d < -1e-3 || m[got[i].ID] == nil {
				t.Fatalf("%s: hit %d is %v, want %v", what, i, got[i], want[i])
			}
		}
		walk, _, err := s.Search(context.Background(), q, 10, SetOptions{Ef: 200, Workers: 2})
		if err != nil || len(walk) != len(want) {
			t.Fatalf("%s: walk: %d hits, %v", what, len(walk), err)
		}
		for _, h := range walk {
			if m[h.ID] == nil {
				t.Errorf("%s: walk returns %d, which is not there", what, h.ID)
			}
		}
		if len(want) > 0 && walk[0].Score < want[0].Score-1e-3 {
			t.Errorf("%s: the walk's best is %v, want %v", what, walk[0], want[0])
		}
	}
}

func TestSetLife(t *testing.T) {
	a, queries := write(t, 400, 16, 11)
	b, _ := write(t, 300, 16, 12)
	extra, _ := write(t, 40, 16, 13)
	queries = queries[:8]
	s := newSet(t, a, b)
	m := model{}
	for i, r := range rowsOf(t, a) {
		m[int64(i)] = r
	}
	for i, r := range rowsOf(t, b) {
		m[int64(400+i)] = r
	}
	m.check(t, s, queries, "two segments")
	first, err := s.Append(rowsOf(t, extra)[:25])
	if err != nil || first != 700 {
		t.Fatal(first, err)
	}
	if _, err := s.Append(rowsOf(t, extra)[25:]); err != nil {
		t.Fatal(err)
	}
	for i, r := range rowsOf(t, extra) {
		m[int64(700+i)] = r
	}
	m.check(t, s, queries, "delta")
	var gone []int64
	for id := range m {
		if id%3 == 0 || id >= 400 && id < 420 || id == 710 {
			gone = append(gone, id)
		}
	}
	n, err := s.Delete(append(gone, 100000, -4, gone[0])...)
	if err != nil || n != len(gone) {
		t.Fatalf("%d of %d deleted: %v", n, len(gone), err)
	}
	for _, id := range gone {
		delete(m, id)
	}
	m.check(t, s, queries, "deleted")
	if st := s.State(); st.Advice == "" || st.Segments != 2 {
		t.Errorf("%+v", st)
	}
	re, err := OpenSet(s.dir, OpenOptions{Resident: true})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t, re, queries, "reopened")
	re.Close()
	old, err := s.Merge(context.Background(), MergeOptions{Segments: 1, Build: BuildOptions{Codes: OneBit, M: 8, EfConstruction: 60}})
	if err != nil || len(old) != 2 {
		t.Fatal(old, err)
	}
	m.check(t, s, queries, "merged")
	if st := s.State(); st.Segments != 1 || st.Delta != 0 || st.Deleted != 0 || st.Advice != "" {
		t.Errorf("%+v", st)
	}
	if err := s.segs[0].x.Verify(context.Background()); err != nil {
		t.Error(err)
	}
	if old, err := s.Merge(context.Background(), MergeOptions{}); err != nil || old != nil {
		t.Errorf("a merge of nothing: %v %v", old, err)
	}
	var all []int64
	for id := range m {
		all = append(all, id)
	}
	for i := range 100 { // a segment that is worn is made again though it is the only one
		delete(m, all[i])
	}
	if _, err := s.Delete(all[:100]...); err != nil {
		t.Fatal(err)
	}
	if old, err := s.Merge(context.Background(), MergeOptions{Build: BuildOptions{M: 8, EfConstruction: 60}}); err != nil || len(old) != 1 {
		t.Errorf("worn segment: %v %v", old, err)
	}
	m.check(t, s, queries, "worn")
	if _, err := s.Delete(all...); err != nil {
		t.Fatal(err)
	}
	m = model{}
	m.check(t, s, queries[:1], "all deleted")
	if _, err := s.Merge(context.Background(), MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	m.check(t, s, queries[:1], "all deleted and merged")
	if _, err := s.Append(rowsOf(t, extra)[:3]); err != nil {
		t.Fatal(err)
	}
	if h, _, err := s.Search(context.Background(), queries[0], 10, SetOptions{}); err != nil || len(h) != 3 || h[0].ID < 740 {
		t.Errorf("after deleting all: %v %v", h, err)
	}
}

// A merge without deletions references the vectors in place and goes on from the
// largest segment's graph; it must find what a build of the whole finds.
func TestMergeIsAsGoodAsTheWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	a, queries := write(t, 1200, 16, 21)
	b, _ := write(t, 500, 16, 22)
	c, _ := write(t, 300, 16, 23)
	s := newSet(t, a, b, c)
	if _, err := s.Merge(context.Background(), MergeOptions{Segments: 1, Build: BuildOptions{Codes: Int8, M: 8, EfConstruction: 60}}); err != nil {
		t.Fatal(err)
	}
	x := s.segs[0].x
	if x.p.base != 1200 || len(x.shards) != 3 || x.Len() != 2000 {
		t.Errorf("base %d, %d shards, %d rows", x.p.base, len(x.shards), x.Len())
	}
	if err := x.Verify(context.Background()); err != nil {
		t.Error(err)
	}
	whole := filepath.Join(t.TempDir(), "w")
	if err := BuildShards(context.Background(), []string{a, b, c}, whole, BuildOptions{Codes: Int8, M: 8, EfConstruction: 60}); err != nil {
		t.Fatal(err)
	}
	w, err := Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if got, want := recall(t, x, queries, 80), recall(t, w, queries, 80); got < want-0.03 || got < 0.9 {
		t.Errorf("merged %.3f, whole %.3f", got, want)
	}
}

func TestSetWhileSearching(t *testing.T) {
	a, queries := write(t, 300, 16, 11)
	extra, _ := write(t, 8, 16, 13)
	s := newSet(t, a)
	rows := rowsOf(t, extra)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 8 {
		wg.Go(func() {
			for i := g; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if h, _, err := s.Search(context.Background(), queries[i%len(queries)], 5, SetOptions{}); err != nil || len(h) != 5 {
					t.Errorf("%v %v", h, err)
					return
				}
			}
		})
	}
	for i := range rows {
		if _, err := s.Append(rows[i : i+1]); err != nil {
			t.Error(err)
		}
		if _, err := s.Delete(int64(i)); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestSetErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenSet(dir, OpenOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for name, body := range map[string]error{"{": ErrNotOurs, `{"format":7}`: ErrVersion} {
		if err := os.WriteFile(filepath.Join(dir, "set.json"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSet(dir, OpenOptions{}); !errors.Is(err, body) {
			t.Errorf("%s: %v", name, err)
		}
	}
	os.Remove(filepath.Join(dir, "set.json"))
	if err := CreateSet(dir, 16, L2); err != nil {
		t.Fatal(err)
	}
	if err := CreateSet(dir, 16, L2); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	s, err := OpenSet(dir, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Append([][]float32{make([]float32, 16)}); !errors.Is(err, ErrVector) {
		t.Error(err)
	}
	path, _ := write(t, 50, 16, 1)
	g := filepath.Join(dir, "g")
	if err := Build(context.Background(), path, g, BuildOptions{}); err != nil {
		t.Fatal(err)
	}
	var c *ErrCorrupt
	if _, err := s.AddSegment(g); !errors.As(err, &c) { // another metric
		t.Error(err)
	}
}

func TestFilters(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	path, queries := write(t, 4000, 24, 31)
	for _, codes := range []Codes{NoCodes, FourBit} {
		x := open(t, path, BuildOptions{Codes: codes, M: 8, EfConstruction: 80})
		rng := rand.New(rand.NewPCG(7, 7))
		for _, share := range []float64{0.001, 0.02, 0.2, 0.5, 0.95} {
			allow := NewRowSet()
			for i := range 4000 {
				if rng.Float64() < share {
					allow.Add(i)
				}
			}
			deny := NewRowSet()
			for i := range 4000 {
				if !allow.Has(i) {
					deny.Add(i)
				}
			}
			for name, o := range map[string]SearchOptions{"allow": {Allow: allow}, "deny": {Deny: deny}, "keep": {Keep: allow.Has}} {
				hits, all := 0, 0
				for _, q := range queries[:20] {
					o.Ef, o.Rescore = 100, 60
					got, st, err := x.Search(context.Background(), q, 10, o)
					if err != nil {
						t.Fatal(err)
					}
					eo := o
					eo.Exact = true
					want, _, err := x.Search(context.Background(), q, 10, eo)
					if err != nil {
						t.Fatal(err)
					}
					if len(got) != len(want) || len(want) != min(10, allow.Len()) {
						t.Fatalf("%s %g: %d hits, want %d", name, share, len(got), len(want))
					}
					for _, h := range got {
						if !allow.Has(h.Row) {
							t.Fatalf("%s %g: row %d is not allowed", name, share, h.Row)
						}
					}
					if share < 0.03 && !st.Exact {
						t.Errorf("%s %g: not exact", name, share)
					}
					all += len(want)
					hits += int(Recall([][]Hit{got}, [][]Hit{want})*float64(len(want)) + 0.5)
				}
				if r := float64(hits) / float64(all); r < 0.95 {
					t.Errorf("%v, %s %g: recall %.3f", codes, name, share, r)
				}
			}
		}
	}
}

func TestDuplicatesComeBack(t *testing.T) {
	rows := [][]float32{}
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range 300 {
		v := make([]float32, 12)
		for j := range v {
			v[j] = float32(rng.NormFloat64())
		}
		if i%3 == 2 {
			v = rows[i-2]
		}
		rows = append(rows, v)
	}
	p := filepath.Join(t.TempDir(), "v.npy")
	w, _ := npy.NewWriter(p, 12, "<f4")
	for _, r := range rows {
		_ = w.WriteRow(r)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	x := open(t, p, BuildOptions{Codes: Int8, Metric: L2})
	if x.Info().Duplicates != 100 {
		t.Errorf("%d duplicates", x.Info().Duplicates)
	}
	for i := 0; i < 300; i += 3 {
		h, _, err := x.Search(context.Background(), rows[i], 3, SearchOptions{})
		if err != nil || h[0].Row != i || h[1].Row != i+2 || h[0].Score != h[1].Score {
			t.Fatalf("row %d: %v %v", i, h, err)
		}
		// A filter that keeps the copy alone.
		odd := func(r int) bool { return r%3 != 0 }
		h, _, err = x.Search(context.Background(), rows[i], 1, SearchOptions{Keep: odd, Ef: 300})
		if err != nil || h[0].Row != i+2 {
			t.Fatalf("copy of row %d: %v %v", i, h, err)
		}
	}
}
