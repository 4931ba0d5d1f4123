package hnsw

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
)

// params describes the build so far.
func (b *builder) params() params {
	p := params{n: b.v.n, dim: b.v.dim, m: b.o.M, efc: b.o.EfConstruction, metric: b.o.Metric, codes: b.o.Codes, seed: b.o.Seed,
		entryRow: b.g.entryRow, entryUp: b.g.entryUp, top: b.g.top, uppers: len(b.g.upRow), lists: len(b.g.upLists) / b.o.M,
		dups: len(b.dups), maxNorm: b.scan.maxNorm, full: b.o.FullPrecision, inserted: b.pos, round: b.round, base: b.baseRows, edges: edgeRule}
	h, _ := hex.DecodeString(b.scan.contents)
	copy(p.contents[:], h)
	return p
}

// write puts the finished index in place.
func (b *builder) write(ctx context.Context) error {
	shards, err := b.v.describe(filepath.Dir(b.path), b.scan.sums)
	if err != nil {
		return err
	}
	w := indexWriter{p: b.params(), shards: shards, mean: b.scan.mean, norms: b.norms, g: b.g, workers: b.o.Workers}
	for _, d := range b.dups {
		w.dups = append(w.dups, d[1], d[0])
	}
	if b.t.kind == table8 {
		w.int8 = b.t.bytes
	}
	return w.write(ctx, b.path, b.v)
}

// indexWriter is what an index file is made of.
type indexWriter struct {
	p       params
	shards  []Shard
	mean    []float32
	dups    []uint32
	norms   []float32 // nil for InnerProduct
	g       *graph
	workers int
	int8    []byte // 8-bit codes, where they have been made
}

func (w *indexWriter) write(ctx context.Context, path string, v *vectors) error {
	sh, err := json.Marshal(w.shards)
	if err != nil {
		return err
	}
	parts := []section{bytesSection("PARM", w.p.bytes()), bytesSection("SHRD", sh), bytesSection("MEAN", f32Bytes(w.mean)), u32Section("DUPS", w.dups)}
	if w.norms != nil {
		parts = append(parts, bytesSection("NORM", f32Bytes(w.norms)))
	}
	g := w.g.sections()
	parts = append(parts, g[1], g[2], g[3], g[0])
	switch {
	case w.p.codes == NoCodes:
	case w.p.codes == Int8 && w.int8 != nil:
		parts = append(parts, bytesSection("CODE", w.int8))
	default:
		var proj []float32
		if w.p.codes == Principal {
			if proj, err = newProjection(ctx, v, w.p.metric, w.mean, w.p.seed, w.workers); err != nil {
				return err
			}
			parts = append(parts, bytesSection("PROJ", f32Bytes(proj)))
		}
		c := newCoder(w.p.codes, w.p.metric, w.mean, w.p.seed, proj)
		stride := codeStride(w.p.codes, v.dim)
		parts = append(parts, section{"CODE", int64(stride) * int64(v.n), func(to io.Writer) error {
			const chunk = 1 << 14
			buf := make([]byte, chunk*stride)
			for i := 0; i < v.n; i += chunk {
				e := min(i+chunk, v.n)
				if err := encodeRows(ctx, v, c, w.workers, i, e, buf); err != nil {
					return err
				}
				if _, err := to.Write(buf[:(e-i)*stride]); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	return writeFile(path, magic, parts)
}

// Recode writes to path the index of the same vectors with other codes and the same
// graph: the file that Build would make with those codes, without building. The graph
// is checked against its checksum, the vectors against the record of their content only
// by size and edges, as Open does. Memory is that of a piece of codes.
func Recode(ctx context.Context, index, path string, codes Codes) error {
	if int(codes) >= len(codeNames) {
		return fmt.Errorf("recode %s: codes %d are unknown", index, codes)
	}
	x, err := Open(index)
	if err != nil {
		return err
	}
	defer x.Close()
	return guarded(func() error {
		if err := x.c.verify(); err != nil {
			return err
		}
		w := indexWriter{p: x.p, mean: asF32(x.c.part("MEAN").data), dups: x.dups, norms: x.norms, g: x.g, workers: runtime.GOMAXPROCS(0)}
		w.p.codes = codes
		var sums []string
		for _, s := range x.shards {
			sums = append(sums, s.SHA256)
		}
		if w.shards, err = x.v.describe(filepath.Dir(path), sums); err != nil {
			return err
		}
		return w.write(ctx, path, x.v)
	})
}
