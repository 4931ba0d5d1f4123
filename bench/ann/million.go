package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rag2/hnsw"
)

// millionRows is the size of the large run.
const millionRows = 1_000_000

// makeSet writes n synthetic rows and the queries, unless they are there.
func makeSet(ctx context.Context, c config, n int) (vectors, queries string, err error) {
	vectors = filepath.Join(c.work, fmt.Sprintf("synth-%d.npy", n))
	queries = filepath.Join(c.work, "synth-queries.npy")
	if exists(vectors) && exists(queries) {
		return vectors, queries, nil
	}
	fmt.Fprintf(os.Stderr, "making %d synthetic vectors\n", n)
	real, err := load(filepath.Join(c.data, "passages.npy"))
	if err != nil {
		return "", "", err
	}
	questions, err := load(filepath.Join(c.data, "questions.npy"))
	if err != nil {
		return "", "", err
	}
	g, err := newGenerator(ctx, real, questions, c.work, 1)
	if err != nil {
		return "", "", err
	}
	return vectors, queries, g.write(ctx, n, vectors, queries)
}

func exists(p string) bool { _, err := os.Stat(p); return err == nil }

// million makes the large set and our index of it. It may be stopped and started
// again at any point.
func million(ctx context.Context, c config) error {
	vectors, _, err := makeSet(ctx, c, millionRows)
	if err != nil {
		return err
	}
	index := filepath.Join(c.work, "million-4bit.hnsw")
	if exists(index) {
		return nil
	}
	last := time.Now()
	return hnsw.Build(ctx, vectors, index, hnsw.BuildOptions{Codes: hnsw.FourBit, Progress: func(done, total int) {
		if time.Since(last) > 10*time.Second {
			last = time.Now()
			fmt.Fprintf(os.Stderr, "%s %d of %d, %.0f s of CPU\n", last.Format("15:04:05"), done, total, cpuSeconds())
		}
	}})
}
