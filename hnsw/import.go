package hnsw

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"rag2/internal/npy"
)

// EmbeddingChunk is a file of embeddings made by others, with what lies beside it.
type EmbeddingChunk struct {
	Number int    `json:"number"`
	Embeds string `json:"embeds"`          // n × dim .npy
	PMIDs  string `json:"pmids,omitempty"` // JSON list of n ids
	// Articles is JSON: an object by PMID (NCBI), or a list with an entry for each row
	// (the RAG² authors).
	Articles string `json:"articles,omitempty"`
	Rows     int    `json:"rows"`
	Dim      int    `json:"dim"`
}

var (
	reNCBI    = regexp.MustCompile(`^embeds_chunk_(\d+)\.npy$`)
	reAuthors = regexp.MustCompile(`^([A-Za-z]+(?:_[A-Za-z]+)?)_Embeds(?:_(\d+))?\.npy$`)
)

// FindEmbeddings lists the chunks in a folder, in numeric order (chunk 10 after 9):
// NCBI's MedCPT PubMed embeddings (embeds_chunk_i.npy, pmids_chunk_i.json,
// pubmed_chunk_i.json) or the RAG² authors' (PubMed_Embeds_i.npy, PMC_Main_Embeds.npy,
// CPG_Total_Embeds.npy, … with PubMed_Articles_i.json, … in the folder or in the one
// given). Row counts of .npy, PMIDs and listed articles must agree; a missing number
// in the sequence is an error.
func FindEmbeddings(ctx context.Context, dir, articles string) ([]EmbeddingChunk, error) {
	es, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if articles == "" {
		articles = dir
	}
	var out []EmbeddingChunk
	kinds := map[string]bool{}
	for _, e := range es {
		c := EmbeddingChunk{Embeds: filepath.Join(dir, e.Name()), Number: -1}
		if m := reNCBI.FindStringSubmatch(e.Name()); m != nil {
			c.Number, _ = strconv.Atoi(m[1])
			c.PMIDs = filepath.Join(dir, "pmids_chunk_"+m[1]+".json")
			c.Articles = filepath.Join(articles, "pubmed_chunk_"+m[1]+".json")
			kinds["embeds_chunk_"] = true
		} else if m := reAuthors.FindStringSubmatch(e.Name()); m != nil {
			name := m[1] + "_Articles"
			if m[2] != "" {
				c.Number, _ = strconv.Atoi(m[2])
				name += "_" + m[2]
				kinds[m[1]] = true
			} else {
				kinds["single files"] = true
			}
			c.Articles = filepath.Join(articles, name+".json")
		} else {
			continue
		}
		if !exists(c.Articles) {
			c.Articles = ""
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no embeds_chunk_i.npy and no *_Embeds.npy", dir)
	}
	if len(kinds) > 1 {
		return nil, fmt.Errorf("%s: files of several sequences; import them from folders of their own", dir)
	}
	slices.SortFunc(out, func(a, b EmbeddingChunk) int {
		if a.Number != b.Number {
			return a.Number - b.Number
		}
		if a.Embeds < b.Embeds {
			return -1
		}
		return 1
	})
	for i := range out {
		if i > 0 && out[i].Number >= 0 && out[i].Number != out[i-1].Number+1 {
			return nil, fmt.Errorf("%s: chunk %d follows chunk %d: files are missing", dir, out[i].Number, out[i-1].Number)
		}
		if err := out[i].count(ctx); err != nil {
			return nil, err
		}
		if out[i].Dim != out[0].Dim {
			return nil, fmt.Errorf("%s: %d dimensions, %s has %d: %w", out[i].Embeds, out[i].Dim, out[0].Embeds, out[0].Dim, ErrDim)
		}
	}
	return out, nil
}

func exists(p string) bool { _, err := os.Stat(p); return err == nil }

// count reads the sizes and compares them.
func (c *EmbeddingChunk) count(ctx context.Context) error {
	a, err := npy.Open(c.Embeds)
	if err != nil {
		return err
	}
	c.Rows, c.Dim = a.Rows(), a.Cols()
	two := len(a.Shape) == 2
	if err := a.Close(); err != nil {
		return err
	}
	if !two {
		return fmt.Errorf("%s: not a matrix", c.Embeds)
	}
	if c.PMIDs != "" {
		ids, err := readPMIDs(c.PMIDs)
		if err != nil {
			return err
		}
		if len(ids) != c.Rows {
			return fmt.Errorf("%s has %d rows, %s %d ids: %w", c.Embeds, c.Rows, c.PMIDs, len(ids), ErrRows)
		}
	}
	if c.Articles != "" {
		n, err := countJSON(ctx, c.Articles)
		if err != nil {
			return err
		}
		// NCBI's articles are keyed by PMID: one that occurs twice has one entry.
		if n != c.Rows && (c.PMIDs == "" || n > c.Rows) {
			return fmt.Errorf("%s has %d rows, %s %d articles: %w", c.Embeds, c.Rows, c.Articles, n, ErrRows)
		}
	}
	return nil
}

// ErrRows reports files whose numbers of rows differ.
var ErrRows = errors.New("row counts differ")

// readPMIDs reads a JSON list of ids, as strings or numbers.
func readPMIDs(path string) ([]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("%s: not a JSON list of PMIDs", path)
	}
	var out []int64
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w", path, len(out), err)
		}
		id, err := strconv.ParseInt(fmt.Sprint(t), 10, 64)
		if err != nil || id < 0 || id > maxID {
			return nil, fmt.Errorf("%s: entry %d: %v is no PMID", path, len(out), t)
		}
		out = append(out, id)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// countJSON is the number of entries of a list, or of keys of an object, read in
