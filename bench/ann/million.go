package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rag2/hnsw"
	"rag2/tensor/simd"
)

// millionRows is the size of the large run.
const millionRows = 1_000_000

func setPath(c config, n int) string { return filepath.Join(c.work, fmt.Sprintf("synth-%d.npy", n)) }

// makeSet writes n synthetic rows and the queries, unless they are there.
func makeSet(ctx context.Context, c config, n int) (vectors, queries string, err error) {
	vectors, queries = setPath(c, n), filepath.Join(c.work, "synth-queries.npy")
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

// million makes the large set, our indexes of it and hnswlib's, measures search in
// memory and on disk. It may be stopped and started again at any point, also within a
// build.
func million(ctx context.Context, c config) error {
	vectors, queries, err := makeSet(ctx, c, millionRows)
	if err != nil {
		return err
	}
	c.efs = []int{100, 200, 300, 400, 500, 600, 800, 1200, 1600} // the set is forty times as dense as the real one
	d := dataset{name: "million", f16: vectors, queries: []querySet{{"questions", queries}}}
	last := time.Now()
	_, err = step(c, "build million ours 4bit", func() (contestant, error) {
		k := contestant{Name: "ours 4bit", Ours: true, Codes: true}
		start, cpu := time.Now(), cpuSeconds()
		err := hnsw.Build(ctx, vectors, indexPath(c, "million ours 4bit"), hnsw.BuildOptions{Codes: hnsw.FourBit,
			OnCheckpoint: func(took time.Duration) {
				k.Checkpoints, k.CheckpointSeconds = k.Checkpoints+1, k.CheckpointSeconds+took.Seconds()
			},
			Progress: func(done, total int) {
				if time.Since(last) > 10*time.Second {
					last = time.Now()
					fmt.Fprintf(os.Stderr, "%s %d of %d, %.0f s of CPU\n", last.Format("15:04:05"), done, total, cpuSeconds()-cpu)
				}
			}})
		k.Build, k.CPU = time.Since(start).Seconds(), cpuSeconds()-cpu
		return k, err
	})
	if err != nil {
		return err
	}
	if err := buildAll(ctx, c, d); err != nil {
		return err
	}
	// hnswlib last: it takes longer than all before it.
	d.peers = []string{"hnswlib"}
	if err := buildAll(ctx, c, d); err != nil || c.builds {
		return err
	}
	disk, err := step(c, "cold million", func() (string, error) { return cold(ctx, c, indexPath(c, "million"), queries) })
	if err != nil {
		return err
	}
	d.notes = []string{"the set was accepted as like the real one at 24,000 rows (`ann.md`), not at a million, where forty rows surround each real one",
		"builds may have run in the background, with pauses while other things were measured: compare their CPU"}
	r, err := step(c, "search million", func() (result, error) { return measure(ctx, c, d, d.queries[0]) })
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(r.Contestants, func(k contestant) bool { return k.Error != "" }); i >= 0 {
		return fmt.Errorf("%s: %s", r.Contestants[i].Name, r.Contestants[i].Error)
	}
	return writeReport(c.out, "ann-1m", "make bench-ann-1m", []result{r}, disk, simd.Level.String(), c.rounds)
}
