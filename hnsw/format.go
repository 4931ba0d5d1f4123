package hnsw

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"unsafe"

	"rag2/internal/atomicfile"
	"rag2/internal/mmapfile"
)

// The file format's names and numbers; doc.go has its specification.
const (
	magic          = "RAG2HNSW"
	formatVersion  = 2 // 1 (never released) had no sections
	minReadVersion = 2
	featureVersion = 1

	headLen    = 64
	entryLen   = 32
	paramLen   = 160
	alignment  = 4096
	maxSection = 64
	maxDegree  = 512

	endMark = math.MaxUint32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// section is a named part of a file being written.
type section struct {
	tag   string
	size  int64
	write func(io.Writer) error
}

func bytesSection(tag string, b []byte) section {
	return section{tag, int64(len(b)), func(w io.Writer) error { _, err := w.Write(b); return err }}
}

// u32Section writes numbers in place, without a copy.
func u32Section(tag string, v []uint32) section { return bytesSection(tag, u32Bytes(v)) }

func u32Bytes(v []uint32) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
}

// asU32 views mapped bytes as numbers; their start is aligned to pages.
func asU32(b []byte) []uint32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), len(b)/4)
}

func asF32(b []byte) []float32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

func f32Bytes(v []float32) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
}

// hostIsLittleEndian is what viewing sections in place needs.
func hostIsLittleEndian() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}

type crcWriter struct {
	w   io.Writer
	crc uint32
	n   int64
}

func (c *crcWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.crc = crc32.Update(c.crc, castagnoli, b[:n])
	c.n += int64(n)
	return n, err
}

// writeFile writes a whole file of sections atomically. signature is the 8 bytes at
// its start.
func writeFile(path, signature string, parts []section) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	headerLen := headLen + entryLen*len(parts)
	table := make([]byte, headerLen)
	off := int64(alignUp(headerLen))
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.Write(make([]byte, off)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	for i, p := range parts {
		c := &crcWriter{w: w}
		if err := p.write(c); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		if c.n != p.size {
			return fmt.Errorf("write %s: section %s has %d bytes, %d were announced", path, p.tag, c.n, p.size)
		}
		e := table[headLen+entryLen*i:]
		copy(e, p.tag)
		le.PutUint32(e[4:], c.crc)
		le.PutUint64(e[8:], uint64(off))
		le.PutUint64(e[16:], uint64(c.n))
		end := off + c.n
		if i+1 < len(parts) {
			if off = int64(alignUp(int(end))); off > end {
				if _, err := w.Write(make([]byte, off-end)); err != nil {
					return fmt.Errorf("write %s: %w", path, err)
				}
			}
		} else {
			off = end
		}
	}
	copy(table, signature)
	le.PutUint32(table[8:], formatVersion)
	le.PutUint32(table[12:], featureVersion)
	le.PutUint32(table[16:], uint32(headerLen))
	le.PutUint32(table[20:], uint32(len(parts)))
	le.PutUint64(table[24:], uint64(off))
	le.PutUint32(table[32:], headerCRC(table))
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if _, err := f.WriteAt(table, 0); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Commit()
}

func alignUp(n int) int { return (n + alignment - 1) / alignment * alignment }

// headerCRC is over the header without the checksum's own four bytes.
func headerCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:32], castagnoli), castagnoli, b[36:])
}

// part is a section found in a file.
type part struct {
	tag      string
	crc      uint32
	off, len int64
	data     []byte
}

// container is a mapped file of sections whose header has been checked.
type container struct {
	path     string
	bytes    []byte
	parts    []part
	features uint32
}

func (c *container) bad(section string, off int64, format string, args ...any) error {
	return &ErrCorrupt{c.path, section, off, fmt.Sprintf(format, args...)}
}