// bounded memory.
func countJSON(ctx context.Context, path string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	t, err := d.Token()
	if err != nil || t != json.Delim('[') && t != json.Delim('{') {
		return 0, fmt.Errorf("%s: neither a JSON list nor an object", path)
	}
	n, depth := 0, 1
	key := t == json.Delim('{')
	object := key
	for depth > 0 {
		if n%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
		}
		t, err := d.Token()
		if err != nil {
			return 0, fmt.Errorf("%s: after %d entries: %w", path, n, err)
		}
		closing := t == json.Delim(']') || t == json.Delim('}')
		if depth == 1 && !closing {
			if !object || key {
				n++
			}
			key = !key
		}
		switch t {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
	}
	return n, nil
}

// ImportOptions steer Import.
type ImportOptions struct {
	Articles string // folder of the articles; "" is that of the embeddings
	// Segments is how many segments are made of the chunks, 0 = one for each chunk up
	// to 8.
	Segments int
	// Unit builds one segment alone, 1…Segments, and leaves the set as it is: the units
	// of a job array. An import with Unit 0 then takes them all into the set.
	Unit     int
	Build    BuildOptions
	Progress func(segment, segments, done, total int)
}

// ImportReport says what was imported.
type ImportReport struct {
	Chunks   []EmbeddingChunk `json:"chunks"`
	Segments int              `json:"segments"`
	Rows     int              `json:"rows"`
	Reused   int              `json:"segments_already_there"`
}

