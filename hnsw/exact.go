package hnsw

import (
	"context"
	"math"

	"rag2/internal/mmapfile"
	"rag2/tensor/simd"
)

// gemmQueries is from how many queries on a matrix product is faster than tiles.
const gemmQueries = 16

// scanMany is scanRows for many queries: a matrix product tells which rows may come
// among the best of which query, and these few are scored as for a single query. Both
// sums of d products are within d·2⁻²⁴·|q||x| of the true one, hence of each other
// within twice that, so that no hit is missed and every score is that of one query.
func (v *vectors) scanMany(ctx context.Context, metric Metric, norms []float32, qs [][]float32, tops []topK, from, to int, keep func(int) bool) error {
	d, nq := v.dim, len(qs)
	flat := make([]float32, nq*d)
	longest := float32(0)
	for i, q := range qs {
		copy(flat[i*d:], q)
		longest = max(longest, simd.Dot(q, q))
	}
	panels := (nq + simd.PanelWidth - 1) / simd.PanelWidth
	packed := make([]float32, simd.PackedLen(d, nq))
	simd.Pack(packed, flat, d, nq, 1, d, 0, panels)
	slack := 2.1 * float32(d+1) / (1 << 24) * float32(math.Sqrt(float64(longest)))
	rows := make([]float32, exactBlock*d)
	c := make([]float32, exactBlock*nq)
	scratch := make([]float32, simd.GemmScratch)
	least := make([]float32, nq) // scores that a row must reach
	for i := range least {
		least[i] = float32(math.Inf(-1))
	}
	var ids [exactBlock]int
	asked := from
	if keep != nil { // few rows may be read
		asked = to
	}
	for i := from; i < to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		asked = v.readAhead(i, asked, to)
		n := 0
		for scanned := 0; i < to && n < exactBlock && scanned < 1<<16; i++ {
			scanned++
			if keep == nil || keep(i) {
				copy(rows[n*d:(n+1)*d], v.row(i, rows[n*d:(n+1)*d]))
				ids[n] = i
				n++
			}
		}
		g := simd.Gemm{M: n, N: nq, K: d, A: rows, ARow: d, AK: 1, B: packed, C: c, CRow: nq, Scratch: scratch}
		g.Run(0, n, 0, panels)
		for r, id := range ids[:n] {
			x := rows[r*d : (r+1)*d]
			f := float32(1)
			if metric == Cosine {
				f = norms[id]
			}
			e := slack * float32(math.Sqrt(float64(simd.Dot(x, x)))) * f
			row := c[r*nq : (r+1)*nq]
			for j, l := range least[:len(row)] {
				if row[j]*f+e < l { // NaN goes on, as with a single query
					continue
				}
				s := simd.Dot(qs[j], x)
				if metric == Cosine {
					s *= f
				}
				if t := &tops[j]; len(t.hits) < t.k || s >= t.hits[0].Score {
					if t.offer(Hit{id, s}); len(t.hits) == t.k {
						least[j] = t.hits[0].Score
					}
				}
			}
		}
	}
	return nil
}

// scanAhead is the bytes of vectors that a scan of cold files asks the disk for at once.
const scanAhead = 1 << 20

// readAhead asks for the rows that a scan at row at comes to next, as far as they were
// not asked for; it returns up to where they are. Mappings are advised that they are
// read at random, which makes a scan of a cold file wait for every page.
func (v *vectors) readAhead(at, asked, to int) int {
	piece := max(1, scanAhead/(4*v.dim))
	for v.cold && asked < to && asked < at+2*piece {
		s := v.shardOf(asked)
		end := min(asked+piece, to, s.first+s.rows)
		w := len(s.a.Data()) / max(s.rows, 1)
		s.a.AdviseAt((asked-s.first)*w, (end-asked)*w, mmapfile.WillNeed)
		asked = end
	}
	return asked
}