// parseContainer checks signature, versions, header checksum, sizes and the layout
// of sections. It reads the header alone.
func parseContainer(path, signature string, b []byte) (*container, error) {
	c := &container{path: path, bytes: b}
	if len(b) < 8 || string(b[:8]) != signature {
		return nil, fmt.Errorf("%s: %w", path, ErrNotOurs)
	}
	if len(b) < headLen {
		return nil, c.bad("header", int64(len(b)), "the file is cut")
	}
	if v := le.Uint32(b[8:]); v < minReadVersion || v > formatVersion {
		return nil, fmt.Errorf("%s: format version %d, this program reads %d to %d: %w", path, v, minReadVersion, formatVersion, ErrVersion)
	}
	n, hl := le.Uint32(b[20:]), le.Uint32(b[16:])
	if n > maxSection || hl != headLen+entryLen*n || int(hl) > len(b) {
		return nil, c.bad("header", 16, "header of %d bytes with %d sections", hl, n)
	}
	if headerCRC(b[:hl]) != le.Uint32(b[32:]) {
		return nil, c.bad("header", 32, "checksum differs")
	}
	c.features = le.Uint32(b[12:])
	if size := le.Uint64(b[24:]); size != uint64(len(b)) {
		return nil, c.bad("header", 24, "the header says %d bytes, the file has %d", size, len(b))
	}
	end := uint64(hl)
	for i := range n {
		e := b[headLen+entryLen*i:]
		p := part{tag: string(e[:4]), crc: le.Uint32(e[4:])}
		off, size := le.Uint64(e[8:]), le.Uint64(e[16:])
		if off%alignment != 0 || off < end || off > uint64(len(b)) || size > uint64(len(b))-off {
			return nil, c.bad("header", int64(headLen+entryLen*i), "section %q at %d of %d bytes does not fit", p.tag, off, size)
		}
		end = off + size
		p.off, p.len, p.data = int64(off), int64(size), b[off:end]
		c.parts = append(c.parts, p)
	}
	if end != uint64(len(b)) && n > 0 {
		return nil, c.bad("header", int64(end), "%d bytes after the last section", uint64(len(b))-end)
	}
	return c, nil
}

func (c *container) part(tag string) *part {
	for i := range c.parts {
		if c.parts[i].tag == tag {
			return &c.parts[i]
		}
	}
	return nil
}

// need is the section, of exactly size bytes unless size < 0.
func (c *container) need(tag string, size int64) (*part, error) {
	p := c.part(tag)
	if p == nil {
		return nil, c.bad("header", headLen, "section %s is missing", tag)
	}
	if size >= 0 && p.len != size {
		return nil, c.bad(tag, p.off, "%d bytes, %d are needed", p.len, size)
	}
	return p, nil
}

func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func (c *container) checkCRC(p *part) error {
	if crcOf(p.data) != p.crc {
		return c.bad(p.tag, p.off, "checksum differs")
	}
	return nil
}

// verify checks every section's checksum and that gaps are zero.
func (c *container) verify() error {
	end := int64(headLen + entryLen*len(c.parts))
	for i := range c.parts {
		p := &c.parts[i]
		for j, x := range c.bytes[end:p.off] {
			if x != 0 {
				return c.bad("padding", end+int64(j), "not zero")
			}
		}
		if err := c.checkCRC(p); err != nil {
			return err
		}
		end = p.off + p.len
	}
	return nil
}

// params is the PARM section.
type params struct {
	n, dim, m, efc    int
	metric            Metric
	codes             Codes
	seed              uint64
	entryRow, entryUp uint32
	top               int
	uppers, lists     int
	dups              int
	maxNorm           float32
	full              bool // the build walked full vectors
	contents          [32]byte
	inserted          int // rows in the graph so far; n in a finished file
	base              int // rows whose graph was taken over from another index
	round             int
	edges             int // how edges were chosen: edgeRule, or 0 before it was counted
}

// edgeRule counts the ways of choosing edges: a graph of another is not built on.
const edgeRule = 1

func (p *params) bytes() []byte {
	b := make([]byte, paramLen)
	le.PutUint64(b[0:], uint64(p.n))
	le.PutUint32(b[8:], uint32(p.dim))
	le.PutUint32(b[12:], uint32(p.m))
	le.PutUint32(b[16:], uint32(p.efc))
	le.PutUint32(b[20:], uint32(p.metric))
	le.PutUint32(b[24:], uint32(p.codes))
	if p.full {
		le.PutUint32(b[28:], 1)
	}
	le.PutUint64(b[32:], p.seed)
	le.PutUint32(b[40:], p.entryRow)
	le.PutUint32(b[44:], p.entryUp)
	le.PutUint32(b[48:], uint32(p.top))
	le.PutUint32(b[52:], math.Float32bits(p.maxNorm))
	le.PutUint64(b[56:], uint64(p.uppers))
	le.PutUint64(b[64:], uint64(p.lists))
	le.PutUint64(b[72:], uint64(p.dups))
	le.PutUint64(b[80:], uint64(p.inserted))
	le.PutUint64(b[88:], uint64(p.round))
	copy(b[96:], p.contents[:])
	le.PutUint64(b[128:], uint64(p.base))
	le.PutUint32(b[136:], uint32(p.edges))
	return b
}

