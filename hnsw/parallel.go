package hnsw

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// parallel runs f for 0…n-1 on at most workers goroutines, each guarded against
// faults of mapped files. The first error stops the rest.
func parallel(ctx context.Context, workers, n int, f func(ctx context.Context, i int) error) error {
	if workers = min(workers, n); workers <= 1 {
		return guarded(func() error {
			for i := range n {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := f(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range workers {
		g.Go(func() error {
			return guarded(func() error {
				for {
					i := int(next.Add(1)) - 1
					if i >= n {
						return nil
					}
					if err := ctx.Err(); err != nil {
						return err
					}
					if err := f(ctx, i); err != nil {
						return err
					}
				}
			})
		})
	}
	return g.Wait()
}
