package hnsw_test

import (
	"context"
	"os"
	"testing"

	"rag2/hnsw"
	"rag2/hnsw/hnswtest"
)

type ours struct {
	*hnsw.Index
	exact bool
}

func (o ours) Search(ctx context.Context, q []float32, k, ef int) ([]hnsw.Hit, error) {
	h, _, err := o.Index.Search(ctx, q, k, hnsw.SearchOptions{Ef: ef, Rescore: ef, Exact: o.exact})
	return h, err
}

func maker(t *testing.T, o hnsw.BuildOptions, exact, resident bool) hnswtest.Maker {
	return func(ctx context.Context, path string, m hnsw.Metric) (hnswtest.Index, error) {
		o.Metric = m
		g := path + ".hnsw"
		if err := hnsw.Build(ctx, path, g, o); err != nil {
			return nil, err
		}
		if _, err := os.Stat(g + ".ckpt"); err == nil {
			t.Error("a checkpoint is left")
		}
		x, err := hnsw.OpenWith(g, hnsw.OpenOptions{Resident: resident, Warm: "all"})
		if err != nil {
			return nil, err
		}
		if err := x.Verify(ctx); err != nil {
			t.Error(err)
		}
		return ours{x, exact}, nil
	}
}

func TestConformance(t *testing.T) {
	t.Run("exact", func(t *testing.T) { hnswtest.Run(t, maker(t, hnsw.BuildOptions{}, true, false)) })
	if testing.Short() {
		t.Run("4bit", func(t *testing.T) { hnswtest.Run(t, maker(t, hnsw.BuildOptions{Codes: hnsw.FourBit}, false, true)) })
		return
	}
	t.Run("graph", func(t *testing.T) { hnswtest.Run(t, maker(t, hnsw.BuildOptions{}, false, false)) })
	t.Run("graph of full precision", func(t *testing.T) {
		hnswtest.Run(t, maker(t, hnsw.BuildOptions{FullPrecision: true}, false, true))
	})
	for _, c := range []hnsw.Codes{hnsw.Int8, hnsw.FourBit, hnsw.OneBit, hnsw.Principal} {
		t.Run(c.String(), func(t *testing.T) { hnswtest.Run(t, maker(t, hnsw.BuildOptions{Codes: c}, false, c == hnsw.FourBit)) })
	}
}
