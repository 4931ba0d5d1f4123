package home

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"rag2/corpusio"
	"rag2/hnsw"
)

// Filter says which passages a search may return. Conditions that are given must all
// hold; of a list, one must. The zero Filter lets all through.
type Filter struct {
	FromYear int      `json:"from_year,omitempty"` // a passage without a year passes no bound
	ToYear   int      `json:"to_year,omitempty"`
	Journals []string `json:"journals,omitempty"` // whole names, without regard to case
	MeSH     []string `json:"mesh,omitempty"`     // descriptor names, likewise
	IDs      []string `json:"ids,omitempty"`      // of documents or passages
}

// Empty reports whether everything passes.
func (f *Filter) Empty() bool {
	return f.FromYear == 0 && f.ToYear == 0 && len(f.Journals) == 0 && len(f.MeSH) == 0 && len(f.IDs) == 0
}

// key tells filters apart.
func (f *Filter) key() string {
	b, _ := json.Marshal(f) // strings and numbers alone
	return string(b)
}

// passes reports whether a passage may be returned; ids holds f.IDs.
func (f *Filter) passes(p *corpusio.Passage, ids map[string]bool) bool {
	among := func(list []string, v string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, v) })
	}
	switch {
	case f.FromYear > 0 && p.Year < f.FromYear, f.ToYear > 0 && (p.Year == 0 || p.Year > f.ToYear):
		return false
	case len(f.Journals) > 0 && !among(f.Journals, p.Journal):
		return false
	case len(f.MeSH) > 0 && !slices.ContainsFunc(p.MeSH, func(m string) bool { return among(f.MeSH, m) }):
		return false
	}
	return len(ids) == 0 || ids[p.Doc] || ids[p.ID]
}

// filtered keeps the rows of the last filter of a corpus.
type filtered struct {
	mu   sync.Mutex
	key  string
	rows *hnsw.RowSet
}

// Rows is the rows of the passages that pass a filter. The first call for a filter
// reads every passage; the answer is kept until another filter comes.
func (c *Corpus) Rows(ctx context.Context, f Filter) (*hnsw.RowSet, error) {
	c.filtered.mu.Lock()
	defer c.filtered.mu.Unlock()
	if k := f.key(); c.filtered.rows == nil || c.filtered.key != k {
		ids := make(map[string]bool, len(f.IDs))
		for _, id := range f.IDs {
			ids[id] = true
		}
		rows := hnsw.NewRowSet()
		for i := range c.Store.Len() {
			if i%1024 == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			p, err := c.Store.Get(i)
			if err != nil {
				return nil, fmt.Errorf("corpus %s: %w", c.Name(), err)
			}
			if f.passes(&p, ids) {
				rows.Add(i)
			}
		}
		c.filtered.key, c.filtered.rows = k, rows
	}
	return c.filtered.rows, nil
}
