package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rag2/internal/npy"
)

func writeRows(t *testing.T, path string, n int, seed uint64) {
	t.Helper()
	w, err := npy.NewWriter(path, 8, "<f4")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	for range n {
		r := make([]float32, 8)
		for j := range r {
			r[j] = float32(rng.NormFloat64())
		}
		if err := w.WriteRow(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// The life of a set by its commands: built in shards, imported, searched, added to,
// deleted from, merged.
func TestSetCommands(t *testing.T) {
	dir, set := t.TempDir(), filepath.Join(t.TempDir(), "set")
	for i := range 3 {
		writeRows(t, filepath.Join(dir, fmt.Sprintf("embeds_chunk_%d.npy", i)), 50, uint64(i))
		var ids []string
		for j := range 50 {
			ids = append(ids, fmt.Sprint(1000*i+j))
		}
		b, _ := json.Marshal(ids)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("pmids_chunk_%d.json", i)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	queries := filepath.Join(dir, "queries.npy")
	writeRows(t, queries, 2, 1) // the first two rows of chunk 1
	ok := func(args ...string) string {
		t.Helper()
		r := call(t, nil, "", args...)
		if r.code != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
		return r.out
	}
	first := func(args ...string) string {
		t.Helper()
		var l struct {
			Hits []struct {
				ID int64 `json:"id"`
			} `json:"hits"`
		}
		if err := json.Unmarshal([]byte(strings.SplitN(ok(append([]string{"set", "search", set, queries}, args...)...), "\n", 2)[0]), &l); err != nil || len(l.Hits) == 0 {
			t.Fatal(err, l)
		}
		return fmt.Sprint(l.Hits[0].ID)
	}
	ok("set", "import", dir, set, "--shard", "2/3", "--codes", "4bit")
	if out := ok("set", "import", dir, set, "--segments", "3", "--codes", "4bit"); !strings.Contains(out, "150 vectors of 3 files in 3 segments") {
		t.Error(out)
	}
	best := first("--exact")
	if best == first("--among", "5,6,7") || first("--among", "5") != "5" {
		t.Error("--among is not obeyed")
	}
	ok("set", "delete", set, best, "77777")
	if first("--exact") == best || first("--warm", "all") == best {
		t.Error("a deleted vector was found")
	}
	if out := ok("set", "add", set, queries); !strings.Contains(out, "2 not in a segment yet") {
		t.Error(out)
	}
	ok("set", "merge", set, "--segments", "1")
	var st struct {
		Segments, Rows, Deleted, Delta int
	}
	if err := json.Unmarshal([]byte(ok("set", "info", set, "--json")), &st); err != nil || st.Segments != 1 || st.Rows != 151 || st.Deleted+st.Delta != 0 {
		t.Errorf("%v %+v", err, st)
	}
	if got := first("--among", "2050"); got != "2050" { // added behind the largest PMID
		t.Errorf("found %s", got)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"set", "import", "/nowhere", set}, 1, "/nowhere"},
		{[]string{"set", "import", dir, set, "--shard", "4/3"}, 2, "4/3"},
		{[]string{"set", "import", dir, set, "--codes", "2bit"}, 2, "2bit"},
		{[]string{"set", "delete", set, "abc"}, 2, "abc"},
		{[]string{"set", "search", set, filepath.Join(dir, "pmids_chunk_0.json")}, 1, "pmids_chunk_0.json"},
		{[]string{"set", "search", set, queries, "--warm", "hot"}, 2, "hot"},
		{[]string{"set", "info", dir}, 1, "set.json"},
	} {
		if r := call(t, nil, "", c.args...); r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}

// Filters of a search, and an index that is given other codes.
func TestFilteredSearch(t *testing.T) {
	env := newHome(t)
	if r := call(t, env, "", "index", "recode", "pubmed", "--codes", "1bit"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	type hit struct {
		ID, Doc, Journal string
		Year             int
	}
	find := func(args ...string) []hit {
		t.Helper()
		r := call(t, env, "", append([]string{"search", "Which vitamin is low?", "--k", "30", "--json"}, args...)...)
		var tr struct {
			Pool []hit `json:"snippets"`
		}
		if err := json.Unmarshal([]byte(r.out), &tr); r.code != 0 || err != nil {
			t.Fatalf("%+v %v", r, err)
		}
		return tr.Pool
	}
	all := find()
	if len(all) < 3 {
		t.Fatalf("%d hits", len(all))
	}
	one := all[len(all)-1]
	year := fmt.Sprint(one.Year)
	for _, args := range [][]string{{"--years", year}, {"--journal", strings.ToUpper(one.Journal)}, {"--ids", one.Doc}, {"--ids", one.ID}} {
		got := find(args...)
		if len(got) == 0 || len(got) > len(all) {
			t.Errorf("%v: %d of %d", args, len(got), len(all))
		}
		for _, h := range got {
			if args[0] == "--years" && h.Year != one.Year || args[0] == "--journal" && h.Journal != one.Journal || args[0] == "--ids" && h.Doc != one.Doc {
				t.Errorf("%v found %+v", args, h)
			}
		}
	}
	if got := find("--mesh", "No Such Descriptor"); len(got) != 0 {
		t.Errorf("found %+v", got)
	}
	for _, y := range []string{"2020-2015", "x", "-"} {
		if r := call(t, env, "", "search", "Which?", "--years", y); r.code != 2 || !strings.Contains(r.err, y) {
			t.Errorf("%s: %+v", y, r)
		}
	}
}
