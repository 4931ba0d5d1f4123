package hnsw

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"unsafe"

	"rag2/internal/mmapfile"
	"rag2/internal/npy"
	"rag2/tensor/simd"
)

// Metric says what nearness is. A score is always the larger the nearer.
type Metric uint32

// The metrics and their scores for a query q and a row x.
const (
	InnerProduct Metric = iota // q·x, vectors as they are
	L2                         // -|q-x|²
	Cosine                     // q·x / (|q||x|)
)

var metricNames = []string{"ip", "l2", "cosine"}

func (m Metric) String() string {
	if int(m) < len(metricNames) {
		return metricNames[m]
	}
	return fmt.Sprintf("metric %d", uint32(m))
}

// ParseMetric reads ip, l2 or cosine.
func ParseMetric(s string) (Metric, error) {
	if i := slices.Index(metricNames, s); i >= 0 {
		return Metric(i), nil
	}
	return 0, fmt.Errorf("metric %q; one of %v", s, metricNames)
}

// MarshalText is the metric's name.
func (m Metric) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the metric's name.
func (m *Metric) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMetric(string(b))
	return err
}

// Shard is one .npy file of an index's vectors, in the order of its rows.
type Shard struct {
	Path string `json:"path"` // relative to the index's folder where possible, with slashes
	Rows int    `json:"rows"`
	// DType is <f4 or <f2 (other numeric types are read, slower).
	DType string `json:"dtype"`
	Size  int64  `json:"size"` // of the file
	// Edges is the CRC-32C of the first and last 4 KiB of the array, compared at open;
	// SHA256 is of the whole array, compared by Verify.
	Edges  uint32 `json:"edges"`
	SHA256 string `json:"sha256"`
}

type shard struct {
	a     *npy.Array
	path  string
	first int
	rows  int
	f32   []float32
	f16   []uint16
}

// vectors is the concatenation of mapped .npy files.
type vectors struct {
	cold   bool // scans ask the disk ahead
	shards []shard
	n, dim int
}

func openVectors(paths []string) (*vectors, error) {
	if len(paths) == 0 {
		return nil, errors.New("no vector files")
	}
	v := &vectors{}
	for _, p := range paths {
		a, err := npy.Open(p)
		if err != nil {
			return nil, errors.Join(err, v.close())
		}
		s := shard{a: a, path: p, first: v.n, rows: a.Rows()}
		v.shards = append(v.shards, s)
		if len(v.shards) == 1 {
			v.dim = a.Cols()
		}
		if a.Cols() != v.dim || v.dim == 0 {
			err = fmt.Errorf("%s: %d columns, %s has %d: %w", p, a.Cols(), paths[0], v.dim, ErrDim)
		} else if v.n += a.Rows(); v.n > maxRows {
			err = fmt.Errorf("%s: more than %d rows in one index; use segments", p, maxRows)
		}
		if err != nil {
			return nil, errors.Join(err, v.close())
		}
	}
	v.tables()
	return v, nil
}

// maxRows is the most rows of one graph: row numbers share 32 bits with a mark.
const maxRows = math.MaxInt32 - 1

func (v *vectors) tables() {
	for i := range v.shards {
		s := &v.shards[i]
		s.f32, _ = s.a.Float32s()
		if b := s.a.Data(); s.a.DType == "<f2" && len(b) > 0 && uintptr(unsafe.Pointer(&b[0]))%2 == 0 {
			s.f16 = unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), len(b)/2)
		}
	}
}

func (v *vectors) close() error {
	var err error
	for _, s := range v.shards {
		err = errors.Join(err, s.a.Close())
	}
	return err
}

func (v *vectors) shardOf(i int) *shard {
	if len(v.shards) == 1 {
		return &v.shards[0]
	}
	return &v.shards[sort.Search(len(v.shards), func(j int) bool { return v.shards[j].first > i })-1]
}

// row is row i as float32: a view into the mapping, or in dst.
func (v *vectors) row(i int, dst []float32) []float32 {
	return v.shardOf(i).row(i, dst)
}

func (s *shard) row(i int, dst []float32) []float32 {
	i -= s.first
	d := s.a.Cols()
	switch {
	case s.f32 != nil:
		return s.f32[i*d : (i+1)*d : (i+1)*d]
	case s.f16 != nil:
		if cap(dst) < d {
			dst = make([]float32, d)
		}
		dst = dst[:d]
		simd.HalfToFloat(dst, s.f16[i*d:(i+1)*d])
		return dst
	}
	return s.a.Row32(i, dst)
}

// raw is row i's bytes in the file.
func (v *vectors) raw(i int) []byte {
	s := v.shardOf(i)
	b := s.a.Data()
	w := len(b) / max(s.rows, 1)
	i -= s.first
	return b[i*w : (i+1)*w]
}

func (s *shard) edges() uint32 {
	b := s.a.Data()
	n := min(len(b), 4096)
	return crc32.Update(crc32.Checksum(b[:n], castagnoli), castagnoli, b[len(b)-n:])
}

// describe makes the records kept in the index file; sums as scan returned them.
func (v *vectors) describe(dir string, sums []string) ([]Shard, error) {
	out := make([]Shard, len(v.shards))
	for i, s := range v.shards {
		st, err := os.Stat(s.path)
		if err != nil {
			return nil, err
		}
		p := s.path
		if abs, err := filepath.Abs(p); err == nil {
			if base, err := filepath.Abs(dir); err == nil {
				if rel, err := filepath.Rel(base, abs); err == nil {
					p = filepath.ToSlash(rel)
				}
			}
		}
		out[i] = Shard{Path: p, Rows: s.rows, DType: s.a.DType, Size: st.Size(), Edges: s.edges(), SHA256: sums[i]}
	}
	return out, nil
}

