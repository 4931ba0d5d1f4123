package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rag2/corpusio"

	"github.com/klauspost/compress/zstd"
)

func build(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	w, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		size := 20
		if i == n/2 {
			size = 40000 // a passage larger than a frame
		}
		if err := w.Append(&corpusio.Passage{ID: fmt.Sprintf("c:d%d#0", i), Text: strings.Repeat(fmt.Sprint("w", i, " "), size)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestGetAndRow(t *testing.T) {
	for _, n := range []int{0, 1, 3000} {
		dir := build(t, n)
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if s.Len() != n {
			t.Fatalf("%d of %d", s.Len(), n)
		}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := g; i < n; i += 61 {
					p, err := s.Get(i)
					if err != nil || p.ID != fmt.Sprintf("c:d%d#0", i) {
						t.Errorf("row %d: %v %v", i, p.ID, err)
					}
					if r, err := s.Row(p.ID); err != nil || r != i {
						t.Errorf("id %s: row %d, %v", p.ID, r, err)
					}
				}
			}()
		}
		wg.Wait()
		if err := s.Verify(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := s.Get(n); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if _, err := s.Row("nobody"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		s.Close()
	}
}

func TestPlainZstdReadsIt(t *testing.T) {
	dir := build(t, 500)
	f, err := os.Open(filepath.Join(dir, DataFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "\n"); n != 500 {
		t.Errorf("%d lines", n)
	}
}

func TestAbortLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Append(&corpusio.Passage{ID: "a"})
	w.Abort()
	if es, _ := os.ReadDir(dir); len(es) != 0 {
		t.Errorf("left over: %v", es)
	}
}

// Every damage is an error at Open, Get or Verify; never a panic.
func TestDamage(t *testing.T) {
	dir := build(t, 200)
	for _, name := range []string{DataFile, IndexFile} {
		p := filepath.Join(dir, name)
		good, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, b []byte) {
			if err := os.WriteFile(p, b, 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir)
			if err != nil {
				return
			}
			defer s.Close()
			if err := s.Verify(context.Background()); err == nil {
				t.Errorf("%s: %s was not noticed", name, what)
			}
			for i := range s.Len() {
				_, _ = s.Get(i)
			}
		}
		for _, n := range []int{0, 7, 50, 100, len(good) / 2, len(good) - 1} {
			check(fmt.Sprintf("cut at %d", n), good[:n])
		}
		for i := 0; i < len(good)-40; i += 1 + len(good)/60 {
			b := append([]byte(nil), good...)
			b[i] ^= 0x55
			check(fmt.Sprintf("byte %d flipped", i), b)
		}
		if err := os.WriteFile(p, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, IndexFile), []byte("something else entirely"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNotOurs) {
		t.Error(err)
	}
}

func BenchmarkGet(b *testing.B) {
	s, err := Open(build(b, 5000))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(i * 7919 % 5000); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
