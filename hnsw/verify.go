package hnsw

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
)

// Verify rereads everything: checksums of all sections, neighbour ranges and list
// order, the levels' structure, that every row is reached from the entry or is a copy
// of one that is, the vectors' content against the recorded SHA-256, and that codes
// are finite. Damage is an *ErrCorrupt.
func (x *Index) Verify(ctx context.Context) error {
	return guarded(func() error {
		if err := x.c.verify(); err != nil {
			return err
		}
		for _, f := range []func(context.Context) error{x.verifyLists, x.verifyUppers, x.verifyReach, x.verifyCodes, x.verifyContents} {
			if err := f(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (x *Index) bad(tag string, off int, format string, a ...any) error {
	return x.c.bad(tag, x.c.part(tag).off+int64(off), format, a...)
}

// verifyLists checks level 0: numbers in range, none twice, no gaps, no self-loops.
func (x *Index) verifyLists(ctx context.Context) error {
	g := x.g
	seen := make([]uint32, g.n) // last row that named it, plus one
	for i := range g.n {
		if i%(1<<16) == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		ls := g.list0(uint32(i))
		u := used(ls)
		for j, y := range ls {
			off := 4 * (i*len(ls) + j)
			switch {
			case j >= len(u):
				if y != endMark {
					return x.bad("LVL0", off, "row %d: a neighbour after the end mark", i)
				}
			case int(y) >= g.n:
				return x.bad("LVL0", off, "row %d: neighbour %d of %d rows", i, y, g.n)
			case int(y) == i || seen[y] == uint32(i)+1:
				return x.bad("LVL0", off, "row %d: neighbour %d is itself or named twice", i, y)
			default:
				seen[y] = uint32(i) + 1
			}
		}
	}
	return nil
}

func (x *Index) verifyUppers(context.Context) error {
	g := x.g
	if len(g.upFirst) > 0 && int(g.upFirst[len(g.upRow)]) != x.p.lists {
		return x.bad("UPFL", 4*len(g.upRow), "does not end with the number of lists")
	}
	for u, r := range g.upRow {
		if int(r) >= g.n || u > 0 && r <= g.upRow[u-1] {
			return x.bad("UPRW", 4*u, "row %d is out of order or range", r)
		}
		if levels := int(g.upFirst[u+1]) - int(g.upFirst[u]); levels < 1 || levels > maxLevel || levels != levelOf(x.p.seed, int(r), g.m) {
			return x.bad("UPFL", 4*u, "row %d has %d levels", r, levels)
		}
		for l := 1; l <= int(g.upFirst[u+1])-int(g.upFirst[u]); l++ {
			for _, y := range used(g.upper(uint32(u), l)) {
				if int(y) >= len(g.upRow) || g.upper(y, l) == nil {
					return x.bad("UPLS", 0, "node %d, level %d: neighbour %d is not of that level", u, l, y)
				}
			}
		}
	}
	if x.p.top > 0 && (g.upRow[g.entryUp] != g.entryRow || g.upper(g.entryUp, g.top) == nil) {
		return x.bad("PARM", 40, "the entry is not a node of the top level")
	}
	return nil
}

func (x *Index) verifyReach(ctx context.Context) error {
	g := x.g
	if g.n == 0 {
		return nil
	}
	r := &reach{g: g, seen: make([]uint64, (g.n+63)/64)}
	if err := r.visit(ctx, g.entryRow); err != nil {
		return err
	}
	for i := 0; i < len(x.dups); i += 2 {
		first, row := x.dups[i], x.dups[i+1]
		if int(row) >= g.n || first >= row || r.has(row) || !r.has(first) || string(x.v.raw(int(row))) != string(x.v.raw(int(first))) {
			return x.bad("DUPS", 4*i, "row %d is no copy of row %d", row, first)
		}
		r.seen[row/64] |= 1 << (row % 64)
		r.count++
	}
	if r.count != g.n {
		return x.bad("LVL0", 0, "%d of %d rows cannot be reached; run repair", g.n-r.count, g.n)
	}
	return nil
}

func (x *Index) verifyCodes(ctx context.Context) error {
	c := x.c.part("CODE")
	if c == nil || x.p.codes == NoCodes {
		return nil
	}
	finite := func(f float32) bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }
	if p := x.c.part("PROJ"); x.p.codes == Principal {
		for i, f := range asF32(p.data) {
			if !finite(f) {
				return x.bad("PROJ", 4*i, "an element is not finite")
			}
		}
	}
	stride := codeStride(x.p.codes, x.p.dim)
	for i := range x.p.n {
		if i%(1<<16) == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		r := c.data[i*stride:]
		for j := 0; j < 8; j += 4 {
			if !finite(math.Float32frombits(le.Uint32(r[j:]))) {
				return x.bad("CODE", i*stride+j, "row %d: a factor is not finite", i)
			}
		}
	}
	return nil
}

// verifyContents rereads the vectors.
func (x *Index) verifyContents(ctx context.Context) error {
	all := sha256.New()
	for i, s := range x.shards {
		h := sha256.New()
		for b := x.v.shards[i].a.Data(); len(b) > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(len(b), 4<<20)
			h.Write(b[:n])
			b = b[n:]
		}
		sum := hex.EncodeToString(h.Sum(nil))
		if sum != s.SHA256 {
			return x.bad("SHRD", 0, "%s: its content is not what the index was built from", x.v.shards[i].path)
		}
		fmt.Fprintf(all, "%s %d %s\n", s.DType, s.Rows, sum)
	}
	if string(all.Sum(nil)) != string(x.p.contents[:]) {
		return x.bad("PARM", 96, "names other contents than the shards")
	}
	return nil
}
