package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/fnv"
	"io"
	"path/filepath"
	"slices"
	"sync"

	"rag2/corpusio"
	"rag2/internal/atomicfile"
	"rag2/internal/mmapfile"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"
)

// The names of a store's files.
const (
	DataFile  = "passages.jsonl.zst"
	IndexFile = "passages.idx"
)

const (
	magic     = "RAG2PIDX"
	version   = 1
	headerLen = 96
	frameSize = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrNotOurs, ErrVersion and *ErrCorrupt tell why a store does not open.
var (
	ErrNotOurs  = errors.New("not a passage store")
	ErrVersion  = errors.New("passage store of another version")
	ErrNotFound = errors.New("no such passage")
)

// ErrCorrupt reports a damaged store.
type ErrCorrupt struct {
	File, Section string
	Offset        int64
	Reason        string
}

func (e *ErrCorrupt) Error() string {
	return fmt.Sprintf("%s: %s at byte %d: %s; rebuild the corpus", e.File, e.Section, e.Offset, e.Reason)
}

// Writer builds a store; nothing appears under the final names before Commit.
type Writer struct {
	dir    string
	f      *atomicfile.File
	w      *seekable.Writer
	enc    *zstd.Encoder
	count  countWriter
	buf    bytes.Buffer
	rows   []uint64
	frames []uint64
	ids    [][2]uint64
	sum    hash.Hash
}

// countWriter counts and sums bytes.
type countWriter struct {
	w   io.Writer
	n   uint64
	crc uint32
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += uint64(n)
	c.crc = crc32.Update(c.crc, castagnoli, p[:n])
	return n, err
}

// Create begins a store in dir, which must exist.
func Create(dir string) (*Writer, error) {
	f, err := atomicfile.Create(filepath.Join(dir, DataFile))
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, f: f, sum: sha256.New()}
	w.count.w = f
	if w.enc, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err == nil {
		w.w, err = seekable.NewWriter(&w.count, w.enc)
	}
	if err != nil {
		f.Abort()
		return nil, err
	}
	return w, nil
}

// Append adds a passage; its row is the number of passages before it.
func (w *Writer) Append(p *corpusio.Passage) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if w.buf.Len() > 0 && w.buf.Len()+len(line) > frameSize {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.frames) >= 1<<32-1 || len(line) > 1<<30 {
		return fmt.Errorf("passage %s: store or passage too large", p.ID)
	}
	w.rows = append(w.rows, uint64(len(w.frames))|uint64(w.buf.Len())<<32)
	w.ids = append(w.ids, [2]uint64{idHash(p.ID), uint64(len(w.rows) - 1)})
	w.buf.Write(line)
	w.sum.Write(line)
	return nil
}

// Len is the number of passages appended so far.
func (w *Writer) Len() int { return len(w.rows) }

func (w *Writer) flush() error {
	if w.buf.Len() == 0 {
		return nil
	}
	w.frames = append(w.frames, w.count.n)
	_, err := w.w.Write(w.buf.Bytes())
	w.buf.Reset()
	return err
}

// Commit writes both files, the index last.
func (w *Writer) Commit() error {
	defer w.Abort()
	if err := w.flush(); err != nil {
		return err
	}
	end := w.count.n
	if err := w.w.Close(); err != nil {
		return err
	}
	le := binary.LittleEndian
	h := make([]byte, headerLen)
	copy(h, magic)
	le.PutUint32(h[8:], version)
	le.PutUint64(h[16:], uint64(len(w.rows)))
	le.PutUint64(h[24:], uint64(len(w.frames)))
	le.PutUint64(h[32:], w.count.n)
	copy(h[40:56], w.sum.Sum(nil))
	var rows, frames, ids []byte
	for _, r := range w.rows {
		rows = le.AppendUint64(rows, r)
	}
	for _, f := range append(w.frames, end) {
		frames = le.AppendUint64(frames, f)
	}
	slices.SortFunc(w.ids, func(a, b [2]uint64) int {
		for i := range a {
			if a[i] != b[i] {
				if a[i] < b[i] {
					return -1
				}
				return 1
			}
		}
		return 0
	})
	for _, x := range w.ids {
		ids = le.AppendUint64(le.AppendUint64(ids, x[0]), x[1])
	}
	for i, s := range [][]byte{rows, frames, ids} {
		le.PutUint32(h[56+4*i:], crc32.Checksum(s, castagnoli))
	}
	le.PutUint32(h[68:], w.count.crc)
	le.PutUint32(h[12:], crc32.Checksum(h[16:], castagnoli))
	if err := w.f.Commit(); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(w.dir, IndexFile), slices.Concat(h, rows, frames, ids))
}

