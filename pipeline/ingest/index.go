package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"rag2/corpusio/store"
	"rag2/hnsw"
	"rag2/internal/atomicfile"
	"rag2/internal/npy"
	"rag2/models"
	"rag2/pipeline/home"
)

// partRows is the number of vectors encoded between two saves.
const partRows = 2048

// IndexOptions steer BuildIndex.
type IndexOptions struct {
	EncoderName string
	Graph       hnsw.BuildOptions
	Vectors     string // folder of finished vectors (see Embed) instead of encoding; "" = encode
	// Segments makes that many graphs over the files in Vectors, which stay there, instead
	// of one over a copy; 0 = one. More than eight are merged to eight at the end.
	Segments int
	// Shard builds one of the segments alone, from 1, and leaves the corpus as it is: for
	// many processes or machines. A build with Shard 0 then takes them all.
	Shard int
	// Progress reports a step ("encode", "graph") and how far it is.
	Progress func(step string, done, total int)
}

func (o IndexOptions) progress(step string) func(done, total int) {
	if o.Progress == nil {
		return nil
	}
	return func(done, total int) { o.Progress(step, done, total) }
}

// part is one saved piece of the vectors; its description is written after it.
type part struct {
	path      string
	Rows      int `json:"rows"`
	Truncated int `json:"truncated"`
	Tokens    int `json:"tokens"`
}

