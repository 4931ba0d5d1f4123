package hnsw

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sort"
	"sync"

	"rag2/internal/atomicfile"
	"rag2/internal/mmapfile"
	"rag2/internal/npy"
	"rag2/tensor/simd"
)

const (
	magic     = "RAG2HNSW"
	version   = 1
	headerLen = 128
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (b *builder) write(path string) error {
	le := binary.LittleEndian
	m := b.o.M
	list := func(dst []byte, ids []uint32, room int) []byte {
		dst = le.AppendUint32(dst, uint32(len(ids)))
		for i := range room {
			v := uint32(0)
			if i < len(ids) {
				v = ids[i]
			}
			dst = le.AppendUint32(dst, v)
		}
		return dst
	}
	var level0, index, upper []byte
	lists, uppers := uint32(0), uint64(0)
	for i, ls := range b.links {
		level0 = list(level0, ls[0], 2*m)
		if len(ls) > 1 {
			index = le.AppendUint32(le.AppendUint32(index, uint32(i)), lists)
			uppers++
			for _, l := range ls[1:] {
				upper = list(upper, l, m)
				lists++
			}
		}
	}
	h := make([]byte, headerLen)
	copy(h, magic)
	le.PutUint32(h[8:], version)
	le.PutUint64(h[16:], uint64(len(b.rows)))
	le.PutUint32(h[24:], uint32(b.a.Cols()))
	le.PutUint32(h[28:], uint32(m))
	le.PutUint32(h[32:], uint32(b.o.EfConstruction))
	le.PutUint32(h[36:], b.entry)
	le.PutUint32(h[40:], uint32(b.top))
	le.PutUint32(h[44:], math.Float32bits(b.r))
	le.PutUint64(h[48:], b.o.Seed)
	le.PutUint64(h[56:], uppers)
	for i, s := range [][]byte{level0, index, upper} {
		le.PutUint32(h[64+4*i:], crc32.Checksum(s, castagnoli))
	}
	le.PutUint32(h[12:], crc32.Checksum(h[16:], castagnoli))
	return atomicfile.WriteFile(path, slices.Concat(h, level0, index, upper))
}

// Index is an open graph with its vectors.
type Index struct {
	f                     *mmapfile.File
	a                     *npy.Array
	level0, upIdx, upList []byte
	info                  Info
	pool                  sync.Pool
}

// Info is what the file's header says.
type Info struct {
	N              int     `json:"n"`
	Dim            int     `json:"dim"`
	M              int     `json:"m"`
	EfConstruction int     `json:"ef_construction"`
	Entry          int     `json:"entry"`
	TopLevel       int     `json:"top_level"`
	MaxNorm        float32 `json:"max_norm"`
	Seed           uint64  `json:"seed"`
	Uppers         int     `json:"nodes_above_level_0"`
	Bytes          int     `json:"bytes"`
}

// Open maps the graph and its vectors and checks that they belong together.
func Open(path, npyPath string) (*Index, error) {
	f, err := mmapfile.Open(path)
	if err != nil {
		return nil, err
	}
	x := &Index{f: f}
	x.pool.New = func() any { return &visits{} }
	if err := mmapfile.Guard(x.check); err != nil {
		f.Close()
		return nil, err
	}
	if x.a, err = npy.Open(npyPath); err != nil {
		f.Close()
		return nil, err
	}
	if x.a.Rows() != x.info.N || x.a.Cols() != x.info.Dim {
		x.Close()
		return nil, &ErrCorrupt{path, "header", 16, fmt.Sprintf("graph of %d × %d, but %s holds %d × %d", x.info.N, x.info.Dim, npyPath, x.a.Rows(), x.a.Cols())}
	}
	return x, nil
}

func (x *Index) check() error {
	b, le := x.f.Bytes(), binary.LittleEndian
	bad := func(off int64, format string, args ...any) error {
		return &ErrCorrupt{x.f.Path(), "header", off, fmt.Sprintf(format, args...)}
	}
	if len(b) < 8 || string(b[:8]) != magic {
		return fmt.Errorf("%s: %w", x.f.Path(), ErrNotOurs)
	}
	if len(b) < headerLen {
		return bad(int64(len(b)), "the file is cut")
	}
	if v := le.Uint32(b[8:]); v != version {
		return fmt.Errorf("%s: version %d, this program reads %d: %w", x.f.Path(), v, version, ErrVersion)
	}
	if crc32.Checksum(b[16:headerLen], castagnoli) != le.Uint32(b[12:]) {
		return bad(12, "checksum differs")
	}
	n, up := le.Uint64(b[16:]), le.Uint64(b[56:])
	m := int(le.Uint32(b[28:]))
	if n > math.MaxInt32 || up > n || m < 2 || m > 256 {
		return bad(16, "%d nodes, %d above level 0, M %d", n, up, m)
	}
	x.info = Info{N: int(n), Dim: int(le.Uint32(b[24:])), M: m, EfConstruction: int(le.Uint32(b[32:])), Entry: int(le.Uint32(b[36:])),
		TopLevel: int(le.Uint32(b[40:])), MaxNorm: math.Float32frombits(le.Uint32(b[44:])), Seed: le.Uint64(b[48:]), Uppers: int(up), Bytes: len(b)}
	s0, s1 := x.info.N*4*(1+2*m), x.info.Uppers*8
	if rest := len(b) - headerLen - s0 - s1; rest < 0 || rest%(4*(1+m)) != 0 {
		return bad(16, "sections do not make a file of %d bytes", len(b))
	}
	if x.info.N > 0 && x.info.Entry >= x.info.N || x.info.TopLevel > 30 {
		return bad(36, "entry %d, top level %d", x.info.Entry, x.info.TopLevel)
	}
	b = b[headerLen:]
	x.level0, x.upIdx, x.upList = b[:s0], b[s0:s0+s1], b[s0+s1:]
	return nil
}

// Info describes the graph.
func (x *Index) Info() Info { return x.info }

// Len is the number of vectors.
func (x *Index) Len() int { return x.info.N }

// Dim is the number of dimensions.
func (x *Index) Dim() int { return x.info.Dim }

// neighbours appends the neighbours of id at a level to dst. Rows outside the
// graph, which only a damaged file holds, are left out.
func (x *Index) neighbours(dst []uint32, id uint32, level int) []uint32 {
	le := binary.LittleEndian
	m := 2 * x.info.M
	var b []byte
	if level == 0 {
		b = x.level0[4*(1+m)*int(id):]
	} else {
		m = x.info.M
		i := sort.Search(x.info.Uppers, func(i int) bool { return le.Uint32(x.upIdx[8*i:]) >= id })
		if i == x.info.Uppers || le.Uint32(x.upIdx[8*i:]) != id {
			return dst
		}
		off := 4 * (1 + m) * (int(le.Uint32(x.upIdx[8*i+4:])) + level - 1)
		if off+4*(1+m) > len(x.upList) {
			return dst
		}
		b = x.upList[off:]
	}
	for i := range min(int(le.Uint32(b)), m) {
		if v := le.Uint32(b[4+4*i:]); int(v) < x.info.N {
			dst = append(dst, v)
		}
	}
	return dst
}

// SearchOptions steer a search.
type SearchOptions struct {
	Ef    int            // breadth; 0 = max(64, 2k); never below k
	Exact bool           // scan instead of walking the graph
	Keep  func(int) bool // rows that may be returned; such a search is exact
}

// Stats counts the work of a search.
type Stats struct {
	VectorReads int  `json:"vector_reads"`
	NodeReads   int  `json:"node_reads"`
	Exact       bool `json:"exact"`
}

// Search returns the k rows with the largest inner product, best first. k larger
// than the number of vectors gives them all.
func (x *Index) Search(ctx context.Context, q []float32, k int, opt SearchOptions) ([]Hit, Stats, error) {
	if opt.Exact || opt.Keep != nil || x.info.N <= k {
		h, err := Exact(ctx, x.a, q, k, opt.Keep)
		return h, Stats{VectorReads: x.info.N, Exact: true}, err
	}
	var st Stats
	if len(q) != x.info.Dim {
		return nil, st, fmt.Errorf("query has %d, vectors %d: %w", len(q), x.info.Dim, ErrDim)
	}
	if _, err := checkVector(q); err != nil {
		return nil, st, fmt.Errorf("query: %w", err)
	}
	if k < 1 {
		return nil, st, fmt.Errorf("k is %d, at least 1 is needed", k)
	}
	if err := ctx.Err(); err != nil {
		return nil, st, err
	}
	ef := opt.Ef
	if ef == 0 {
		ef = max(64, 2*k)
	}
	ef = max(ef, k)
	v := x.pool.Get().(*visits)
	defer x.pool.Put(v)
	var hits []Hit
	err := mmapfile.Guard(func() error {
		var buf []float32
		var ids []uint32
		dist := func(id uint32) float32 {
			st.VectorReads++
			buf = x.a.Row32(int(id), buf)
			return -simd.Dot(q, buf)
		}
		e := uint32(x.info.Entry)
		at := []cand{{dist(e), e}}
		for l := x.info.TopLevel; l >= 0; l-- {
			w := 1
			if l == 0 {
				w = ef
			}
			at = searchLayer(v, x.info.N, w, at, func(id uint32) []uint32 {
				st.NodeReads++
				ids = x.neighbours(ids[:0], id, l)
				return ids
			}, dist)
		}
		for _, c := range at[:min(k, len(at))] {
			hits = append(hits, Hit{int(c.id), -c.d})
		}
		return nil
	})
	return hits, st, err
}

// Verify rereads the graph: checksums, neighbour ranges, reachability of every node.
func (x *Index) Verify(ctx context.Context) error {
	return mmapfile.Guard(func() error {
		h := x.f.Bytes()
		off := int64(headerLen)
		for i, s := range [][]byte{x.level0, x.upIdx, x.upList} {
			name := []string{"level 0", "upper index", "upper lists"}[i]
			if crc32.Checksum(s, castagnoli) != binary.LittleEndian.Uint32(h[64+4*i:]) {
				return &ErrCorrupt{x.f.Path(), name, off, "checksum differs"}
			}
			off += int64(len(s))
		}
		if x.info.N == 0 {
			return nil
		}
		seen := make([]bool, x.info.N)
		stack := []uint32{uint32(x.info.Entry)}
		seen[x.info.Entry] = true
		count := 1
		var ids []uint32
		for n := 0; len(stack) > 0; n++ {
			if n%4096 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			id := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			ids = x.neighbours(ids[:0], id, 0)
			for _, y := range ids {
				if !seen[y] {
					seen[y] = true
					count++
					stack = append(stack, y)
				}
			}
		}
		if count != x.info.N {
			return &ErrCorrupt{x.f.Path(), "level 0", headerLen, fmt.Sprintf("%d of %d nodes cannot be reached", x.info.N-count, x.info.N)}
		}
		return nil
	})
}

// Close unmaps graph and vectors.
func (x *Index) Close() error {
	err := x.f.Close()
	if x.a != nil {
		if e := x.a.Close(); err == nil {
			err = e
		}
	}
	return err
}
