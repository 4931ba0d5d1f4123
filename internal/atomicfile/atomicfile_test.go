package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCommitAndAbort(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "a")
	if err := WriteFile(p, []byte("one")); err != nil {
		t.Fatal(err)
	}
	f, err := Create(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("two"); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(p); string(b) != "one" {
		t.Errorf("old contents gone before commit: %q", b)
	}
	f.Abort()
	f.Abort()
	if err := f.Commit(); err == nil {
		t.Error("commit after abort succeeded")
	}
	if b, _ := os.ReadFile(p); string(b) != "one" {
		t.Errorf("abort changed the file: %q", b)
	}
	if err := WriteFile(p, []byte("three")); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(p); string(b) != "three" {
		t.Errorf("got %q", b)
	}
	if es, _ := os.ReadDir(dir); len(es) != 1 {
		t.Errorf("left over: %v", es)
	}
}

func TestCreateInMissingDir(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "no", "a")); err == nil {
		t.Error("want an error")
	}
}