// Abort drops what was written; after Commit it does nothing.
func (w *Writer) Abort() {
	w.f.Abort()
	_ = w.enc.Close()
}

func idHash(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// Store is an open store.
type Store struct {
	data, idx         *mmapfile.File
	rows, frames, ids []byte
	n, m              int
	id                string
	dec               *zstd.Decoder

	mu    sync.Mutex
	cache map[uint32][]byte
	order []uint32
}

// cachedFrames bounds the decoded frames kept (≈ 4 MiB).
const cachedFrames = 64

// Open opens the store in dir.
func Open(dir string) (*Store, error) {
	idx, err := mmapfile.Open(filepath.Join(dir, IndexFile))
	if err != nil {
		return nil, fmt.Errorf("passage store: %w", err)
	}
	data, err := mmapfile.Open(filepath.Join(dir, DataFile))
	if err != nil {
		idx.Close()
		return nil, fmt.Errorf("passage store: %w", err)
	}
	s := &Store{data: data, idx: idx, cache: map[uint32][]byte{}}
	if err := mmapfile.Guard(s.check); err != nil {
		s.Close()
		return nil, err
	}
	if s.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(1<<31)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) check() error {
	b := s.idx.Bytes()
	le := binary.LittleEndian
	if len(b) < 8 || string(b[:8]) != magic {
		return fmt.Errorf("%s: %w", s.idx.Path(), ErrNotOurs)
	}
	if len(b) < headerLen {
		return &ErrCorrupt{s.idx.Path(), "header", int64(len(b)), "the file is cut"}
	}
	if v := le.Uint32(b[8:]); v != version {
		return fmt.Errorf("%s: version %d, this program reads %d: %w", s.idx.Path(), v, version, ErrVersion)
	}
	if crc32.Checksum(b[16:headerLen], castagnoli) != le.Uint32(b[12:]) {
		return &ErrCorrupt{s.idx.Path(), "header", 12, "checksum differs"}
	}
	n, m := le.Uint64(b[16:]), le.Uint64(b[24:])
	if n > uint64(len(b)) || m > uint64(len(b)) || headerLen+n*24+(m+1)*8 != uint64(len(b)) {
		return &ErrCorrupt{s.idx.Path(), "header", 16, fmt.Sprintf("%d passages in %d frames do not make a file of %d bytes", n, m, len(b))}
	}
	if size := le.Uint64(b[32:]); size != uint64(s.data.Len()) {
		return &ErrCorrupt{s.data.Path(), "size", int64(s.data.Len()), fmt.Sprintf("%d bytes, the index was written for %d", s.data.Len(), size)}
	}
	s.n, s.m = int(n), int(m)
	s.rows, b = b[headerLen:headerLen+8*s.n], b[headerLen+8*s.n:]
	s.frames, s.ids = b[:8*(s.m+1)], b[8*(s.m+1):]
	s.id = hex.EncodeToString(s.idx.Bytes()[40:56])
	return nil
}

// Len is the number of passages.
func (s *Store) Len() int { return s.n }

// ID identifies the store's content; vectors and index record it.
func (s *Store) ID() string { return s.id }

// line is the JSON of a row.
func (s *Store) line(row int) (out []byte, err error) {
	if row < 0 || row >= s.n {
		return nil, fmt.Errorf("passage row %d of %d: %w", row, s.n, ErrNotFound)
	}
	err = mmapfile.Guard(func() error {
		le := binary.LittleEndian
		e := le.Uint64(s.rows[8*row:])
		frame, off := uint32(e), int(e>>32)
		b, err := s.frame(frame)
		if err != nil {
			return err
		}
		if off >= len(b) {
			return &ErrCorrupt{s.idx.Path(), "rows", int64(headerLen + 8*row), "position outside its frame"}
		}
		out = b[off:]
		if i := bytes.IndexByte(out, '\n'); i >= 0 {
			out = out[:i]
		}
		return nil
	})
	return out, err
}

// frame is the decoded frame i, from the cache if it is there.
func (s *Store) frame(i uint32) ([]byte, error) {
	s.mu.Lock()
	b, ok := s.cache[i]
	s.mu.Unlock()
	if ok {
		return b, nil
	}
	if int(i) >= s.m {
		return nil, &ErrCorrupt{s.idx.Path(), "rows", headerLen, fmt.Sprintf("frame %d of %d", i, s.m)}
	}
	from, to := binary.LittleEndian.Uint64(s.frames[8*i:]), binary.LittleEndian.Uint64(s.frames[8*i+8:])
	if from > to || to > uint64(s.data.Len()) {
		return nil, &ErrCorrupt{s.idx.Path(), "frames", int64(from), "position outside the file"}
	}
	b, err := s.dec.DecodeAll(s.data.Bytes()[from:to], nil)
	if err != nil {
		return nil, &ErrCorrupt{s.data.Path(), "frame", int64(from), err.Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.cache[i]; !ok {
		if len(s.order) >= cachedFrames {
			delete(s.cache, s.order[0])
			s.order = s.order[1:]
		}
		s.cache[i] = b
		s.order = append(s.order, i)
	}
	return b, nil
}

// Get reads the passage of a row.
func (s *Store) Get(row int) (p corpusio.Passage, err error) {
	b, err := s.line(row)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, &ErrCorrupt{s.data.Path(), "passage", int64(row), err.Error()}
	}
	return p, nil
}

// Row finds a passage by id.
func (s *Store) Row(id string) (int, error) {
	h := idHash(id)
	var rows []int
	err := mmapfile.Guard(func() error {
		at := func(i int) uint64 { return binary.LittleEndian.Uint64(s.ids[16*i:]) }
		lo, hi := 0, s.n
		for lo < hi {
			if mid := (lo + hi) / 2; at(mid) < h {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		for ; lo < s.n && at(lo) == h; lo++ {
			rows = append(rows, int(binary.LittleEndian.Uint64(s.ids[16*lo+8:])))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		p, err := s.Get(r)
		if err != nil {
			return 0, err
		}
		if p.ID == id {
			return r, nil
		}
	}
	return 0, fmt.Errorf("passage %q: %w", id, ErrNotFound)
}

// Verify rereads both files: checksums, every passage, the store id.
func (s *Store) Verify(ctx context.Context) error {
	h := s.idx.Bytes()
	for i, sec := range []struct {
		name string
		b    []byte
	}{{"rows", s.rows}, {"frames", s.frames}, {"ids", s.ids}, {"compressed text", s.data.Bytes()}} {
		var sum uint32
		if err := mmapfile.Guard(func() error { sum = crc32.Checksum(sec.b, castagnoli); return nil }); err != nil {
			return err
		}
		if sum != binary.LittleEndian.Uint32(h[56+4*i:]) {
			return &ErrCorrupt{s.idx.Path(), sec.name, headerLen, "checksum differs"}
		}
	}
	sum := sha256.New()
	for i := range s.n {
		if i%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		b, err := s.line(i)
		if err != nil {
			return err
		}
		var p corpusio.Passage
		if err := json.Unmarshal(b, &p); err != nil {
			return &ErrCorrupt{s.data.Path(), "passage", int64(i), err.Error()}
		}
		sum.Write(b)
		sum.Write([]byte{'\n'})
	}
	if got := hex.EncodeToString(sum.Sum(nil)[:16]); got != s.id {
		return &ErrCorrupt{s.data.Path(), "content", 0, "the text is not what the index was written for"}
	}
	return nil
}

// Close unmaps the store.
func (s *Store) Close() error {
	if s.dec != nil {
		s.dec.Close()
	}
	return errors.Join(s.data.Close(), s.idx.Close())
}
