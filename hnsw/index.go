package hnsw

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"rag2/internal/mmapfile"
)

// Info describes an index.
type Info struct {
	N              int     `json:"n"`
	Dim            int     `json:"dim"`
	Metric         string  `json:"metric"`
	Codes          string  `json:"codes"`
	M              int     `json:"m"`
	EfConstruction int     `json:"ef_construction"`
	Seed           uint64  `json:"seed"`
	FullPrecision  bool    `json:"full_precision"` // the graph was built from the vectors, not from 8-bit codes
	Entry          int     `json:"entry"`
	TopLevel       int     `json:"top_level"`
	Uppers         int     `json:"nodes_above_level_0"`
	Duplicates     int     `json:"duplicates"`
	MaxNorm        float32 `json:"max_norm"`
	Contents       string  `json:"contents"` // SHA-256 that names the vectors' content
	Rounds         int     `json:"rounds"`
	Bytes          int     `json:"bytes"`
	GraphBytes     int     `json:"graph_bytes"`
	CodeBytes      int     `json:"code_bytes"`
	VectorBytes    int     `json:"vector_bytes"` // of the .npy files
	Shards         []Shard `json:"shards"`
}

// Index is an open index with its vectors.
type Index struct {
	path   string
	f      *mmapfile.File
	c      *container
	p      params
	shards []Shard
	v      *vectors
	g      *graph
	walkT  *table // what the walk reads
	full   *table // the vectors
	dups   []uint32
	norms  []float32
	set    Settings
	cold   bool
	pool   sync.Pool
	own    [][]byte // anonymous memory of Resident sections
}

// OpenOptions steer Open.
type OpenOptions struct {
	// Vectors replace the recorded places of the .npy files.
	Vectors []string
	// Warm reads sections ahead: none, graph, codes, all ("" = none).
	Warm string
	// Resident copies graph and codes (without codes: the vectors, when they are one
	// file) into memory of huge pages, which makes a walk faster, instead of reading
	// them through the page cache.
	Resident bool
	// Cold asks the kernel for all vectors that will be rescored before the first is
	// read, so that a disk serves them together, and for those that a scan comes to next.
	// It helps when vectors are not in the page cache, and costs a system call for each,
	// or for a megabyte scanned, otherwise.
	Cold bool
}

// Validate lists everything that is wrong with the options.
func (o OpenOptions) Validate() error {
	switch o.Warm {
	case "", "none", "graph", "codes", "all":
		return nil
	}
	return fmt.Errorf("warm %q; one of none, graph, codes, all", o.Warm)
}

// Open maps an index and its vectors and checks in constant time that the files are
// whole and belong together. Without npyPaths the vectors are looked for where they
// were when the index was built, relative to it.
func Open(path string, npyPaths ...string) (*Index, error) {
	return OpenWith(path, OpenOptions{Vectors: npyPaths})
}

