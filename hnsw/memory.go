package hnsw

import (
	"unsafe"

	"rag2/internal/mmapfile"
)

// resident copies b into memory of the index's own.
func (x *Index) resident(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return b, nil
	}
	m, err := newMemory(len(b))
	if err != nil {
		return nil, err
	}
	x.own = append(x.own, m)
	copy(m, b)
	return m[:len(b):len(b)], nil
}

// toMemory moves a table of full vectors.
func (t *table) toMemory(x *Index) (err error) {
	switch t.kind {
	case tableF32:
		if t.bytes, err = x.resident(t.bytes); err == nil && len(t.bytes) > 0 {
			t.f32 = asF32(t.bytes)
		}
	case tableF16:
		if t.bytes, err = x.resident(t.bytes); err == nil && len(t.bytes) > 0 {
			t.f16 = unsafe.Slice((*uint16)(unsafe.Pointer(&t.bytes[0])), len(t.bytes)/2)
		}
	}
	return err
}

func (x *Index) residentU32(v []uint32) ([]uint32, error) {
	b, err := x.resident(u32Bytes(v))
	return asU32(b), err
}

// warm tells the kernel how sections will be read: vectors and, unless warmed, graph
// and codes at random; what is warmed is read ahead in the background.
func (x *Index) warm(what string) {
	advise := func(tag string, a mmapfile.Advice) {
		if s := x.c.part(tag); s != nil {
			x.f.Advise(int(s.off), int(s.len), a)
		}
	}
	for _, tag := range []string{"LVL0", "CODE"} {
		advise(tag, mmapfile.Random)
	}
	if what == "graph" || what == "all" {
		advise("LVL0", mmapfile.WillNeed)
	}
	if what == "codes" || what == "all" {
		advise("CODE", mmapfile.WillNeed)
	}
	for _, tag := range []string{"UPRW", "UPFL", "UPLS", "DUPS"} { // small, and read by every search
		if what != "" && what != "none" {
			advise(tag, mmapfile.WillNeed)
		}
	}
	for _, s := range x.v.shards {
		s.a.Advise(mmapfile.Random)
		if what == "all" {
			s.a.Advise(mmapfile.WillNeed)
		}
	}
}

// willNeed starts reading a row in the background.
func (v *vectors) willNeed(row int) {
	s := v.shardOf(row)
	w := len(s.a.Data()) / max(s.rows, 1)
	s.a.AdviseAt((row-s.first)*w, w, mmapfile.WillNeed)
}
