// Package home is rag2's data directory:
//
//	<home>/corpora/<name>/manifest.json             what the corpus is made of; written last
//	                      lock                      held by the process that changes the corpus
//	                      g-<id>/passages.jsonl.zst the passages (package store)
//	                             passages.idx
//	                             vectors.npy        row i is the vector of passage i
//	                             graph.hnsw         (package hnsw)
//
// Every change of the passages makes a new g- folder, and the manifest that names it
// is renamed into place last: a process that dies leaves the corpus as it was. The
// manifest also names the passage store and the encoder that its vectors were made
// for; Open refuses files that do not belong together.
package home

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"rag2/corpusio"
	"rag2/corpusio/store"
	"rag2/hnsw"
	"rag2/internal/atomicfile"

	"github.com/gofrs/flock"
)

// Errors of looking for a corpus.
var (
	ErrNoCorpus = errors.New("no such corpus")
	ErrNoIndex  = errors.New("corpus has no index")
	ErrStale    = errors.New("index does not belong to the corpus")
)

// Accounting closes over the input: Records = Indexed + Replaced + Deleted, and
// every other element is in Skipped.
type Accounting struct {
	Records  int            `json:"records"`  // records that readers gave
	Indexed  int            `json:"indexed"`  // records whose passages are in the store
	Replaced int            `json:"replaced"` // superseded by a later record of the same id
	Deleted  int            `json:"deleted"`  // removed by a later deletion
	Skipped  map[string]int `json:"skipped"`  // elements that gave no record, by reason
	Passages int            `json:"passages"`
}

// IndexInfo describes vectors and graph.
type IndexInfo struct {
	StoreID     string    `json:"store_id"`
	Encoder     string    `json:"encoder"` // fingerprint
	EncoderName string    `json:"encoder_name"`
	Dim         int       `json:"dim"`
	Rows        int       `json:"rows"`
	Truncated   int       `json:"truncated"` // passages cut at the encoder's limit
	Built       time.Time `json:"built"`
	// Segments is the folder of a set of segments over vectors that stay where they are,
	// instead of one graph; "" for one graph.
	Segments string `json:"segments,omitempty"`
}

// Manifest describes a corpus.
type Manifest struct {
	Version    int                   `json:"version"`
	Name       string                `json:"name"`
	Formats    []string              `json:"formats"`
	Sources    []string              `json:"sources"`
	Chunk      corpusio.ChunkOptions `json:"chunk"`
	Data       string                `json:"data"` // folder of passages, vectors and graph
	StoreID    string                `json:"store_id"`
	Passages   int                   `json:"passages"`
	Accounting Accounting            `json:"accounting"`
	Changed    time.Time             `json:"changed"`
	Index      *IndexInfo            `json:"index,omitempty"`
}

// Home is a data directory.
type Home struct{ Dir string }

var reName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// CorpusDir is the directory of a corpus; a name is lower-case letters, digits, _ and -.
func (h Home) CorpusDir(name string) (string, error) {
	if !reName.MatchString(name) {
		return "", fmt.Errorf("corpus name %q: lower-case letters, digits, - and _ only", name)
	}
	return filepath.Join(h.Dir, "corpora", name), nil
}

