package hnsw

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rag2/internal/npy"
)

func TestInspect(t *testing.T) {
	path, _ := write(t, 200, 16, 1)
	g := filepath.Join(t.TempDir(), "g")
	if err := Build(context.Background(), path, g, BuildOptions{Codes: OneBit}); err != nil {
		t.Fatal(err)
	}
	if err := SaveSettings(g, Settings{Ef: 77}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	in, err := Inspect(g)
	if err != nil || in.Info.N != 200 || in.Info.Codes != "1bit" || in.Settings.Ef != 77 || len(in.Sections) < 8 {
		t.Errorf("%+v %v", in, err)
	}
}

func TestRepair(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	path, queries := write(t, 800, 24, 1)
	ctx := context.Background()
	for _, damage := range []string{"none", "LVL0", "UPLS", "CODE", "orphan"} {
		g := filepath.Join(t.TempDir(), "g")
		if err := Build(ctx, path, g, BuildOptions{Codes: FourBit, M: 6}); err != nil {
			t.Fatal(err)
		}
		good, err := os.ReadFile(g)
		if err != nil {
			t.Fatal(err)
		}
		b := bytes.Clone(good)
		in, err := Inspect(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range in.Sections {
			part := b[s.Offset : s.Offset+s.Bytes]
			switch {
			case damage == s.Tag:
				for i := 100; i < len(part)-8; i += 900 {
					part[i] ^= 0xff
					part[i+3] ^= 0x5a
				}
			case damage == "orphan" && s.Tag == "LVL0": // nothing leads to row 5
				ls := asU32(part)
				for i := 0; i < len(ls); i += 12 {
					for j := range 12 {
						if ls[i+j] == 5 {
							copy(ls[i+j:i+12], ls[i+j+1:i+12])
							ls[i+11] = endMark
						}
					}
				}
			}
		}
		if err := os.WriteFile(g, b, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := Repair(ctx, g, path)
		if err != nil {
			t.Fatalf("%s: %v", damage, err)
		}
		if (damage == "none") != (r.Damage == "") {
			t.Errorf("%s: %+v", damage, r)
		}
		x, err := Open(g, path)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Verify(ctx); err != nil {
			t.Errorf("%s: after repair: %v", damage, err)
		}
		if r := recall(t, x, queries, 200); r < 0.9 {
			t.Errorf("%s: recall %.3f", damage, r)
		}
		x.Close()
	}
}

func TestTune(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	path, queries := write(t, 2000, 32, 1)
	x := open(t, path, BuildOptions{Codes: FourBit})
	r, err := x.Tune(context.Background(), queries, TuneOptions{Recall: 0.9})
	if err != nil || r.Settings.Recall < 0.9 || r.Settings.Ef < 10 || r.Settings.Rescore > r.Settings.Ef {
		t.Fatalf("%+v %v", r, err)
	}
	if err := SaveSettings(x.Path(), r.Settings); err != nil {
		t.Fatal(err)
	}
	y, err := Open(x.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	if _, st, err := y.Search(context.Background(), queries[0], 10, SearchOptions{}); err != nil || st.Ef != r.Settings.Ef {
		t.Errorf("%+v %v", st, err)
	}
	if _, err := x.Tune(context.Background(), queries, TuneOptions{Recall: 1, MaxEf: 11}); !errors.Is(err, ErrRecall) {
		t.Errorf("%v", err)
	}
}

func TestPlan(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	// What is planned is what is written.
	path, _ := write(t, 3000, 64, 1)
	for _, c := range []Codes{NoCodes, Int8, FourBit, OneBit, Principal} {
		g := filepath.Join(t.TempDir(), "g")
		if err := Build(context.Background(), path, g, BuildOptions{Codes: c}); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(g)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Plan(PlanOptions{Rows: 3000, Dim: 64, Codes: c, Segments: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := st.Size() + 3000*64*4
		if d := float64(p.Disk)/float64(want) - 1; d < -0.1 || d > 0.1 {
			t.Errorf("%v: planned %d, written %d", c, p.Disk, want)
		}
	}
	total := int64(0)
	for _, c := range PaperCorpora {
		p, err := Plan(PlanOptions{Rows: c.Rows, Dim: 768, Codes: Principal, Half: true, GraphCached: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v", c.Name, p)
		if c.Name == "PubMed" && p.RAM > 9<<30 {
			t.Errorf("PubMed needs %s", human(p.RAM))
		}
		total += p.RAM
	}
	if total > 14<<30 {
		t.Errorf("all corpora need %s", human(total))
	}
	if s := codeStride(Int8, 768); float64(s) > 0.26*4*768 {
		t.Errorf("int8 codes are %d bytes", s)
	}
	for _, c := range []Codes{OneBit, Principal} {
		if s := codeStride(c, 768); float64(s) > 0.04*4*768 {
			t.Errorf("%v codes are %d bytes", c, s)
		}
	}
	if _, err := Plan(PlanOptions{M: 1, GraphCached: 2}); err == nil || strings.Count(err.Error(), "\n") < 3 {
		t.Errorf("%v", err)
	}
}

func TestImport(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "set")
	ctx := context.Background()
	var all [][]float32
	for _, i := range []int{8, 9, 10, 11} { // numeric order is not that of names
		p, _ := write(t, 40+i, 8, uint64(i))
		rows := rowsOf(t, p)
		all = append(all, rows...)
		w, _ := npy.NewWriter(filepath.Join(dir, fmt.Sprintf("embeds_chunk_%d.npy", i)), 8, "<f4")
		var ids []string
		articles := map[string]any{}
		for j, r := range rows {
			_ = w.WriteRow(r)
			ids = append(ids, fmt.Sprint(1000*i+j))
			articles[ids[j]] = map[string]any{"t": "title", "a": []string{"nested", "lists"}, "d": 1}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]any{"pmids": ids, "pubmed": articles} {
			b, _ := json.Marshal(v)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s_chunk_%d.json", name, i)), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	u, err := Import(ctx, dir, out, ImportOptions{Segments: 2, Unit: 2, Build: BuildOptions{M: 4, EfConstruction: 40}})
	if err != nil || u.Rows != 50+51 || exists(filepath.Join(out, "set.json")) || !exists(unitPath(out, 1, 2)) {
		t.Fatalf("one unit: %+v %v", u, err)
	}
	r, err := Import(ctx, dir, out, ImportOptions{Segments: 2, Build: BuildOptions{M: 4, EfConstruction: 40}})
	if err != nil || r.Rows != len(all) || r.Segments != 2 || r.Chunks[0].Number != 8 || r.Chunks[3].Number != 11 {
		t.Fatalf("%+v %v", r, err)
	}
	s, err := OpenSet(out, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := 0
	for _, i := range []int{8, 9, 10, 11} {
		for j := range 40 + i {
			q := all[n]
			n++
			h, _, err := s.Search(ctx, q, len(all), SetOptions{})
			if err != nil || len(h) != len(all) {
				t.Fatal(err)
			}
			ok := false
			for _, x := range h {
				if x.ID == int64(1000*i+j) {
					var dot float32
					for k := range q {
						dot += q[k] * q[k]
					}
					ok = x.Score > dot-1e-3 && x.Score < dot+1e-3
				}
			}
			if !ok {
				t.Fatalf("chunk %d row %d does not have its PMID", i, j)
			}
		}
	}
	if r, err := Import(ctx, dir, out, ImportOptions{Segments: 2}); err != nil || r.Reused != 2 {
		t.Errorf("again: %+v %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pmids_chunk_9.json"), []byte(`["1","2"]`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := FindEmbeddings(ctx, dir, ""); !errors.Is(err, ErrRows) {
		t.Errorf("short PMIDs: %v", err)
	}
	os.Remove(filepath.Join(dir, "embeds_chunk_9.npy"))
	if _, err := FindEmbeddings(ctx, dir, ""); err == nil || !strings.Contains(err.Error(), "10 follows chunk 8") {
		t.Errorf("missing chunk: %v", err)
	}
}

func TestImportAuthors(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"PubMed_Embeds_2", "PubMed_Embeds_10", "PubMed_Embeds_0", "PubMed_Embeds_1"} {
		p, _ := write(t, 5, 8, 3)
		b, _ := os.ReadFile(p)
		if err := os.WriteFile(filepath.Join(dir, name+".npy"), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := FindEmbeddings(context.Background(), dir, ""); err == nil {
		t.Error("a gap from 2 to 10 was accepted")
	}
	if err := os.Rename(filepath.Join(dir, "PubMed_Embeds_10.npy"), filepath.Join(dir, "PubMed_Embeds_3.npy")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "PubMed_Articles_1.json"), []byte(`["a", {"x": [1, 2]}, "c", [], "e"]`), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := FindEmbeddings(context.Background(), dir, "")
	if err != nil || len(c) != 4 || c[1].Articles == "" || c[0].Articles != "" {
		t.Fatalf("%+v %v", c, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "PubMed_Articles_1.json"), []byte(`["a", "b"]`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := FindEmbeddings(context.Background(), dir, ""); !errors.Is(err, ErrRows) {
		t.Errorf("short articles: %v", err)
	}
}

// A search with room for its hits allocates nothing.
func TestSearchAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they hold")
	}
	path, queries := write(t, 2000, 32, 1)
	for _, c := range []Codes{NoCodes, Int8, FourBit, OneBit, Principal} {
		x := open(t, path, BuildOptions{Codes: c})
		dst := make([]Hit, 0, 10)
		for _, q := range queries {
			_, _, _ = x.SearchInto(context.Background(), dst, q, 10, SearchOptions{})
		}
		if n := testing.AllocsPerRun(50, func() {
			_, _, _ = x.SearchInto(context.Background(), dst, queries[0], 10, SearchOptions{})
		}); n > 0 {
			t.Errorf("%v: %g allocations a search", c, n)
		}
	}
}

func TestOpenIsConstantTime(t *testing.T) {
	path, _ := write(t, 4000, 64, 1)
	x := open(t, path, BuildOptions{Codes: Int8, EfConstruction: 20})
	x.Close()
	// The sections of an index that has only been opened have not been read: damage in
	// them is not noticed, and Open allocates the same for any number of rows.
	n := testing.AllocsPerRun(5, func() {
		y, err := Open(x.Path())
		if err != nil {
			t.Fatal(err)
		}
		y.Close()
	})
	if n > 300 {
		t.Errorf("%g allocations", n)
	}
}

func TestBatchIsSingle(t *testing.T) {
	path, queries := write(t, 2500, 40, 1)
	if len(queries) < gemmQueries {
		t.Fatal("too few queries for a matrix product")
	}
	for _, m := range []Metric{InnerProduct, L2, Cosine} {
		batchIsSingle(t, open(t, path, BuildOptions{Codes: FourBit, Metric: m}), queries)
	}
}

func batchIsSingle(t *testing.T, x *Index, queries [][]float32) {
	for _, o := range []SearchOptions{{}, {Exact: true}} {
		all, _, err := x.SearchBatch(context.Background(), queries, 10, o, 2)
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range queries {
			one, _, err := x.Search(context.Background(), q, 10, o)
			if err != nil || fmt.Sprint(one) != fmt.Sprint(all[i]) {
				t.Fatalf("exact %v, query %d: %v, in a batch %v", o.Exact, i, one, all[i])
			}
		}
	}
	bad := append([][]float32{}, queries[0], make([]float32, 40))
	if _, _, err := x.SearchBatch(context.Background(), bad, 10, SearchOptions{}, 2); !errors.Is(err, ErrVector) || !strings.Contains(err.Error(), "query 1") {
		t.Errorf("%v", err)
	}
}

func TestDeadline(t *testing.T) {
	path, _ := write(t, 3000, 32, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	err := Build(ctx, path, filepath.Join(t.TempDir(), "g"), BuildOptions{EfConstruction: 2000})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// However an index is opened, it finds the same.
func TestOpenOptions(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	path, queries := write(t, 1500, 40, 1)
	x := open(t, path, BuildOptions{Codes: OneBit})
	for _, o := range []OpenOptions{{Warm: "none"}, {Warm: "graph"}, {Warm: "codes"}, {Warm: "all"}, {Resident: true}, {Cold: true}} {
		y, err := OpenWith(x.Path(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queries[:10] {
			a, _, err := x.Search(context.Background(), q, 10, SearchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if b, _, err := y.Search(context.Background(), q, 10, SearchOptions{}); err != nil || fmt.Sprint(a) != fmt.Sprint(b) {
				t.Errorf("%+v: %v, want %v (%v)", o, b, a, err)
			}
		}
		if r, err := y.Resident(); err == nil {
			for _, s := range r {
				if s.Bytes < 0 || s.Bytes > s.Total+4096 {
					t.Errorf("%+v: %+v", o, s)
				}
			}
		}
		y.Close()
	}
	if _, err := OpenWith(x.Path(), OpenOptions{Warm: "hot"}); err == nil {
		t.Error("warm hot was accepted")
	}
}
