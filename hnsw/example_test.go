package hnsw_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"rag2/hnsw"
	"rag2/internal/npy"
)

func Example() {
	dir, err := os.MkdirTemp("", "hnsw")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	vectors := filepath.Join(dir, "vectors.npy")
	w, err := npy.NewWriter(vectors, 2, "<f4")
	if err != nil {
		log.Fatal(err)
	}
	for i := range 100 {
		if err := w.WriteRow([]float32{float32(i), float32(100 - i)}); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	index := filepath.Join(dir, "index.hnsw")
	if err := hnsw.Build(ctx, vectors, index, hnsw.BuildOptions{Metric: hnsw.L2, Codes: hnsw.Int8}); err != nil {
		log.Fatal(err)
	}
	x, err := hnsw.Open(index)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	hits, _, err := x.Search(ctx, []float32{42.4, 57.6}, 2, hnsw.SearchOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range hits {
		fmt.Printf("row %d, squared distance %.2f\n", h.Row, -h.Score)
	}
	// Output:
	// row 42, squared distance 0.32
	// row 43, squared distance 0.72
}
