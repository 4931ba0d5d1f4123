package hnsw

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A segment's file that is cut, damaged inside or of other vectors is neither counted as
// built nor taken; one that a merge has taken and removed is not built again.
func TestImportOfBadUnits(t *testing.T) {
	dir := t.TempDir()
	for i := range 4 {
		p, _ := write(t, 40, 8, uint64(i))
		b, err := os.ReadFile(p)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "PubMed_Embeds_"+string(rune('0'+i))+".npy"), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	for name, spoil := range map[string]func(b, other []byte) []byte{
		"cut":              func(b, _ []byte) []byte { return b[:5000] },
		"empty":            func(b, _ []byte) []byte { return nil },
		"a bit":            func(b, _ []byte) []byte { b[len(b)-3] ^= 4; return b },
		"of other vectors": func(_, other []byte) []byte { return other },
	} {
		out := filepath.Join(t.TempDir(), "set")
		build := func(unit int) (*ImportReport, error) {
			return Import(ctx, dir, out, ImportOptions{Segments: 2, Unit: unit, Build: BuildOptions{Codes: Principal}})
		}
		for _, u := range []int{1, 2} {
			if r, err := build(u); err != nil || r.Reused != 0 {
				t.Fatal(r, err)
			}
		}
		p := unitPath(out, 0, 2)
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(unitPath(out, 1, 2))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, spoil(b, other), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, u := range []int{1, 0} {
			if r, err := build(u); err == nil || !strings.Contains(err.Error(), "remove "+p) {
				t.Errorf("%s, unit %d: %v, %v", name, u, r, err)
			}
		}
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
		if r, err := build(0); err != nil || r.Rows != 160 {
			t.Errorf("%s: after removal %v, %v", name, r, err)
		}
		s, err := OpenSet(out, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		gone, err := s.Merge(ctx, MergeOptions{Segments: 1})
		if err = errors.Join(err, s.Close()); err != nil || len(gone) != 2 {
			t.Fatal(gone, err)
		}
		for _, g := range gone {
			if err := os.Remove(g); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := build(1); err != nil || r.Reused != 1 || exists(p) {
			t.Errorf("%s: after a merge %+v, %v", name, r, err)
		}
	}
}
