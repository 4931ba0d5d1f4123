package tensor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnknownEngine(t *testing.T) {
	if _, err := Open("tpu", Options{}); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

func TestBogusPlugin(t *testing.T) {
	if !xlaBuilt {
		if _, err := Open("xla:cpu", Options{}); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		return
	}
	if _, err := Open("xla:cpu", Options{Plugin: filepath.Join(t.TempDir(), "none.so")}); !errors.Is(err, ErrUnavailable) {
		t.Error("missing plugin:", err)
	}
	p := filepath.Join(t.TempDir(), "libpjrt_cpu.so")
	if err := os.WriteFile(p, []byte("not a library"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("xla:cpu", Options{Plugin: p}); !errors.Is(err, ErrUnavailable) {
		t.Error("bogus plugin:", err)
	}
	if _, err := Open("auto", Options{Plugin: p, Strict: true}); err == nil {
		t.Error("strict auto fell back")
	}
	e, err := Open("auto", Options{Plugin: p})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Name() != "go" || len(e.Warnings) == 0 {
		t.Errorf("fell back to %s silently", e.Name())
	}
}

func TestEngineIsShared(t *testing.T) {
	a, err := Open("go", Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open("go", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a.Backend() != b.Backend() {
		t.Error("two backends for one engine")
	}
	a.Close()
	if b.Backend().IsFinalized() {
		t.Error("closed under another user")
	}
	b.Close()
	if !strings.HasPrefix(a.Describe(), "go: ") {
		t.Error(a.Describe())
	}
}
