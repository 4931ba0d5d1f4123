// Package ingest makes corpora: source files → records → passages → vectors →
// index. Both steps can be stopped at any time: Add leaves the corpus as it was,
// and BuildIndex goes on where it stopped.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rag2/corpusio"
	"rag2/corpusio/reader"
	"rag2/corpusio/store"
	"rag2/pipeline/home"
)

// AddOptions steer Add.
type AddOptions struct {
	Format   string                // "" or "auto": by content
	Chunk    corpusio.ChunkOptions // must equal the corpus's own when it exists
	Replace  bool                  // drop what the corpus held
	OnSkip   func(corpusio.Skip)   // told of every skipped element
	Progress func(file string, bytes int64, records int)
}

// Add reads paths into a corpus. Into an existing corpus it appends; a record whose
// id is there already replaces it, and a later deletion removes it. The index must
// be built anew afterwards.
func Add(ctx context.Context, h home.Home, name string, paths []string, o AddOptions) (*home.Manifest, error) {
	dir, err := h.CorpusDir(name)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no source files given")
	}
	chunk, err := o.Chunk.Defaults()
	if err != nil {
		return nil, err
	}
	old, err := h.Manifest(name)
	switch {
	case errors.Is(err, home.ErrNoCorpus) || o.Replace:
		old = nil
	case err != nil:
		return nil, err
	case old.Chunk != chunk:
		return nil, fmt.Errorf("corpus %s has windows of %d words with %d overlap, asked for %d with %d; use the same, or replace the corpus", name, old.Chunk.Words, old.Chunk.Overlap, chunk.Words, chunk.Overlap)
	}
	unlock, err := h.Lock(name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	spoolDir, err := os.MkdirTemp(dir, "spool-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(spoolDir)
	m := &home.Manifest{Version: 1, Name: name, Chunk: chunk, Accounting: home.Accounting{Skipped: map[string]int{}}}
	acc := &m.Accounting

	// First everything is spooled; only then is it known which record of an id is the last.
	type span struct {
		doc      string
		from, to int
	}
	var spans []span
	last := map[string]int{} // id → its span, -1 when deleted
	spool, err := store.Create(spoolDir)
	if err != nil {
		return nil, err
	}
	defer spool.Abort()
	if old != nil {
		m.Formats, m.Sources, m.Accounting = old.Formats, old.Sources, old.Accounting
		if acc.Skipped == nil {
			acc.Skipped = map[string]int{}
		}
		from, err := h.DataDir(old)
		if err != nil {
			return nil, err
		}
		s, err := store.Open(from)
		if err != nil {
			return nil, err
		}
		for i := range s.Len() {
			p, err := s.Get(i)
			if err == nil {
				err = spool.Append(&p)
			}
			if err != nil {
				s.Close()
				return nil, err
			}
			if len(spans) == 0 || spans[len(spans)-1].doc != p.Doc {
				last[p.Doc] = len(spans)
				spans = append(spans, span{p.Doc, i, i})
			}
			spans[len(spans)-1].to = i + 1
		}
		s.Close()
	}
	for _, path := range paths {
		format := o.Format
		if format == "" || format == "auto" {
			if format, err = reader.Detect(ctx, path); err != nil {
				return nil, err
			}
		}
		handler := corpusio.Handler{
			Record: func(r *corpusio.Record) error {
				acc.Records++
				r.Corpus = name
				ps, err := corpusio.Chunk(r, chunk)
				if err != nil {
					return err
				}
				if len(ps) == 0 {
					acc.Records--
					acc.Skipped["no text"]++
					return nil
				}
				if prev, ok := last[r.ID]; ok && prev >= 0 {
					acc.Replaced++
				}
				from := spool.Len()
				for i := range ps {
					if err := spool.Append(&ps[i]); err != nil {
						return err
					}
				}
				last[r.ID] = len(spans)
				spans = append(spans, span{r.ID, from, spool.Len()})
				return nil
			},
			Skip: func(s corpusio.Skip) error {
				acc.Skipped[s.Reason]++
				if o.OnSkip != nil {
					o.OnSkip(s)
				}
				return nil
			},
			Delete: func(id string) error {
				if prev, ok := last[id]; ok && prev >= 0 {
					acc.Deleted++
					last[id] = -1
				}
				return nil
			},
			Progress: func(n int64) {
				if o.Progress != nil {
					o.Progress(path, n, acc.Records)
				}
			},
		}
		if err := reader.Read(ctx, format, path, handler); err != nil {
			return nil, err
		}
		if !slices.Contains(m.Formats, format) {
			m.Formats = append(m.Formats, format)
		}
		m.Sources = append(m.Sources, path)
	}
	if err := spool.Commit(); err != nil {
		return nil, err
	}
	s, err := store.Open(spoolDir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	m.Data = home.NewData()
	dir = filepath.Join(dir, m.Data)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	saved := false
	defer func() {
		if !saved {
			os.RemoveAll(dir)
		}
	}()
	out, err := store.Create(dir)
	if err != nil {
		return nil, err
	}
	defer out.Abort()
	acc.Indexed = 0
	for i, sp := range spans {
		if last[sp.doc] != i {
			continue
		}
		acc.Indexed++
		for row := sp.from; row < sp.to; row++ {
			if row%1024 == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			p, err := s.Get(row)
			if err == nil {
				err = out.Append(&p)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	m.Passages, acc.Passages = out.Len(), out.Len()
	if acc.Records != acc.Indexed+acc.Replaced+acc.Deleted {
		return nil, fmt.Errorf("accounts do not close: %d records, %d indexed + %d replaced + %d deleted; please report this", acc.Records, acc.Indexed, acc.Replaced, acc.Deleted)
	}
	if m.Passages == 0 {
		return nil, fmt.Errorf("corpus %s: nothing to index in %v: %v", name, paths, acc.Skipped)
	}
	if err := out.Commit(); err != nil {
		return nil, err
	}
	n, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	m.StoreID = n.ID()
	n.Close()
	m.Changed = time.Now().UTC().Truncate(time.Second)
	if err := h.Save(m); err != nil {
		return nil, err
	}
	saved = true
	return m, h.Prune(m)
}
