package models

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rag2/models/bert"
	"rag2/models/llama"
	"rag2/models/t5"
	"rag2/models/tokenizer"
	"rag2/tensor"
)

// residentMiB is VmRSS or VmHWM of this process.
func residentMiB(t testing.TB, key string) int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc/self/status: memory is not measured here")
	}
	for l := range strings.Lines(string(b)) {
		if f := strings.Fields(l); len(f) > 1 && f[0] == key+":" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n >> 10
		}
	}
	return 0
}

// TestFullSizeShapes opens and runs the models of RAG2_FULL_DIR (testdata/fullsize.py: checkpoints
// of full size with random weights), and logs times and memory. RAG2_FULL is the engine.
func TestFullSizeShapes(t *testing.T) {
	dir := os.Getenv("RAG2_FULL_DIR")
	if dir == "" {
		t.Skip("RAG2_FULL_DIR is not set: no checkpoints of full size")
	}
	name := os.Getenv("RAG2_FULL")
	if name == "" {
		name = "native"
	}
	e, err := tensor.Open(name, tensor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx := context.Background()
	ids := make([]int32, 128)
	for i := range ids {
		ids[i] = int32(5 + 7*i)
	}
	encs := []tokenizer.Encoding{{IDs: ids, TypeIDs: make([]int32, len(ids))}}
	measure := func(what string, open func() error, run func() error) {
		at := time.Now()
		if err := open(); err != nil {
			t.Fatal(what, err)
		}
		opened := time.Since(at)
		rss := residentMiB(t, "VmRSS")
		if opened > 5*time.Second || rss > 2000 && what != "BERT-base ×3" {
			t.Errorf("%s: opening took %s and %d MiB: it should only map", what, opened, rss)
		}
		at = time.Now()
		if err := run(); err != nil {
			t.Fatal(what, err)
		}
		first := time.Since(at)
		at = time.Now()
		if err := run(); err != nil {
			t.Fatal(what, err)
		}
		t.Logf("%s %s: open %.3f s (RSS %d MiB), first run %.2f s, second %.2f s, RSS %d MiB, high water %d MiB", name, what, opened.Seconds(), rss,
			first.Seconds(), time.Since(at).Seconds(), residentMiB(t, "VmRSS"), residentMiB(t, "VmHWM"))
	}
	t.Run("t5-large", func(t *testing.T) {
		var m *t5.Model
		measure("T5-large", func() (err error) { m, err = t5.Open(e, filepath.Join(dir, "t5-large")); return err }, func() error {
			_, err := inBatches(ctx, encs, 512, 2, 4096, 1, func(_ int, ids, _, lens []int32, batch, length int) ([]float32, error) {
				return m.FirstStep(ids, lens, []int32{3, 4}, batch, length)
			})
			return err
		})
		m.Close()
	})
	t.Run("bert", func(t *testing.T) {
		var ms [3]*bert.Model
		measure("BERT-base ×3", func() (err error) {
			for i := range ms {
				if ms[i], err = bert.Open(e, filepath.Join(dir, "bert-base"), bert.CLS); err != nil {
					return err
				}
			}
			return nil
		}, func() error {
			for _, m := range ms {
				if _, err := forward(ctx, m, encs, 4096, 1); err != nil {
					return err
				}
			}
			return nil
		})
		for _, m := range ms {
			m.Close()
		}
	})
	t.Run("llama", func(t *testing.T) {
		var m *llama.Model
		measure("Llama-3-8B with 4 layers, bf16", func() error {
			x, w, err := llama.Open(e, filepath.Join(dir, "llama-3-8b"))
			if err != nil {
				return err
			}
			m = x
			return w.Close()
		}, func() error {
			s := m.NewSession()
			defer s.Close()
			_, err := s.Feed(ctx, ids[:16])
			return err
		})
		m.Close()
	})
}
