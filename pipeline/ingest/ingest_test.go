package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rag2/corpusio"
	"rag2/hnsw"
	"rag2/models"
	"rag2/pipeline/home"
	"rag2/tensor"
)

// encoder is the tiny BERT; calls counts the passages it was given.
type encoder struct {
	*models.BiEncoder
	mu    sync.Mutex
	calls int
	stop  func(calls int) error
}

func (e *encoder) EncodeArticles(ctx context.Context, as []models.Article) ([][]float32, models.Report, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls += len(as)
	if e.stop != nil {
		if err := e.stop(e.calls); err != nil {
			return nil, models.Report{}, err
		}
	}
	return e.BiEncoder.EncodeArticles(ctx, as)
}

func tiny(t testing.TB) *encoder {
	t.Helper()
	e, err := tensor.Open("go", tensor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := models.OpenEncoder(e, models.EncoderSpec{QueryDir: "../../testdata/bert/tiny", QueryTokens: 16, ArticleTokens: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(); e.Close() })
	return &encoder{BiEncoder: b}
}

func pubmed(t testing.TB, name, body string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte("<PubmedArticleSet>"+body+"</PubmedArticleSet>"), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func article(id int, text string) string {
	return fmt.Sprintf("<PubmedArticle><MedlineCitation><PMID>%d</PMID><Article><ArticleTitle>Title %d</ArticleTitle><Abstract><AbstractText>%s</AbstractText></Abstract></Article></MedlineCitation></PubmedArticle>", id, id, text)
}

func add(t *testing.T, h home.Home, o AddOptions, paths ...string) *home.Manifest {
	t.Helper()
	m, err := Add(t.Context(), h, "c", paths, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAddReplacesAndDeletes(t *testing.T) {
	h := home.Home{Dir: t.TempDir()}
	m := add(t, h, AddOptions{}, pubmed(t, "a.xml", article(1, "one")+article(2, "two")+article(3, "three")+article(2, "two again")))
	if a := m.Accounting; m.Passages != 3 || a.Records != 4 || a.Indexed != 3 || a.Replaced != 1 {
		t.Errorf("first: %+v", a)
	}
	m = add(t, h, AddOptions{}, pubmed(t, "b.xml", article(3, "three anew")+article(4, "four")+"<DeleteCitation><PMID>1</PMID><PMID>999</PMID></DeleteCitation>"))
	if a := m.Accounting; m.Passages != 3 || a.Records != 6 || a.Indexed != 3 || a.Replaced != 2 || a.Deleted != 1 {
		t.Errorf("second: %+v", a)
	}
	if _, err := h.Open("c", "", ""); !errors.Is(err, home.ErrNoIndex) {
		t.Errorf("no index yet: %v", err)
	}
	e := tiny(t)
	if _, err := BuildIndex(t.Context(), h, "c", e, IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	c, err := h.Open("c", e.Fingerprint(), "")
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := e.EncodeQueries(t.Context(), []string{"three"})
	if err != nil {
		t.Fatal(err)
	}
	hits, err := c.Search(t.Context(), v[0], 10, hnsw.SearchOptions{})
	texts := ""
	for _, x := range hits {
		texts += x.Doc + "=" + x.Text + ";"
	}
	c.Close()
	if err != nil || len(hits) != 3 || !strings.Contains(texts, "3=three anew;") || strings.Contains(texts, "1=") {
		t.Errorf("%s %v", texts, err)
	}
	// A change of the corpus makes its index stale.
	add(t, h, AddOptions{}, pubmed(t, "c.xml", article(5, "five")))
	if _, err := h.Open("c", "", ""); !errors.Is(err, home.ErrNoIndex) && !errors.Is(err, home.ErrStale) {
		t.Errorf("after a change: %v", err)
	}
	m = add(t, h, AddOptions{Replace: true}, pubmed(t, "d.xml", article(9, "nine")))
	if m.Passages != 1 || m.Accounting.Records != 1 || len(m.Sources) != 1 {
		t.Errorf("replaced: %+v", m)
	}
	if _, err := Add(t.Context(), h, "c", []string{pubmed(t, "e.xml", article(1, "x"))}, AddOptions{Chunk: corpusio.ChunkOptions{Words: 64, Overlap: 8}}); err == nil || !strings.Contains(err.Error(), "windows") {
		t.Errorf("another window size: %v", err)
	}
}

// What fails leaves the corpus as it was, and nothing beside it.
func TestFailedAddChangesNothing(t *testing.T) {
	h := home.Home{Dir: t.TempDir()}
	good := pubmed(t, "a.xml", article(1, "one"))
	add(t, h, AddOptions{}, good)
	before := listing(t, h.Dir)
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	fmt.Fprint(g, "<PubmedArticleSet>"+article(2, "two")+"</PubmedArticleSet>")
	g.Close()
	cut := filepath.Join(t.TempDir(), "cut.xml.gz")
	if err := os.WriteFile(cut, z.Bytes()[:z.Len()-9], 0o644); err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.xml")
	if err := os.WriteFile(wrong, []byte("<html/>"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{cut, wrong, "/nowhere.xml", t.TempDir()} {
		if _, err := Add(t.Context(), h, "c", []string{good, p}, AddOptions{}); err == nil {
			t.Errorf("%s was accepted", p)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Add(ctx, h, "c", []string{good}, AddOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if after := listing(t, h.Dir); after != before {
		t.Errorf("the corpus changed:\n%s\n%s", before, after)
	}
	if _, err := Add(t.Context(), h, "../c", []string{good}, AddOptions{}); err == nil {
		t.Error("a name with a path was accepted")
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	out := ""
	err := filepath.Walk(dir, func(p string, st os.FileInfo, err error) error {
		if err == nil && st.Mode().IsRegular() {
			out += fmt.Sprintf("%s %d %v\n", p, st.Size(), st.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOneWriterAtATime(t *testing.T) {
	h := home.Home{Dir: t.TempDir()}
	unlock, err := h.Lock("c")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Add(t.Context(), h, "c", []string{pubmed(t, "a.xml", article(1, "one"))}, AddOptions{}); !errors.Is(err, home.ErrBusy) {
		t.Errorf("a second writer: %v", err)
	}
	unlock()
	add(t, h, AddOptions{}, pubmed(t, "a.xml", article(1, "one")))
}

// A build that stops anywhere goes on with the finished parts and gives the same files.
func TestIndexResumes(t *testing.T) {
	h := home.Home{Dir: t.TempDir()}
	var b strings.Builder
	const n = 2*partRows + 100
	for i := range n {
		b.WriteString(article(i+1, fmt.Sprintf("text %d of all with many more words than the sixteen tokens that the encoder takes at most", i)))
	}
	add(t, h, AddOptions{}, pubmed(t, "a.xml", b.String()))
	e := tiny(t)
	stopped := errors.New("stopped")
	e.stop = func(calls int) error {
		if calls > partRows+300 {
			return stopped
		}
		return nil
	}
	if _, err := BuildIndex(t.Context(), h, "c", e, IndexOptions{Graph: hnsw.BuildOptions{M: 4, EfConstruction: 8}}); !errors.Is(err, stopped) {
		t.Fatalf("the first build: %v", err)
	}
	e.calls, e.stop = 0, nil
	m, err := BuildIndex(t.Context(), h, "c", e, IndexOptions{Graph: hnsw.BuildOptions{M: 4, EfConstruction: 8}})
	if err != nil {
		t.Fatal(err)
	}
	if e.calls != n-partRows || m.Index.Rows != n || m.Index.Truncated != n {
		t.Errorf("%d passages encoded again, want %d; %+v", e.calls, n-partRows, m.Index)
	}
	dir, err := h.DataDir(m)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "parts-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The process is killed at arbitrary times while it adds; the corpus is always whole.
func TestKilledWhileAdding(t *testing.T) {
	if home := os.Getenv("RAG2_TEST_ADD"); home != "" {
		for {
			if err := addOnce(home, os.Getenv("RAG2_TEST_FILE")); err != nil {
				t.Fatal(err)
			}
		}
	}
	h := home.Home{Dir: t.TempDir()}
	var b strings.Builder
	for i := range 300 {
		b.WriteString(article(i+1, strings.Repeat("word ", 50)))
	}
	src := pubmed(t, "a.xml", b.String())
	for i := range 12 {
		c := exec.Command(os.Args[0], "-test.run=^TestKilledWhileAdding$")
		c.Env = append(os.Environ(), "RAG2_TEST_ADD="+h.Dir, "RAG2_TEST_FILE="+src)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(60+i*23) * time.Millisecond)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		m, err := h.Manifest("c")
		if errors.Is(err, home.ErrNoCorpus) {
			continue
		}
		if err != nil || m.Passages != 300 {
			t.Fatalf("kill %d: %+v %v", i, m, err)
		}
		if dir, err := h.DataDir(m); err != nil {
			t.Fatal(err)
		} else if _, err := os.Stat(filepath.Join(dir, "passages.idx")); err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
	}
	m := add(t, h, AddOptions{Replace: true}, src)
	es, err := os.ReadDir(filepath.Join(h.Dir, "corpora", "c"))
	if err != nil || len(es) != 3 { // manifest, lock, data
		t.Errorf("left behind: %v %v", es, err)
	}
	if _, err := BuildIndex(t.Context(), h, "c", tiny(t), IndexOptions{}); err != nil || m.Passages != 300 {
		t.Error(err)
	}
}

func addOnce(dir, file string) error {
	_, err := Add(context.Background(), home.Home{Dir: dir}, "c", []string{file}, AddOptions{Replace: true})
	return err
}
