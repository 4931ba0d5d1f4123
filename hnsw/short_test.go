package hnsw

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"rag2/internal/npy"
)

// Rows and queries whose products vanish in float32 would all score 0, or NaN for Cosine.
func TestVectorsTooShort(t *testing.T) {
	for _, m := range []Metric{InnerProduct, L2, Cosine} {
		p := filepath.Join(t.TempDir(), "v.npy")
		w, err := npy.NewWriter(p, 3, "<f4")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if err := w.WriteRow([]float32{1e-28 * float32(i+1), 3e-28, -1e-28}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := Build(context.Background(), p, p+".hnsw", BuildOptions{Metric: m, Codes: Principal}); !errors.Is(err, ErrVector) {
			t.Errorf("%v: %v", m, err)
		}
		if err := checkQuery([]float32{1e-28, 0, 0}, 3, 1); !errors.Is(err, ErrVector) {
			t.Errorf("query: %v", err)
		}
	}
}
