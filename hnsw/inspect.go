package hnsw

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"rag2/internal/mmapfile"
)

// SectionInfo is a section of a file.
type SectionInfo struct {
	Tag    string `json:"tag"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	CRC32C string `json:"crc32c"`
}

// Inspection is what an index file says of itself.
type Inspection struct {
	Format   int           `json:"format"`
	Features int           `json:"features"`
	Sections []SectionInfo `json:"sections"`
	Info     Info          `json:"info"`
	Settings Settings      `json:"settings"`
}

// Inspect reads the header of an index; its vectors need not be there.
func Inspect(path string) (*Inspection, error) {
	f, c, err := mapContainer(path, magic)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x := &Index{path: path, f: f, c: c}
	if err := errors.Join(guarded(x.check), x.loadSettings()); err != nil {
		return nil, err
	}
	in := &Inspection{Format: formatVersion, Features: int(c.features), Info: x.Info(), Settings: x.set}
	for _, p := range c.parts {
		in.Sections = append(in.Sections, SectionInfo{p.tag, p.off, p.len, fmt.Sprintf("%08x", p.crc)})
	}
	return in, nil
}

// Resident is how much of an index's mapped files lies in memory, by section.
type Resident struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Total int64  `json:"total"`
}

// Resident asks the kernel which pages of the index and its vectors are in memory.
// Sections copied by OpenOptions.Resident are wholly so.
func (x *Index) Resident() ([]Resident, error) {
	var out []Resident
	for _, p := range x.c.parts {
		n, err := x.f.Resident(int(p.off), int(p.len))
		if err != nil {
			return nil, err
		}
		out = append(out, Resident{p.tag, n, p.len})
	}
	for i, s := range x.v.shards {
		n, err := s.a.Resident()
		if err != nil {
			return nil, err
		}
		out = append(out, Resident{x.shards[i].Path, n, x.shards[i].Size})
	}
	own := int64(0)
	for _, b := range x.own {
		own += int64(len(b))
	}
	return append(out, Resident{"own memory", own, own}), nil
}

// RepairReport says what Repair found and did.
type RepairReport struct {
	Damage     string `json:"damage"` // what Verify said before, "" for nothing
	Lists      int    `json:"lists"`  // neighbour lists with impossible numbers
	Reinserted int    `json:"reinserted"`
}

// Repair rewrites an index whose header and vectors are whole: impossible neighbours
// are dropped, rows that had any are inserted again, unreachable rows are linked,
// codes and factors are made anew from the vectors. npyPaths are as for Open. An index
// without damage is left as it is.
func Repair(ctx context.Context, path string, npyPaths ...string) (*RepairReport, error) {
	x, err := Open(path, npyPaths...)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	r := &RepairReport{}
	err = x.Verify(ctx)
	if err == nil {
		return r, nil
	}
	var c *ErrCorrupt
	if !errors.As(err, &c) || errors.Is(err, mmapfile.ErrFault) {
		return nil, err
	}
	if c.Section == "SHRD" {
		return nil, err // other vectors: the graph is not theirs
	}
	r.Damage = c.Error()
	paths := make([]string, len(x.v.shards))
	for i, s := range x.v.shards {
		paths[i] = s.path
	}
	b, err := newBuilder(ctx, paths, path, BuildOptions{Metric: x.p.metric, Codes: x.p.codes, M: x.p.m, EfConstruction: x.p.efc, Seed: x.p.seed,
		FullPrecision: x.p.full, CheckpointEvery: -1})
	if err != nil {
		return nil, err
	}
	err = guarded(func() error { return b.salvage(x, r) })
	if err == nil {
		err = b.run(ctx)
	}
	return r, errors.Join(err, b.close())
}

// salvage takes over what is possible of a damaged graph and orders the rest for
// insertion.
func (b *builder) salvage(x *Index, r *RepairReport) error {
	n := uint32(b.v.n)
	copy(b.g.level0, x.g.level0)
	bad := map[uint32]bool{}
	for i := range n {
		ls := b.g.list0(i)
		clean := slices.Clone(used(ls))
		slices.Sort(clean)
		clean = slices.DeleteFunc(slices.Compact(clean), func(y uint32) bool { return y >= n || y == i || b.dup(int(y)) })
		gap := slices.ContainsFunc(ls[len(used(ls)):], func(y uint32) bool { return y != endMark })
		if len(clean) != len(used(ls)) || gap {
			r.Lists++
			bad[i] = true
		}
	}
	// Rows to insert again leave the graph: nothing may lead to them until they are
	// placed.
	for i := range n {
		ls := b.g.list0(i)
		if bad[i] || b.dup(int(i)) {
			setList(ls, nil)
			continue
		}
		setList(ls, slices.DeleteFunc(slices.Clone(used(ls)), func(y uint32) bool { return bad[y] || b.dup(int(y)) }))
	}
	if len(x.g.upLists) == len(b.g.upLists) && slices.Equal(x.g.upRow, b.g.upRow) {
		copy(b.g.upLists, x.g.upLists)
	}
	for u, row := range b.g.upRow {
		for l := 1; b.g.upper(uint32(u), l) != nil; l++ {
			ls := b.g.upper(uint32(u), l)
			kept := slices.DeleteFunc(slices.Clone(used(ls)), func(y uint32) bool {
				return int(y) >= len(b.g.upRow) || b.g.upper(y, l) == nil || bad[b.g.upRow[y]] || int(y) == u
			})
			if bad[row] {
				kept = nil
			}
			slices.Sort(kept)
			setList(ls, slices.Compact(kept))
		}
	}
	var whole, again []uint32
	b.g.top, b.g.entryRow, b.g.entryUp = 0, 0, 0
	first := true
	for _, row := range b.order {
		if bad[row] {
			again = append(again, row)
			continue
		}
		whole = append(whole, row)
		if l := levelOf(b.o.Seed, int(row), b.o.M); first || l > b.g.top {
			first = false
			b.g.top, b.g.entryRow = l, row
			if l > 0 {
				b.g.entryUp = b.g.upNumber(row)
			}
		}
	}
	b.order = append(whole, again...)
	b.pos, r.Reinserted = len(whole), len(again)
	return nil
}
