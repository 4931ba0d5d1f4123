package mmapfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestOpenReadsWholeFile(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 100_000} {
		want := bytes.Repeat([]byte("abc7"), n/4+1)[:n]
		p := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(p, want, 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := Open(p)
		if err != nil {
			t.Fatal(err)
		}
		f.Advise(0, f.Len(), Random)
		f.Advise(1, 1<<30, WillNeed)
		if !bytes.Equal(f.Bytes(), want) {
			t.Errorf("size %d: contents differ", n)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error("second Close:", err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a directory was opened")
	}
}

func TestGuardTurnsTruncationIntoError(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("truncation under a mapping is tested on Linux")
	}
	p := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(p, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(p, 0); err != nil {
		t.Fatal(err)
	}
	var sum byte
	err = Guard(func() error {
		sum += f.Bytes()[1<<19]
		return nil
	})
	if !errors.Is(err, ErrFault) {
		t.Fatalf("got %v (sum %d), want ErrFault", err, sum)
	}
}

func TestGuardPassesOtherPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("panic was swallowed")
		}
	}()
	_ = Guard(func() error { panic("mine") })
}
