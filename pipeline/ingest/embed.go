package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"rag2/corpusio/store"
	"rag2/internal/atomicfile"
	"rag2/models"
	"rag2/pipeline/home"

	"github.com/gofrs/flock"
)

// ErrVectors reports a folder of vectors that does not fit what is asked of it.
var ErrVectors = errors.New("vectors do not belong here")

// Vectors describes a folder that Embed fills:
//
//	vectors.json            this description
//	embeds_chunk_0.npy …    vectors of passages 0 … ChunkRows-1, and so on; the names of NCBI's embeddings, as hnsw.Import reads them
//	pmids_chunk_0.json …    the passages' numbers, which such an import takes for ids
//	embeds_chunk_0.json …   rows and passages cut of a finished chunk, written last
//	parts-0/ …              the chunk in work
type Vectors struct {
	Version     int    `json:"version"`
	Corpus      string `json:"corpus"`
	StoreID     string `json:"store_id"` // of the passages: row i is passage i
	Encoder     string `json:"encoder"`  // fingerprint
	EncoderName string `json:"encoder_name"`
	Dim         int    `json:"dim"`
	DType       string `json:"dtype"` // "f32" or "f16"
	Rows        int    `json:"rows"`
	ChunkRows   int    `json:"chunk_rows"`
}

func (v Vectors) chunks() int { return (v.Rows + v.ChunkRows - 1) / v.ChunkRows }

// chunk is the i-th chunk as a part.
func (v Vectors) chunk(dir string, i int) part {
	return part{path: filepath.Join(dir, fmt.Sprintf("embeds_chunk_%d", i)), Rows: min(v.ChunkRows, v.Rows-i*v.ChunkRows)}
}

// npyType is the .npy name of the type of a vector's elements.
func (v Vectors) npyType() string { return map[string]string{"f32": "<f4", "f16": "<f2"}[v.DType] }

// EmbedOptions steer Embed.
type EmbedOptions struct {
	EncoderName string
	DType       string // "f32" (default) or "f16"
	ChunkRows   int    // passages of a file; 0 = 65,536
	// Shard of Shards (from 1) makes that share of the files alone, for many processes or
	// machines on one folder; 0 of 0 makes all.
	Shard, Shards int
	// Progress reports passages of this shard done and in all, and tokens encoded in this
	// call.
	Progress func(done, total, tokens int)
}

// Validate lists everything that is wrong with the options.
func (o EmbedOptions) Validate() error {
	var errs []error
	if o.DType != "" && o.DType != "f32" && o.DType != "f16" {
		errs = append(errs, fmt.Errorf("type %q of vectors; f32 or f16", o.DType))
	}
	if o.ChunkRows < 0 {
		errs = append(errs, fmt.Errorf("files of %d rows", o.ChunkRows))
	}
	if o.Shards < 0 || o.Shard < 0 || o.Shard > o.Shards || o.Shards > 0 && o.Shard == 0 {
		errs = append(errs, fmt.Errorf("shard %d of %d; shards are 1 … n", o.Shard, o.Shards))
	}
	return errors.Join(errs...)
}

// EmbedReport says what Embed did and what is there.
type EmbedReport struct {
	Vectors
	Files     int  `json:"files"`     // of this shard
	Reused    int  `json:"reused"`    // files that were finished before
	Encoded   int  `json:"encoded"`   // passages encoded in this call
	Tokens    int  `json:"tokens"`    // and their tokens
	Truncated int  `json:"truncated"` // passages of this shard cut at the encoder's limit
	Present   int  `json:"present"`   // rows of all finished files in the folder, counted in them
	Complete  bool `json:"complete"`  // no file of any shard is missing
}

// Embed encodes a corpus's passages into files of vectors in dir, passage i in row i over
// all files. A stopped call, killed too, goes on with the finished files and parts; files
// appear whole. dir made from other passages, by another encoder or with other options is
// ErrVectors.
func Embed(ctx context.Context, h home.Home, name, dir string, enc models.Encoder, o EmbedOptions) (*EmbedReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.DType == "" {
		o.DType = "f32"
	}
	if o.ChunkRows == 0 {
		o.ChunkRows = 65536
	}
	m, err := h.Manifest(name)
	if err != nil {
		return nil, err
	}
	data, err := h.DataDir(m)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(data)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	v := Vectors{Version: 1, Corpus: name, StoreID: s.ID(), Encoder: enc.Fingerprint(), EncoderName: o.EncoderName, Dim: enc.Dim(), DType: o.DType, Rows: s.Len(), ChunkRows: o.ChunkRows}
	if err := v.begin(dir); err != nil {
		return nil, err
	}
	from, to := 0, v.chunks()
	lock := "all.lock"
	if o.Shards > 0 {
		from, to = v.chunks()*(o.Shard-1)/o.Shards, v.chunks()*o.Shard/o.Shards
		lock = fmt.Sprintf("shard-%d-of-%d.lock", o.Shard, o.Shards)
	}
	l := flock.New(filepath.Join(dir, lock))
	if ok, err := l.TryLock(); err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("%w: %s is being filled by another process", home.ErrBusy, filepath.Join(dir, lock)), err)
	}
	defer func() { _ = l.Unlock() }()
	r := &EmbedReport{Vectors: v, Files: to - from}
	total, done := min(to*v.ChunkRows, v.Rows)-min(from*v.ChunkRows, v.Rows), 0
	for i := from; i < to; i++ {
		p := v.chunk(dir, i)
		if p.done(v.Dim) {
			r.Reused++
		} else if err := p.embed(ctx, s, enc, v, i, func(rows, tokens int) {
			r.Encoded, r.Tokens = r.Encoded+rows, r.Tokens+tokens
		}, func(rows int) {
			if o.Progress != nil {
				o.Progress(done+rows, total, r.Tokens)
			}
		}); err != nil {
			return nil, err
		}
		r.Truncated += p.Truncated
		done += p.Rows
	}
	r.Complete = true
	for i := range v.chunks() {
		p := v.chunk(dir, i)
		if p.done(v.Dim) {
			r.Present += p.Rows
		} else {
			r.Complete = false
		}
	}
	if r.Complete && r.Present != v.Rows {
		return nil, fmt.Errorf("%w: %s holds %d rows for %d passages", ErrVectors, dir, r.Present, v.Rows)
	}
	return r, nil
}

