package corpusio

import (
	"fmt"
	"strings"
	"testing"
)

func TestChunkCoversAndAdvances(t *testing.T) {
	var ws []string
	for i := range 1000 {
		ws = append(ws, fmt.Sprint("w", i))
	}
	for _, o := range []ChunkOptions{{}, {Words: 7, Overlap: 3}, {Words: 1, Overlap: -1}, {Words: 2000}} {
		d, err := o.Defaults()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 6, 7, 8, 127, 128, 129, 1000} {
			r := &Record{Corpus: "c", ID: "d", Sections: []Section{{Text: strings.Join(ws[:n], " ")}}}
			ps, err := Chunk(r, o)
			if err != nil {
				t.Fatal(err)
			}
			ids := map[string]bool{}
			next := 0
			for i, p := range ps {
				got := strings.Fields(p.Text)
				if len(got) > d.Words || p.End-p.Start != len(got) || got[0] != ws[p.Start] || ids[p.ID] {
					t.Fatalf("%+v n=%d: passage %d is %d words from %d to %d", o, n, i, len(got), p.Start, p.End)
				}
				if i > 0 && p.Start != ps[i-1].Start+d.Words-d.Overlap {
					t.Fatalf("overlap is not %d", d.Overlap)
				}
				ids[p.ID] = true
				next = p.End
			}
			if next != n {
				t.Errorf("%+v: %d of %d words covered", o, next, n)
			}
		}
	}
}

func TestChunkHostile(t *testing.T) {
	if _, err := Chunk(&Record{}, ChunkOptions{Words: 10, Overlap: 10}); err == nil {
		t.Error("overlap = size was accepted")
	}
	dna := &Record{Corpus: "c", ID: "d", Sections: []Section{{Text: strings.Repeat("GATTACA", 715)}}}
	ps, err := Chunk(dna, ChunkOptions{})
	if err != nil || len(ps) == 0 {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(ps[0].Text, " ", ""); len(got) != 5005 {
		t.Errorf("%d of 5005 characters", len(got))
	}
	ps, _ = Chunk(&Record{Corpus: "c", ID: "d", Title: "only a title"}, ChunkOptions{})
	if len(ps) != 1 || ps[0].Text != "only a title" {
		t.Errorf("%+v", ps)
	}
	ps, _ = Chunk(&Record{Corpus: "c", ID: "d", Sections: []Section{{Text: " \n "}}}, ChunkOptions{})
	if len(ps) != 0 {
		t.Errorf("%+v", ps)
	}
	long := strings.Repeat("word ", 50)
	ps, _ = Chunk(&Record{Corpus: "c", ID: "d", Sections: []Section{{Path: []string{"A"}, Text: long}, {Path: []string{"B"}, Text: long}, {Path: []string{"C"}, Text: "tiny"}}}, ChunkOptions{})
	if len(ps) != 2 || ps[1].Section != "B" || !strings.HasSuffix(ps[1].Text, "\ntiny") {
		t.Errorf("%d passages", len(ps))
	}
}

func BenchmarkChunk(b *testing.B) {
	r := &Record{Corpus: "c", ID: "d", Sections: []Section{{Text: strings.Repeat("Metformin lowers hepatic glucose output. ", 400)}}}
	b.SetBytes(int64(len(r.Sections[0].Text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Chunk(r, ChunkOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