// OpenWith is Open with options.
func OpenWith(path string, o OpenOptions) (*Index, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f, c, err := mapContainer(path, magic)
	if err != nil {
		return nil, err
	}
	x := &Index{path: path, f: f, c: c, set: Settings{}}
	x.pool.New = func() any { return &searcher{} }
	err = guarded(x.check)
	if err == nil {
		err = x.attach(o.Vectors)
	}
	if err == nil {
		err = x.loadSettings()
	}
	if err == nil {
		err = x.place(o)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// check reads the header's sections and views the others.
func (x *Index) check() (err error) {
	if x.p, err = parseParams(x.c); err != nil {
		return err
	}
	if x.shards, err = parseShards(x.c, &x.p); err != nil {
		return err
	}
	if x.g, err = graphSections(x.c, &x.p); err != nil {
		return err
	}
	d, err := x.c.need("DUPS", 8*int64(x.p.dups))
	if err != nil {
		return err
	}
	x.dups = asU32(d.data)
	if x.p.metric != InnerProduct {
		s, err := x.c.need("NORM", 4*int64(x.p.n))
		if err != nil {
			return err
		}
		x.norms = asF32(s.data)
	}
	if _, err = x.c.need("MEAN", 4*int64(x.p.dim)); err != nil {
		return err
	}
	if x.p.codes != NoCodes {
		_, err = x.c.need("CODE", int64(codeStride(x.p.codes, x.p.dim))*int64(x.p.n))
	}
	if err == nil && x.p.codes == Principal {
		_, err = x.c.need("PROJ", 4*int64(codeWidth(Principal, x.p.dim))*int64(x.p.dim))
	}
	return err
}

// attach opens the vectors and compares them with the record.
func (x *Index) attach(paths []string) (err error) {
	if len(paths) == 0 {
		for _, s := range x.shards {
			paths = append(paths, shardPath(x.path, s))
		}
	}
	if len(paths) != len(x.shards) {
		return fmt.Errorf("%s: %d vector files given, the index was built from %d", x.path, len(paths), len(x.shards))
	}
	if x.v, err = openVectors(paths); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: its vectors: %w", x.path, err)
		}
		return err
	}
	s := x.c.part("SHRD")
	for i, r := range x.shards {
		h := &x.v.shards[i]
		bad := func(format string, a ...any) error {
			return x.c.bad("SHRD", s.off, "%s: %s", h.path, fmt.Sprintf(format, a...))
		}
		if h.rows != r.Rows || h.a.Cols() != x.p.dim || h.a.DType != r.DType {
			return bad("the index is of %d × %d %s, the file holds %d × %d %s", r.Rows, x.p.dim, r.DType, h.rows, h.a.Cols(), h.a.DType)
		}
		err := guarded(func() error {
			if h.edges() != r.Edges {
				return bad("holds other vectors than the index was built from")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// place makes the tables of the walk, moves sections into memory and warms them.
func (x *Index) place(o OpenOptions) error {
	x.cold, x.v.cold = o.Cold && x.p.codes != NoCodes, o.Cold
	x.full = vectorTable(x.v, x.p.metric, x.norms)
	x.walkT = x.full
	var codes []byte
	if x.p.codes != NoCodes {
		codes = x.c.part("CODE").data
	}
	if o.Resident {
		err := guarded(func() error {
			var err error
			if x.g.level0, err = x.residentU32(x.g.level0); err != nil {
				return err
			}
			if codes, err = x.resident(codes); err != nil || x.p.codes != NoCodes {
				return err
			}
			return x.full.toMemory(x)
		})
		if err != nil {
			return err
		}
	} else {
		x.warm(o.Warm)
	}
	if codes != nil {
		// Read by every search, and small: kept where pressure does not drop them.
		var mean, proj []float32
		err := guarded(func() error {
			mean = slices.Clone(asF32(x.c.part("MEAN").data))
			if p := x.c.part("PROJ"); x.p.codes == Principal {
				proj = slices.Clone(asF32(p.data))
			}
			return nil
		})
		if err != nil {
			return err
		}
		x.walkT = codeTable(newCoder(x.p.codes, x.p.metric, mean, x.p.seed, proj), codes)
	}
	return nil
}

// Path is the index file.
func (x *Index) Path() string { return x.path }

// Len is the number of vectors.
func (x *Index) Len() int { return x.p.n }

// Dim is their dimension.
func (x *Index) Dim() int { return x.p.dim }

// Info describes the index.
func (x *Index) Info() Info {
	p := x.p
	i := Info{N: p.n, Dim: p.dim, Metric: p.metric.String(), Codes: p.codes.String(), M: p.m, EfConstruction: p.efc, Seed: p.seed, FullPrecision: p.full,
		Entry: int(p.entryRow), TopLevel: p.top, Uppers: p.uppers, Duplicates: p.dups, MaxNorm: p.maxNorm, Contents: hex.EncodeToString(p.contents[:]),
		Rounds: p.round, Bytes: x.f.Len(), Shards: x.shards}
	i.GraphBytes = 4 * (len(x.g.level0) + len(x.g.upRow) + len(x.g.upFirst) + len(x.g.upLists))
	if s := x.c.part("CODE"); s != nil {
		i.CodeBytes = int(s.len)
	}
	for _, s := range x.shards {
		i.VectorBytes += int(s.Size)
	}
	return i
}

// Close unmaps index and vectors. No search may be running.
func (x *Index) Close() error {
	var err error
	if x.f != nil {
		err = x.f.Close()
	}
	if x.v != nil {
		err = errors.Join(err, x.v.close())
	}
	for _, b := range x.own {
		err = errors.Join(err, freeMemory(b))
	}
	x.own = nil
	return err
}

// Dir is the index's folder.
func (x *Index) Dir() string { return filepath.Dir(x.path) }

// Exact is Search with the Exact option over many queries at once: rows are read
// once for the whole batch.
func (x *Index) Exact(ctx context.Context, qs [][]float32, k, workers int) ([][]Hit, error) {
	return x.v.exact(ctx, x.p.metric, x.norms, qs, k, nil, max(workers, 1))
}