// begin writes the description of a new folder, or compares with the one that is there.
func (v Vectors) begin(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := ReadVectors(dir)
	if errors.Is(err, os.ErrNotExist) {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		return atomicfile.WriteFile(filepath.Join(dir, "vectors.json"), append(b, '\n'))
	}
	if err != nil {
		return err
	}
	a, b := reflect.ValueOf(*old), reflect.ValueOf(v)
	var other []string
	for i := range a.NumField() {
		if f := a.Type().Field(i); f.Name != "EncoderName" && f.Name != "Corpus" && !a.Field(i).Equal(b.Field(i)) {
			other = append(other, fmt.Sprintf("%s is %v, not %v", f.Tag.Get("json"), a.Field(i), b.Field(i)))
		}
	}
	if len(other) > 0 {
		return fmt.Errorf("%w: in %s/vectors.json %v; choose another folder", ErrVectors, dir, other)
	}
	return nil
}

// ReadVectors reads the description in a folder of vectors.
func ReadVectors(dir string) (*Vectors, error) {
	path := filepath.Join(dir, "vectors.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("vectors: %w", err)
	}
	v := &Vectors{}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if v.Version != 1 || v.Rows < 0 || v.ChunkRows < 1 || v.npyType() == "" {
		return nil, fmt.Errorf("%w: %s has version %d, %d rows in files of %d, type %q", ErrVectors, path, v.Version, v.Rows, v.ChunkRows, v.DType)
	}
	return v, nil
}

// embedPart is the number of vectors that a killed call loses at most.
const embedPart = 512

// embed makes chunk i in parts.
func (p *part) embed(ctx context.Context, s *store.Store, enc models.Encoder, v Vectors, i int, count func(rows, tokens int), progress func(rows int)) error {
	folder := filepath.Join(filepath.Dir(p.path), fmt.Sprintf("parts-%d", i))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var parts []part
	for at := 0; at < p.Rows; at += embedPart {
		q := part{path: filepath.Join(folder, fmt.Sprintf("%08d", at/embedPart)), Rows: min(embedPart, p.Rows-at)}
		if !q.done(v.Dim) {
			first := i*v.ChunkRows + at
			if err := q.encode(ctx, s, enc, first, func(done, _ int) { progress(done - i*v.ChunkRows) }); err != nil {
				return err
			}
			count(q.Rows, q.Tokens)
		}
		p.Truncated, p.Tokens = p.Truncated+q.Truncated, p.Tokens+q.Tokens
		parts = append(parts, q)
		progress(at + q.Rows)
	}
	if err := join(parts, p.path+".npy", v.Dim, v.npyType()); err != nil {
		return err
	}
	ids := make([]int, p.Rows)
	for j := range ids {
		ids[j] = i*v.ChunkRows + j
	}
	b, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(filepath.Dir(p.path), fmt.Sprintf("pmids_chunk_%d.json", i)), b); err != nil {
		return err
	}
	if err := p.finish(); err != nil {
		return err
	}
	return os.RemoveAll(folder)
}

// chunksFor are the chunks of a folder that was filled for these passages by this encoder.
func chunksFor(dir, storeID, encoder string, dim int) ([]part, *Vectors, error) {
	v, err := ReadVectors(dir)
	if err != nil {
		return nil, nil, err
	}
	if v.StoreID != storeID || v.Encoder != encoder || v.Dim != dim {
		return nil, nil, fmt.Errorf("%w: %s was made of passages %s by encoder %s (%d dimensions); the corpus holds %s, the encoder is %s (%d)", ErrVectors, dir, v.StoreID, v.Encoder, v.Dim, storeID, encoder, dim)
	}
	parts := make([]part, v.chunks())
	var missing []int
	for i := range parts {
		parts[i] = v.chunk(dir, i)
		if !parts[i].done(dim) {
			missing = append(missing, i)
		}
	}
	if len(missing) > 0 {
		return nil, nil, fmt.Errorf("%w: %d of %d files are not finished in %s, the first is embeds_chunk_%d.npy; run `rag2 embed` again", ErrVectors, len(missing), len(parts), dir, slices.Min(missing))
	}
	return parts, v, nil
}
