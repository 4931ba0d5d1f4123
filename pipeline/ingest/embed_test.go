package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"rag2/hnsw"
	"rag2/internal/npy"
	"rag2/pipeline/home"
)

// embedFiles reads the vectors of a folder by file name.
func embedFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	paths, err := filepath.Glob(filepath.Join(dir, "*.npy"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(p)] = b
	}
	return out
}

func sameFiles(t *testing.T, what string, got, want map[string][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d files, want %d", what, len(got), len(want))
	}
	for n, b := range want {
		if !bytes.Equal(got[n], b) {
			t.Errorf("%s: %s differs", what, n)
		}
	}
}

// However embedding is cut up and wherever it is killed, the same files come out, and they are
// what indexes and imports take.
func TestEmbed(t *testing.T) {
	if dir := os.Getenv("RAG2_TEST_EMBED"); dir != "" {
		if _, err := Embed(t.Context(), home.Home{Dir: os.Getenv("RAG2_TEST_HOME")}, "c", dir, tiny(t), EmbedOptions{ChunkRows: 300}); err != nil {
			t.Fatal(err)
		}
		return
	}
	h := home.Home{Dir: t.TempDir()}
	var b strings.Builder
	const n = 1000
	for i := range n {
		b.WriteString(article(i+1, fmt.Sprintf("text %d %s", i, strings.Repeat("word ", i%40))))
	}
	add(t, h, AddOptions{}, pubmed(t, "a.xml", b.String()))
	e := tiny(t)
	whole := t.TempDir()
	var last [3]int
	r, err := Embed(t.Context(), h, "c", whole, e, EmbedOptions{ChunkRows: 300, Progress: func(done, total, tokens int) { last = [3]int{done, total, tokens} }})
	if err != nil || !r.Complete || r.Present != n || r.Encoded != n || r.Files != 4 || r.Tokens == 0 || last != [3]int{n, n, r.Tokens} {
		t.Fatalf("%+v %v %v", r, last, err)
	}
	want := embedFiles(t, whole)

	t.Run("again", func(t *testing.T) {
		r, err := Embed(t.Context(), h, "c", whole, e, EmbedOptions{ChunkRows: 300})
		if err != nil || r.Reused != 4 || r.Encoded != 0 || !r.Complete {
			t.Errorf("%+v %v", r, err)
		}
	})
	t.Run("shards", func(t *testing.T) {
		dir := t.TempDir()
		for i := 3; i > 0; i-- {
			r, err := Embed(t.Context(), h, "c", dir, e, EmbedOptions{ChunkRows: 300, Shard: i, Shards: 3})
			if err != nil || r.Complete != (i == 1) {
				t.Fatalf("%d: %+v %v", i, r, err)
			}
		}
		sameFiles(t, "shards", embedFiles(t, dir), want)
		// A file that was cut is made again, and only it.
		if err := os.Truncate(filepath.Join(dir, "embeds_chunk_2.npy"), 1000); err != nil {
			t.Fatal(err)
		}
		if _, err := BuildIndex(t.Context(), h, "c", e, IndexOptions{Vectors: dir}); !errors.Is(err, ErrVectors) || !strings.Contains(err.Error(), "embeds_chunk_2") {
			t.Errorf("a file is cut: %v", err)
		}
		if r, err := Embed(t.Context(), h, "c", dir, e, EmbedOptions{ChunkRows: 300}); err != nil || r.Encoded != 300 || !r.Complete {
			t.Errorf("%+v %v", r, err)
		}
		sameFiles(t, "mended", embedFiles(t, dir), want)
	})
	t.Run("killed", func(t *testing.T) {
		dir := t.TempDir()
		kills := 0
		for i := 0; ; i++ {
			c := exec.Command(os.Args[0], "-test.run=^TestEmbed$")
			c.Env = append(os.Environ(), "RAG2_TEST_EMBED="+dir, "RAG2_TEST_HOME="+h.Dir)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(time.Duration(100+40*i)*time.Millisecond, func() { _ = c.Process.Kill() })
			err := c.Wait()
			timer.Stop()
			if err == nil {
				break
			}
			kills++
			if i > 200 {
				t.Fatal("it never ends")
			}
		}
		sameFiles(t, fmt.Sprintf("killed %d times", kills), embedFiles(t, dir), want)
	})
	t.Run("index", func(t *testing.T) {
		index := func(o IndexOptions) []byte {
			o.Graph = hnsw.BuildOptions{M: 4, EfConstruction: 8}
			m, err := BuildIndex(t.Context(), h, "c", e, o)
			if err != nil {
				t.Fatal(err)
			}
			dir, err := h.DataDir(m)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(dir, "vectors.npy"))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		e.calls = 0
		a := index(IndexOptions{Vectors: whole})
		if e.calls != 0 {
			t.Errorf("%d passages were encoded", e.calls)
		}
		if !bytes.Equal(a, index(IndexOptions{})) {
			t.Error("vectors of embed and of index build differ")
		}
		cs, err := hnsw.FindEmbeddings(t.Context(), whole, "")
		if err != nil || len(cs) != 4 || cs[3].Rows != 100 || cs[0].Dim != e.Dim() {
			t.Errorf("%+v %v", cs, err)
		}
		if r, err := hnsw.Import(t.Context(), whole, filepath.Join(t.TempDir(), "set"), hnsw.ImportOptions{Build: hnsw.BuildOptions{M: 4, EfConstruction: 8}}); err != nil || r.Rows != n {
			t.Errorf("import: %+v %v", r, err)
		}
	})
	t.Run("segments", func(t *testing.T) { segments(t, h, e, n) })
	t.Run("f16", func(t *testing.T) {
		dir := t.TempDir()
		if _, err := Embed(t.Context(), h, "c", dir, e, EmbedOptions{DType: "f16"}); err != nil {
			t.Fatal(err)
		}
		a, err := npy.Open(filepath.Join(dir, "embeds_chunk_0.npy"))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if a.DType != "<f2" || a.Rows() != n {
			t.Errorf("%s, %d rows", a.DType, a.Rows())
		}
		if _, err := BuildIndex(t.Context(), h, "c", e, IndexOptions{Vectors: dir, Graph: hnsw.BuildOptions{M: 4, EfConstruction: 8}}); err != nil {
			t.Error(err)
		}
	})
	t.Run("other", func(t *testing.T) {
		for _, o := range []EmbedOptions{{ChunkRows: 200}, {ChunkRows: 300, DType: "f16"}} {
			if _, err := Embed(t.Context(), h, "c", whole, e, o); !errors.Is(err, ErrVectors) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		for _, o := range []EmbedOptions{{DType: "f8"}, {Shard: 3, Shards: 2}, {Shards: 2}, {ChunkRows: -1}} {
			if _, err := Embed(t.Context(), h, "c", t.TempDir(), e, o); err == nil {
				t.Errorf("%+v was accepted", o)
			}
		}
		add(t, h, AddOptions{}, pubmed(t, "b.xml", article(1, "new")))
		if _, err := Embed(t.Context(), h, "c", whole, e, EmbedOptions{ChunkRows: 300}); !errors.Is(err, ErrVectors) {
			t.Errorf("other passages: %v", err)
		}
		if _, err := BuildIndex(t.Context(), h, "c", e, IndexOptions{Vectors: whole}); !errors.Is(err, ErrVectors) {
			t.Errorf("index of other passages: %v", err)
		}
	})
}

// segments builds a corpus of n passages as jobs of an array do, one of which is killed
// at once, and compares what searches find with the single graph.
func segments(t *testing.T, h home.Home, e *encoder, n int) {
	dir := t.TempDir()
	if _, err := Embed(t.Context(), h, "c", dir, e, EmbedOptions{ChunkRows: 100}); err != nil {
		t.Fatal(err)
	}
	g := hnsw.BuildOptions{M: 4, EfConstruction: 20, Codes: hnsw.FourBit}
	build := func(o IndexOptions) (*home.Manifest, error) {
		o.Vectors, o.Graph = dir, g
		return BuildIndex(t.Context(), h, "c", e, o)
	}
	if _, err := build(IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	queries, _, err := e.EncodeQueries(t.Context(), []string{"one", "another thing", "words of a third"})
	if err != nil {
		t.Fatal(err)
	}
	search := func(o hnsw.SearchOptions) (out [][]home.Hit) {
		t.Helper()
		c, err := h.Open("c", "", "all")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, x := range c.Indexes() {
			if err := x.Verify(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for _, q := range queries {
			hits, err := c.Search(t.Context(), q, 5, o)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, hits)
		}
		return out
	}
	odd := hnsw.NewRowSet()
	for i := 1; i < n; i += 2 {
		odd.Add(i)
	}
	ways := []hnsw.SearchOptions{{Exact: true}, {Ef: n}, {Allow: odd}}
	var want [][][]home.Hit
	for _, o := range ways {
		want = append(want, search(o))
	}
	for _, o := range []IndexOptions{{Shard: 1}, {Shard: 4, Segments: 3}, {Segments: -1}} {
		if _, err := build(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := build(IndexOptions{Segments: 11}); !errors.Is(err, ErrVectors) {
		t.Errorf("more segments than files: %v", err)
	}
	if err := (IndexOptions{Segments: 2}).Validate(); err == nil {
		t.Error("segments without vectors were accepted")
	}
	for _, k := range []int{3, 10} { // ten are merged to eight
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := BuildIndex(ctx, h, "c", e, IndexOptions{Vectors: dir, Graph: g, Segments: k, Shard: 2}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		var wg sync.WaitGroup
		for i := range k - 1 { // the last one is left to the build of all
			wg.Go(func() {
				if _, err := build(IndexOptions{Segments: k, Shard: i + 1}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for range 2 { // again: nothing is added twice
			m, err := build(IndexOptions{Segments: k})
			if err != nil {
				t.Fatal(err)
			}
			c, err := h.Open("c", "", "")
			if err != nil {
				t.Fatal(err)
			}
			if got := len(c.Indexes()); got != min(k, 8) || c.Segments.Len() != n || m.Index.Rows != n {
				t.Errorf("%d segments of %d vectors", got, c.Segments.Len())
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			for i, o := range ways {
				if got := search(o); !reflect.DeepEqual(got, want[i]) {
					t.Errorf("%d segments, %+v: other hits than of one graph", k, o)
				}
			}
		}
		m, _ := h.Manifest("c")
		data, _ := h.DataDir(m)
		left, _ := filepath.Glob(filepath.Join(data, "segments-*"))
		old, _ := filepath.Glob(filepath.Join(data, "*.npy"))
		if len(left) != 1 || len(old) != 0 {
			t.Errorf("left over: %v %v", left, old)
		}
	}
	if _, err := build(IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := search(ways[0]); !reflect.DeepEqual(got, want[0]) {
		t.Error("one graph again: other hits")
	}
}
