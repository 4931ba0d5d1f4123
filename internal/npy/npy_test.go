package npy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	for _, dtype := range []string{"<f4", "<f2"} {
		p := filepath.Join(t.TempDir(), "a.npy")
		w, err := NewWriter(p, 3, dtype)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			if err := w.WriteRow([]float32{float32(i), -0.5, 1.25}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.WriteRow([]float32{1}); err == nil {
			t.Error("short row accepted")
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		a, err := Open(p)
		if err != nil {
			t.Fatal(err)
		}
		if a.Rows() != 1000 || a.Cols() != 3 || a.DType != dtype {
			t.Fatalf("%v %s", a.Shape, a.DType)
		}
		if r := a.Row32(999, nil); r[0] != 999 || r[1] != -0.5 || r[2] != 1.25 {
			t.Errorf("row 999 = %v", r)
		}
		a.Close()
	}
}

func TestFloat16Overflow(t *testing.T) {
	w, err := NewWriter(filepath.Join(t.TempDir(), "a.npy"), 1, "<f2")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := w.WriteRow([]float32{1e6}); err == nil {
		t.Error("1e6 fits no float16")
	}
}

func TestBadFiles(t *testing.T) {
	good := append(header("<f4", 2, 2), make([]byte, 16)...)
	cases := map[string][]byte{
		"empty":         {},
		"text":          []byte("not an array at all"),
		"truncated":     good[:len(good)-1],
		"trailing":      append(append([]byte{}, good...), 0),
		"header cut":    good[:40],
		"big endian":    append(header(">f4", 2, 2), make([]byte, 16)...),
		"negative":      append(header("<f4", -2, 2), make([]byte, 16)...),
		"overflow":      append(header("<f4", 1<<40, 1<<40), make([]byte, 16)...),
		"huge header":   append([]byte(magic+"\x02\x00\xff\xff\xff\x7f"), good...),
		"other version": append([]byte(magic+"\x09\x00"), good[8:]...),
	}
	for name, b := range cases {
		p := filepath.Join(t.TempDir(), "a.npy")
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(p); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(append(header("<f4", 2, 2), make([]byte, 16)...))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parse(b)
		if err != nil {
			return
		}
		for i := range min(a.Rows(), 100) {
			a.Row32(i, nil)
		}
	})
}
