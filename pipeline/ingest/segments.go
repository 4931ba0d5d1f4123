package ingest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rag2/hnsw"
	"rag2/pipeline/home"
)

// mostSegments remain after a build; every one is searched for every query.
const mostSegments = 8

// Validate lists everything that is wrong with the options.
func (o IndexOptions) Validate() error {
	var errs []error
	if o.Segments < 0 || o.Shard < 0 || o.Shard > o.Segments {
		errs = append(errs, fmt.Errorf("shard %d of %d segments; shards are 1 … n", o.Shard, o.Segments))
	}
	if o.Segments > 0 && o.Vectors == "" {
		errs = append(errs, errors.New("segments are made of the files that `rag2 embed` wrote, and leave them where they are: name their folder"))
	}
	return errors.Join(errs...)
}

// buildSegments builds one or all of the segments of m.Index over the files of
// o.Vectors. The folder's name is made of all that shapes a segment, so that shards
// of other vectors or options never mix.
func buildSegments(ctx context.Context, h home.Home, dir string, m *home.Manifest, o IndexOptions) error {
	parts, v, err := chunksFor(o.Vectors, m.Index.StoreID, m.Index.Encoder, m.Index.Dim)
	if err != nil {
		return err
	}
	if len(parts) < o.Segments {
		return fmt.Errorf("%w: %s holds %d files for %d segments; fewer segments, or embed with fewer rows a file", ErrVectors, o.Vectors, len(parts), o.Segments)
	}
	for _, p := range parts {
		m.Index.Truncated += p.Truncated
	}
	vectors, err := filepath.Abs(o.Vectors)
	if err != nil {
		return err
	}
	g := o.Graph
	shape := sha256.Sum256(fmt.Appendf(nil, "%s %+v %d %v %d %d", vectors, *v, o.Segments, g.Codes, g.M, g.EfConstruction))
	m.Index.Segments = fmt.Sprintf("segments-%x", shape[:8])
	out := filepath.Join(dir, m.Index.Segments)
	io := hnsw.ImportOptions{Segments: o.Segments, Unit: o.Shard, Build: g}
	if o.Progress != nil {
		io.Progress = func(i, n, done, total int) { o.Progress(fmt.Sprintf("segment %d of %d", i+1, n), done, total) }
	}
	if _, err := hnsw.Import(ctx, vectors, out, io); err != nil || o.Shard > 0 {
		return err
	}
	if err := mergeSegments(ctx, out, o); err != nil {
		return err
	}
	m.Index.Built = time.Now().UTC().Truncate(time.Second)
	if err := h.Save(m); err != nil {
		return err
	}
	return removeAll(dir, m.Index.Segments, "parts-*", "segments-*", "graph.hnsw*", "vectors.npy")
}

func mergeSegments(ctx context.Context, set string, o IndexOptions) error {
	s, err := hnsw.OpenSet(set, hnsw.OpenOptions{})
	if err != nil {
		return err
	}
	g := o.Graph
	g.Progress = o.progress("merge")
	replaced, err := s.Merge(ctx, hnsw.MergeOptions{Segments: mostSegments, Build: g})
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	for _, p := range replaced {
		if err := os.Remove(p); err != nil {
			return err
		}
	}
	return nil
}
