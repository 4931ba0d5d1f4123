package models

import (
	"context"
	"fmt"
	"math"
	"slices"

	"rag2/models/bert"
	"rag2/models/tokenizer"

	"golang.org/x/sync/errgroup"
)

// lengthBuckets are the padded lengths that graphs are compiled for.
var lengthBuckets = []int{16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024}

// bucketLength is the padded length of n tokens, at most limit (the model's
// positions).
func bucketLength(n, limit int) int {
	for _, b := range lengthBuckets {
		if n <= b {
			return min(b, limit)
		}
	}
	return limit
}

// defaultBatchTokens is the padded size of a batch unless the caller says otherwise.
const defaultBatchTokens = 4096

// bucketCount is the number of shapes that forward can ask for: an upper bound of
// compilations.
func bucketCount(positions, budget int) int {
	n, last := 0, 0
	for _, b := range append(slices.Clone(lengthBuckets), positions) {
		if b = min(b, positions); b <= last {
			continue
		}
		last = b
		n++
		for batch := 2; batch*b <= budget; batch *= 2 {
			n++
		}
	}
	return n
}

// span is one batch: encodings order[at:at+n], padded to batch rows of length tokens.
type span struct{ at, n, batch, length int }

// plan cuts encodings, sorted by falling length, into batches: lengths from
// lengthBuckets, rows in powers of two, at most budget padded tokens (one row when a
// single text is longer).
func plan(lengths []int, positions, budget int) []span {
	var out []span
	for at := 0; at < len(lengths); {
		length := bucketLength(lengths[at], positions)
		batch := 1
		for batch*2*length <= budget && batch < len(lengths)-at {
			batch *= 2
		}
		n := min(batch, len(lengths)-at)
		out = append(out, span{at, n, batch, length})
		at += n
	}
	return out
}

// forward runs encodings through a network in length-sorted batches of at most
// budget padded tokens and returns one row per encoding, in input order. Batches run on
// devices 0 … devices-1 at once. The context is checked between batches.
func forward(ctx context.Context, m *bert.Model, encs []tokenizer.Encoding, budget, devices int) ([][]float32, error) {
	return inBatches(ctx, encs, m.Config.Positions, m.Out(), budget, devices, m.ForwardOn)
}

// inBatches is forward for any network: run takes a device, ids and token types
// [batch × length] and the numbers of real tokens, and returns [batch × width]. No
// encoding is empty.
func inBatches(ctx context.Context, encs []tokenizer.Encoding, positions, width, budget, devices int,
	run func(device int, ids, types, lens []int32, batch, length int) ([]float32, error)) ([][]float32, error) {
	order := make([]int, len(encs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(encs[b].IDs) - len(encs[a].IDs) })
	lengths := make([]int, len(order))
	for i, o := range order {
		lengths[i] = len(encs[o].IDs)
	}
	rows := make([][]float32, len(encs))
	one := func(device int, s span) error {
		ids := make([]int32, s.batch*s.length)
		types := make([]int32, s.batch*s.length)
		lens := make([]int32, s.batch)
		for r := range s.batch {
			lens[r] = 1 // rows that only fill the batch hold one padding token
			if r < s.n {
				e := encs[order[s.at+r]]
				copy(ids[r*s.length:], e.IDs)
				copy(types[r*s.length:], e.TypeIDs)
				lens[r] = int32(len(e.IDs))
			}
		}
		out, err := run(device, ids, types, lens, s.batch, s.length)
		if err != nil {
			return err
		}
		for r := range s.n {
			row := out[r*width : (r+1)*width : (r+1)*width]
			if err := finite(row); err != nil {
				return fmt.Errorf("input %d: %w", order[s.at+r], err)
			}
			rows[order[s.at+r]] = row
		}
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(devices)
	idle := make(chan int, devices)
	for d := range devices {
		idle <- d
	}
	for _, s := range plan(lengths, positions, budget) {
		g.Go(func() error {
			if err := gctx.Err(); err != nil {
				return err
			}
			d := <-idle // one is idle: no more goroutines run than there are devices
			defer func() { idle <- d }()
			return one(d, s)
		})
	}
	return rows, g.Wait()
}

// finite reports the first value of a row that is no number.
func finite(row []float32) error {
	for j, v := range row {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("the network returned %v in column %d: %w", v, j, ErrNotFinite)
		}
	}
	return nil
}

// report sums up what was fed to the network.
func report(encs []tokenizer.Encoding) (r Report) {
	for _, e := range encs {
		r.Tokens += len(e.IDs)
		if e.Truncated > 0 {
			r.Truncated++
		}
	}
	return
}