// BuildIndex encodes a corpus's passages and builds its graph. Vectors are saved in
// parts; a stopped build takes up the parts that were made from the same passages
// by the same encoder. A shard's build returns the manifest as it will be.
func BuildIndex(ctx context.Context, h home.Home, name string, enc models.Encoder, o IndexOptions) (*home.Manifest, error) {
	if _, err := h.Manifest(name); err != nil { // or Lock would make the folder
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Shard == 0 { // shards are built at the same time
		unlock, err := h.Lock(name)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	m, err := h.Manifest(name)
	if err != nil {
		return nil, err
	}
	dir, err := h.DataDir(m)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if s.ID() != m.StoreID {
		return nil, fmt.Errorf("%w: %s holds store %s, the manifest names %s; add the corpus again", home.ErrStale, dir, s.ID(), m.StoreID)
	}
	info := &home.IndexInfo{StoreID: s.ID(), Encoder: enc.Fingerprint(), EncoderName: o.EncoderName, Dim: enc.Dim(), Rows: s.Len()}
	var parts []part
	if o.Segments > 0 {
		m.Index = info
		return m, buildSegments(ctx, h, dir, m, o)
	}
	dtype := "<f4"
	if o.Vectors != "" {
		var v *Vectors
		if parts, v, err = chunksFor(o.Vectors, s.ID(), enc.Fingerprint(), enc.Dim()); err != nil {
			return nil, err
		}
		dtype = v.npyType()
	} else if parts, err = encodeParts(ctx, s, enc, filepath.Join(dir, "parts-"+enc.Fingerprint()), o.progress("encode")); err != nil {
		return nil, err
	}
	for _, p := range parts {
		info.Truncated += p.Truncated
	}
	if err := join(parts, filepath.Join(dir, "vectors.npy"), enc.Dim(), dtype); err != nil {
		return nil, err
	}
	if err := buildGraph(ctx, dir, o); err != nil {
		return nil, err
	}
	info.Built = time.Now().UTC().Truncate(time.Second)
	m.Index = info
	if err := h.Save(m); err != nil {
		return nil, err
	}
	return m, removeAll(dir, "", "parts-*", "segments-*")
}

// removeAll removes what matches patterns in dir, except one name.
func removeAll(dir, except string, patterns ...string) error {
	for _, p := range patterns {
		found, err := filepath.Glob(filepath.Join(dir, p))
		if err != nil {
			return err
		}
		for _, f := range found {
			if filepath.Base(f) == except {
				continue
			}
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// encodeParts encodes a whole store in parts that stay in folder.
func encodeParts(ctx context.Context, s *store.Store, enc models.Encoder, folder string, progress func(done, total int)) (parts []part, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	for from := 0; from < s.Len(); from += partRows {
		p := part{path: filepath.Join(folder, fmt.Sprintf("%08d", from/partRows)), Rows: min(partRows, s.Len()-from)}
		if !p.done(enc.Dim()) {
			if err := p.encode(ctx, s, enc, from, progress); err != nil {
				return nil, err
			}
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// BuildGraph builds the graph of a corpus anew from the vectors that it has.
func BuildGraph(ctx context.Context, h home.Home, name string, o IndexOptions) error {
	m, err := h.Manifest(name)
	if err != nil {
		return err
	}
	if m.Index == nil {
		return fmt.Errorf("%w: %q", home.ErrNoIndex, name)
	}
	unlock, err := h.Lock(name)
	if err != nil {
		return err
	}
	defer unlock()
	dir, err := h.DataDir(m)
	if err != nil {
		return err
	}
	return buildGraph(ctx, dir, o)
}

func buildGraph(ctx context.Context, dir string, o IndexOptions) error {
	g := o.Graph
	g.Progress = o.progress("graph")
	return hnsw.Build(ctx, filepath.Join(dir, "vectors.npy"), filepath.Join(dir, "graph.hnsw"), g)
}

// done says whether the part was finished by an earlier build, and reads what it noted.
func (p *part) done(dim int) bool {
	b, err := os.ReadFile(p.path + ".json")
	if err != nil {
		return false
	}
	old := part{}
	if json.Unmarshal(b, &old) != nil || old.Rows != p.Rows {
		return false
	}
	a, err := npy.Open(p.path + ".npy")
	if err != nil {
		return false
	}
	defer a.Close()
	p.Truncated, p.Tokens = old.Truncated, old.Tokens
	return a.Rows() == p.Rows && a.Cols() == dim
}

// encode makes the part that begins at row from.
func (p *part) encode(ctx context.Context, s *store.Store, enc models.Encoder, from int, progress func(done, total int)) error {
	w, err := npy.NewWriter(p.path+".npy", enc.Dim(), "<f4")
	if err != nil {
		return err
	}
	defer w.Abort()
	const batch = 512 // sorted by length together
	for at := from; at < from+p.Rows; at += batch {
		var arts []models.Article
		for i := at; i < min(at+batch, from+p.Rows); i++ {
			x, err := s.Get(i)
			if err != nil {
				return err
			}
			arts = append(arts, models.Article{Title: x.Title, Body: x.Text})
		}
		vecs, rep, err := enc.EncodeArticles(ctx, arts)
		if err != nil {
			return fmt.Errorf("passages %d to %d: %w", at, at+len(arts)-1, err)
		}
		p.Truncated, p.Tokens = p.Truncated+rep.Truncated, p.Tokens+rep.Tokens
		for _, v := range vecs {
			if err := w.WriteRow(v); err != nil {
				return err
			}
		}
		if progress != nil {
			progress(at+len(arts), s.Len())
		}
	}
	if err := w.Commit(); err != nil {
		return err
	}
	return p.finish()
}

// finish writes the description that makes a part count.
func (p *part) finish() error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(p.path+".json", b)
}

// join writes the parts' rows as one array.
func join(parts []part, path string, dim int, dtype string) error {
	w, err := npy.NewWriter(path, dim, dtype)
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, p := range parts {
		if err := appendPart(w, p.path+".npy"); err != nil {
			return err
		}
	}
	return w.Commit()
}

func appendPart(w *npy.Writer, path string) error {
	a, err := npy.Open(path)
	if err != nil {
		return err
	}
	defer a.Close()
	for i := range a.Rows() {
		row := a.Row32(i, nil)
		for _, v := range row {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("%s: row %d holds %v; delete the file and build again", path, i, v)
			}
		}
		if err := w.WriteRow(row); err != nil {
			return err
		}
	}
	return nil
}