func parseParams(c *container) (params, error) {
	var p params
	s, err := c.need("PARM", paramLen)
	if err != nil {
		return p, err
	}
	if err := c.checkCRC(s); err != nil {
		return p, err
	}
	b := s.data
	n, uppers, lists, dups := le.Uint64(b), le.Uint64(b[56:]), le.Uint64(b[64:]), le.Uint64(b[72:])
	inserted, round := le.Uint64(b[80:]), le.Uint64(b[88:])
	p = params{dim: int(le.Uint32(b[8:])), m: int(le.Uint32(b[12:])), efc: int(le.Uint32(b[16:])), metric: Metric(le.Uint32(b[20:])),
		codes: Codes(le.Uint32(b[24:])), full: le.Uint32(b[28:]) == 1, seed: le.Uint64(b[32:]), entryRow: le.Uint32(b[40:]), entryUp: le.Uint32(b[44:]),
		top: int(le.Uint32(b[48:])), maxNorm: math.Float32frombits(le.Uint32(b[52:]))}
	copy(p.contents[:], b[96:])
	switch {
	case n > maxRows || uppers > n || lists > 32*uppers || dups > n || inserted > n || round > math.MaxInt32:
		err = c.bad("PARM", s.off, "%d rows, %d above level 0 with %d lists, %d duplicates", n, uppers, lists, dups)
	case p.dim < 1 || p.dim > maxDim || p.m < 2 || p.m > maxDegree/2:
		err = c.bad("PARM", s.off+8, "%d dimensions, M %d", p.dim, p.m)
	case int(p.metric) >= len(metricNames) || int(p.codes) >= len(codeNames):
		err = c.bad("PARM", s.off+20, "%v, %v", p.metric, p.codes)
	case n > 0 && uint64(p.entryRow) >= n || uint64(p.entryUp) >= max(uppers, 1) || p.top > maxLevel || p.top > 0 && uppers == 0:
		err = c.bad("PARM", s.off+40, "entry %d (%d), top level %d", p.entryRow, p.entryUp, p.top)
	}
	p.n, p.uppers, p.lists, p.dups, p.inserted, p.round = int(n), int(uppers), int(lists), int(dups), int(inserted), int(round)
	p.base, p.edges = int(min(le.Uint64(b[128:]), n)), int(le.Uint32(b[136:]))
	return p, err
}

const (
	maxDim   = 1 << 16
	maxLevel = 15
)

// graphSections checks the sizes of the graph's sections and views them.
func graphSections(c *container, p *params) (*graph, error) {
	g := &graph{n: p.n, m: p.m, entryRow: p.entryRow, entryUp: p.entryUp, top: p.top}
	for _, s := range []struct {
		tag  string
		size int64
		dst  *[]uint32
	}{
		{"LVL0", int64(p.n) * int64(2*p.m) * 4, &g.level0},
		{"UPRW", int64(p.uppers) * 4, &g.upRow},
		{"UPFL", int64(p.uppers+1) * 4, &g.upFirst},
		{"UPLS", int64(p.lists) * int64(p.m) * 4, &g.upLists},
	} {
		x, err := c.need(s.tag, s.size)
		if err != nil {
			return nil, err
		}
		*s.dst = asU32(x.data)
	}
	return g, nil
}

// sections is the graph as it is written.
func (g *graph) sections() []section {
	return []section{u32Section("LVL0", g.level0), u32Section("UPRW", g.upRow), u32Section("UPFL", g.upFirst), u32Section("UPLS", g.upLists)}
}

// mapContainer maps a file and checks its header.
func mapContainer(path, signature string) (*mmapfile.File, *container, error) {
	if !hostIsLittleEndian() {
		return nil, nil, fmt.Errorf("%s: index files are mapped in place, which needs a little-endian CPU", path)
	}
	f, err := mmapfile.Open(path)
	if err != nil {
		return nil, nil, err
	}
	var c *container
	err = guarded(func() (err error) {
		c, err = parseContainer(path, signature, f.Bytes())
		return err
	})
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, c, nil
}

func parseShards(c *container, p *params) ([]Shard, error) {
	s, err := c.need("SHRD", -1)
	if err != nil {
		return nil, err
	}
	if s.len > 16<<20 {
		return nil, c.bad("SHRD", s.off, "%d bytes", s.len)
	}
	if err := c.checkCRC(s); err != nil {
		return nil, err
	}
	var out []Shard
	if err := json.Unmarshal(s.data, &out); err != nil {
		return nil, c.bad("SHRD", s.off, "%v", err)
	}
	n := 0
	for _, x := range out {
		if x.Rows < 0 || x.Rows > maxRows || n+x.Rows > maxRows {
			return nil, c.bad("SHRD", s.off, "%s: %d rows", x.Path, x.Rows)
		}
		n += x.Rows
	}
	if n != p.n {
		return nil, c.bad("SHRD", s.off, "shards of %d rows for a graph of %d", n, p.n)
	}
	return out, nil
}

// shardPath is where a recorded shard lies.
func shardPath(index string, s Shard) string {
	p := filepath.FromSlash(s.Path)
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(filepath.Dir(index), p)
}