// Names lists the corpora, sorted.
func (h Home) Names() ([]string, error) {
	es, err := os.ReadDir(filepath.Join(h.Dir, "corpora"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range es {
		if _, err := os.Stat(filepath.Join(h.Dir, "corpora", e.Name(), "manifest.json")); err == nil {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// DataDir is the folder that a manifest names.
func (h Home) DataDir(m *Manifest) (string, error) {
	dir, err := h.CorpusDir(m.Name)
	if err != nil {
		return "", err
	}
	if !reData.MatchString(m.Data) {
		return "", fmt.Errorf("%s/manifest.json: folder %q: %w", dir, m.Data, ErrStale)
	}
	return filepath.Join(dir, m.Data), nil
}

// reData is the name of a data folder.
var reData = regexp.MustCompile(`^g-[0-9a-f]{16}$`)

// NewData names a data folder that does not exist yet.
func NewData() string { return fmt.Sprintf("g-%016x", rand.Uint64()) }

// Prune removes what dead processes left in a corpus's folder: data that its manifest
// does not name, spools, half-written manifests. The caller holds the lock.
func (h Home) Prune(m *Manifest) error {
	dir, err := h.CorpusDir(m.Name)
	if err != nil {
		return err
	}
	es, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		n := e.Name()
		if e.IsDir() && n != m.Data && (reData.MatchString(n) || strings.HasPrefix(n, "spool-")) || strings.HasPrefix(n, "manifest.json.") {
			if err := os.RemoveAll(filepath.Join(dir, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// ErrBusy reports a corpus that another process is changing.
var ErrBusy = errors.New("corpus is being changed by another process")

// Lock takes the right to change a corpus, making its folder if need be; readers need
// none. The right ends with unlock, or with the process.
func (h Home) Lock(name string) (unlock func(), err error) {
	dir, err := h.CorpusDir(name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l := flock.New(filepath.Join(dir, "lock"))
	ok, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("corpus %s: %w", name, err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrBusy, name)
	}
	return func() { _ = l.Unlock() }, nil
}

// Manifest reads a corpus's manifest.
func (h Home) Manifest(name string) (*Manifest, error) {
	dir, err := h.CorpusDir(name)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if errors.Is(err, os.ErrNotExist) {
		names, _ := h.Names()
		return nil, fmt.Errorf("%w: %q is not among %v in %s; `rag2 corpus add` makes one", ErrNoCorpus, name, names, h.Dir)
	}
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%s/manifest.json: %w", dir, err)
	}
	if m.Version != 1 {
		return nil, fmt.Errorf("%s/manifest.json: version %d, this program reads 1", dir, m.Version)
	}
	return m, nil
}

// Save writes a manifest.
func (h Home) Save(m *Manifest) error {
	dir, err := h.CorpusDir(m.Name)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, "manifest.json"), append(b, '\n'))
}

// Hit is a passage found by a search.
type Hit struct {
	corpusio.Passage
	Score float32 `json:"score"` // inner product of query and passage vectors
}

// Corpus is an open corpus with its index.
type Corpus struct {
	Manifest *Manifest
	Store    *store.Store
	Index    *hnsw.Index // nil when the index is in segments
	Segments *hnsw.Set   // nil when it is not
	filtered filtered
}

// Open opens a corpus and its index. encoder is the fingerprint that queries will
// be made with; "" does not compare. warm is what of the index is read ahead, as
// hnsw.OpenOptions says; "" is nothing.
func (h Home) Open(name, encoder, warm string) (*Corpus, error) {
	m, err := h.Manifest(name)
	if err != nil {
		return nil, err
	}
	if m.Index == nil {
		return nil, fmt.Errorf("%w: %q; run `rag2 index build %s`", ErrNoIndex, name, name)
	}
	if m.Index.StoreID != m.StoreID {
		return nil, fmt.Errorf("%w: %q changed after its index was built; run `rag2 index build %s`", ErrStale, name, name)
	}
	if encoder != "" && m.Index.Encoder != encoder {
		return nil, fmt.Errorf("%w: %q was encoded by %s (%s), queries by another model (%s); choose that encoder or rebuild", ErrStale, name, m.Index.EncoderName, m.Index.Encoder, encoder)
	}
	dir, err := h.DataDir(m)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	if s.ID() != m.StoreID || s.Len() != m.Index.Rows {
		s.Close()
		return nil, fmt.Errorf("%w: %s holds store %s with %d passages, the manifest names %s with %d", ErrStale, dir, s.ID(), s.Len(), m.StoreID, m.Index.Rows)
	}
	c := &Corpus{Manifest: m, Store: s}
	n := 0
	if m.Index.Segments != "" {
		if c.Segments, err = hnsw.OpenSet(filepath.Join(dir, m.Index.Segments), hnsw.OpenOptions{Warm: warm}); err == nil {
			n = c.Segments.Len()
		}
	} else if c.Index, err = hnsw.OpenWith(filepath.Join(dir, "graph.hnsw"), hnsw.OpenOptions{Vectors: []string{filepath.Join(dir, "vectors.npy")}, Warm: warm}); err == nil {
		n = c.Index.Len()
	}
	if err == nil && n != s.Len() {
		err = fmt.Errorf("%w: %d vectors for %d passages in %s", ErrStale, n, s.Len(), dir)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Indexes are the corpus's graphs: one, or those of its segments.
func (c *Corpus) Indexes() []*hnsw.Index {
	if c.Segments != nil {
		return c.Segments.Indexes()
	}
	return []*hnsw.Index{c.Index}
}

// Graphs are the files of a corpus's graphs, which need not be whole, and the vectors
// of a single one.
func (h Home) Graphs(m *Manifest) (graphs, vectors []string, err error) {
	dir, err := h.DataDir(m)
	if err != nil {
		return nil, nil, err
	}
	if m.Index != nil && m.Index.Segments != "" {
		graphs, err = hnsw.SegmentPaths(filepath.Join(dir, m.Index.Segments))
		return graphs, nil, err
	}
	return []string{filepath.Join(dir, "graph.hnsw")}, []string{filepath.Join(dir, "vectors.npy")}, nil
}

// Name is the corpus's name.
func (c *Corpus) Name() string { return c.Manifest.Name }

// Search finds the k passages with the largest inner product, best first.
func (c *Corpus) Search(ctx context.Context, q []float32, k int, o hnsw.SearchOptions) ([]Hit, error) {
	search := c.Index.Search
	if c.Segments != nil {
		search = c.Segments.SearchRows
	}
	rows, _, err := search(ctx, q, k, o)
	if err != nil {
		return nil, fmt.Errorf("corpus %s: %w", c.Name(), err)
	}
	out := make([]Hit, len(rows))
	for i, r := range rows {
		p, err := c.Store.Get(r.Row)
		if err != nil {
			return nil, fmt.Errorf("corpus %s: %w", c.Name(), err)
		}
		out[i] = Hit{p, r.Score}
	}
	return out, nil
}

// Close closes store and index.
func (c *Corpus) Close() error {
	err := c.Store.Close()
	if c.Index != nil {
		err = errors.Join(err, c.Index.Close())
	}
	if c.Segments != nil {
		err = errors.Join(err, c.Segments.Close())
	}
	return err
}