// checkVector refuses what has no direction.
func checkVector(v []float32) (norm2 float64, err error) {
	var s0, s1 float64
	i := 0
	for ; i+2 <= len(v); i += 2 {
		s0 += float64(v[i]) * float64(v[i])
		s1 += float64(v[i+1]) * float64(v[i+1])
	}
	if i < len(v) {
		s0 += float64(v[i]) * float64(v[i])
	}
	norm2 = s0 + s1
	if !(norm2 > 0 && norm2 < math.MaxFloat32/16) { // sums of scores must fit float32
		return norm2, ErrVector
	}
	return norm2, nil
}

// scanned is what one pass over all vectors finds.
type scanned struct {
	sums     []string  // SHA-256 of each shard's array
	mean     []float32 // of the rows (of the unit rows for Cosine)
	maxNorm  float32
	hashes   []uint64 // of each row's bytes
	contents string   // SHA-256 over the shards' sums: the identity of the data
}

const scanChunk = 4096

// scan reads every vector once, in order, and refuses bad ones.
func (v *vectors) scan(ctx context.Context, metric Metric, workers int) (*scanned, error) {
	r := &scanned{hashes: make([]uint64, v.n), mean: make([]float32, v.dim)}
	chunks := (v.n + scanChunk - 1) / scanChunk
	sums := make([][]float64, chunks)
	norms := make([]float64, chunks)
	digests := make([]hash.Hash, len(v.shards))
	for i := range digests {
		digests[i] = sha256.New()
	}
	err := parallel(ctx, workers, chunks+len(v.shards), func(ctx context.Context, c int) error {
		if c >= chunks { // the digests run beside the sums
			s := &v.shards[c-chunks]
			b := s.a.Data()
			for len(b) > 0 {
				if err := ctx.Err(); err != nil {
					return err
				}
				n := min(len(b), 4<<20)
				digests[c-chunks].Write(b[:n])
				b = b[n:]
			}
			return nil
		}
		sum := make([]float64, v.dim)
		var buf []float32
		for i := c * scanChunk; i < min((c+1)*scanChunk, v.n); i++ {
			buf = v.row(i, buf)
			n2, err := checkVector(buf)
			if err != nil {
				s := v.shardOf(i)
				return fmt.Errorf("%s: row %d: %w", s.path, i-s.first, err)
			}
			norms[c] = max(norms[c], n2)
			f := 1.0
			if metric == Cosine {
				f = 1 / math.Sqrt(n2)
			}
			for j, x := range buf {
				sum[j] += f * float64(x)
			}
			r.hashes[i] = hashRow(v.raw(i))
		}
		sums[c] = sum
		return nil
	})
	if err != nil {
		return nil, err
	}
	total := make([]float64, v.dim)
	most := 0.0
	for c, s := range sums {
		for j, x := range s {
			total[j] += x
		}
		most = max(most, norms[c])
	}
	for j := range total {
		r.mean[j] = float32(total[j] / float64(max(v.n, 1)))
	}
	r.maxNorm = float32(math.Sqrt(most))
	all := sha256.New()
	for i, d := range digests {
		s := hex.EncodeToString(d.Sum(nil))
		r.sums = append(r.sums, s)
		fmt.Fprintf(all, "%s %d %s\n", v.shards[i].a.DType, v.shards[i].rows, s)
	}
	r.contents = hex.EncodeToString(all.Sum(nil))
	return r, nil
}

// hashRow is a 64-bit hash that spreads well; equal hashes are compared in full.
func hashRow(b []byte) uint64 {
	h := uint64(0x9e3779b97f4a7c15) ^ uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h ^= binary.LittleEndian.Uint64(b)
		h *= 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	for _, x := range b {
		h = (h ^ uint64(x)) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h
}

// duplicates finds rows with the bytes of an earlier row: pairs of row and the first
// row like it, sorted by first and row.
func (v *vectors) duplicates(hashes []uint64) [][2]uint32 {
	order := make([]uint32, len(hashes))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		switch {
		case hashes[a] < hashes[b]:
			return -1
		case hashes[a] > hashes[b]:
			return 1
		}
		return int(a) - int(b)
	})
	var out [][2]uint32
	for i := 0; i < len(order); {
		j := i + 1
		for j < len(order) && hashes[order[j]] == hashes[order[i]] {
			j++
		}
		var firsts []uint32 // more than one only when hashes collide
		for _, r := range order[i:j] {
			f := slices.IndexFunc(firsts, func(x uint32) bool { return string(v.raw(int(x))) == string(v.raw(int(r))) })
			if f < 0 {
				firsts = append(firsts, r)
			} else {
				out = append(out, [2]uint32{r, firsts[f]})
			}
		}
		i = j
	}
	slices.SortFunc(out, func(a, b [2]uint32) int {
		if a[1] != b[1] {
			return int(a[1]) - int(b[1])
		}
		return int(a[0]) - int(b[0])
	})
	return out
}

// guarded runs f over mapped bytes.
func guarded(f func() error) error { return mmapfile.Guard(f) }
