package models

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"rag2/tensor"
	_ "rag2/tensor/native" // the engine under test beside GoMLX's own
)

// The vectors of engines that round stay close to those of float32.
func TestRoundingEnginesCosine(t *testing.T) {
	dir := filepath.Join(os.Getenv("RAG2_MODELS_DIR"), "minilm")
	if os.Getenv("RAG2_MODELS_DIR") == "" || !isDirectory(dir) {
		t.Skip("RAG2_MODELS_DIR has no minilm")
	}
	texts := []string{"heart failure", words(24), "Which drug lowers glucose without weight gain?", words(120),
		"Lisinopril is an inhibitor of the angiotensin converting enzyme.", "aspirin"}
	vectors := func(engine string) [][]float32 {
		e, err := tensor.Open(engine, tensor.Options{})
		if errors.Is(err, tensor.ErrUnavailable) {
			t.Logf("not tested on %s: %v", engine, err)
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		enc, err := OpenEncoder(e, EncoderSpec{QueryDir: dir, Pooling: "mean"})
		if err != nil {
			t.Fatal(err)
		}
		defer enc.Close()
		v, _, err := enc.EncodeQueries(context.Background(), texts)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a := vectors("native")
	for engine, least := range map[string]float64{"native:int8": 0.99, "xla:cpu:bf16": 0.9995} {
		b := vectors(engine)
		if b == nil {
			continue
		}
		worst := 1.0
		for i := range a {
			var ab, aa, bb float64
			for j := range a[i] {
				ab += float64(a[i][j]) * float64(b[i][j])
				aa += float64(a[i][j]) * float64(a[i][j])
				bb += float64(b[i][j]) * float64(b[i][j])
			}
			worst = min(worst, ab/math.Sqrt(aa*bb))
		}
		t.Logf("%s: smallest cosine %.5f", engine, worst)
		if worst < least || worst == 1 {
			t.Errorf("%s: cosine %g", engine, worst)
		}
	}
}