// Import makes a Set in out of the chunks found in dir, whose files stay where they
// are. Ids are PMIDs where the chunks have them, else row numbers over all chunks. A
// stopped import goes on where it was: finished segments are kept, the one in work
// has its checkpoint, and what a merge has taken is not made again.
func Import(ctx context.Context, dir, out string, o ImportOptions) (*ImportReport, error) {
	chunks, err := FindEmbeddings(ctx, dir, o.Articles)
	if err != nil {
		return nil, err
	}
	n := o.Segments
	if n <= 0 {
		n = 8
	}
	n = min(n, len(chunks))
	if o.Unit < 0 || o.Unit > n {
		return nil, fmt.Errorf("import: unit %d of %d", o.Unit, n)
	}
	if o.Unit > 0 {
		return importUnit(ctx, chunks, out, n, o)
	}
	if !exists(filepath.Join(out, "set.json")) {
		if err := CreateSet(out, chunks[0].Dim, o.Build.Metric); err != nil {
			return nil, err
		}
	}
	s, err := OpenSet(out, OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	r := &ImportReport{Chunks: chunks, Segments: n}
	for i := range n {
		part := chunks[i*len(chunks)/n : (i+1)*len(chunks)/n]
		path := unitPath(out, i, n)
		var paths []string
		var ids []int64
		for _, c := range part {
			paths = append(paths, c.Embeds)
			if c.PMIDs != "" {
				p, err := readPMIDs(c.PMIDs)
				if err != nil {
					return nil, err
				}
				ids = append(ids, p...)
			}
			r.Rows += c.Rows
		}
		if slices.Contains(s.m.Taken, filepath.Base(path)) || slices.ContainsFunc(s.m.Segments, func(g SetSegment) bool { return g.Path == filepath.Base(path) }) {
			r.Reused++
			continue
		}
		b := o.Build
		if o.Progress != nil {
			b.Progress = func(done, total int) { o.Progress(i, n, done, total) }
		}
		err := checkUnit(path, paths)
		if errors.Is(err, fs.ErrNotExist) {
			err = BuildShards(ctx, paths, path, b)
		}
		if err != nil {
			return nil, err
		}
		if _, err := s.AddSegment(path, ids...); err != nil {
			return nil, err
		}
	}
	return r, s.Close()
}

func unitPath(out string, i, n int) string {
	return filepath.Join(out, fmt.Sprintf("import-%03d-of-%03d.hnsw", i, n))
}

// checkUnit says whether a segment's file is whole and of these vector files, as one that
// was copied to the wrong place is not; without a file it is fs.ErrNotExist.
func checkUnit(path string, vectors []string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	bad := func(err error) error {
		return fmt.Errorf("segment: %w; remove %s and run the same command again", err, path)
	}
	x, err := Open(path)
	if err != nil { // a lost vector file is not a segment to be built
		return bad(fmt.Errorf("%s: %v", path, err))
	}
	defer x.Close()
	if err := guarded(x.c.verify); err != nil {
		return bad(err)
	}
	same := len(x.v.shards) == len(vectors)
	for i := 0; same && i < len(vectors); i++ {
		a, err := os.Stat(x.v.shards[i].path)
		if err != nil {
			return err
		}
		b, err := os.Stat(vectors[i])
		if err != nil {
			return err
		}
		same = os.SameFile(a, b)
	}
	if !same {
		return bad(fmt.Errorf("%s is of other vectors than %v", path, vectors))
	}
	return nil
}

// importUnit builds one segment's file; one that is there, or that a set has taken, is kept.
func importUnit(ctx context.Context, chunks []EmbeddingChunk, out string, n int, o ImportOptions) (*ImportReport, error) {
	i := o.Unit - 1
	part := chunks[i*len(chunks)/n : (i+1)*len(chunks)/n]
	r := &ImportReport{Chunks: part, Segments: n}
	var paths []string
	for _, c := range part {
		paths = append(paths, c.Embeds)
		r.Rows += c.Rows
	}
	path := unitPath(out, i, n)
	m, err := readManifest(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if !slices.Contains(m.Taken, filepath.Base(path)) { // a merge may have removed it since
		err := checkUnit(path, paths)
		if errors.Is(err, fs.ErrNotExist) {
			return r, buildUnit(ctx, paths, path, i, n, out, o)
		}
		if err != nil {
			return nil, err
		}
	}
	r.Reused = 1
	return r, nil
}

func buildUnit(ctx context.Context, paths []string, path string, i, n int, out string, o ImportOptions) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	b := o.Build
	if o.Progress != nil {
		b.Progress = func(done, total int) { o.Progress(i, n, done, total) }
	}
	return BuildShards(ctx, paths, path, b)
}
