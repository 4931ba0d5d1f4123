package models

import (
	"context"
	"fmt"
	"math"
	"slices"

	"rag2/models/bert"
	"rag2/models/tokenizer"
)

// lengthBuckets are the padded lengths that graphs are compiled for.
var lengthBuckets = []int{16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024}

func bucketLength(n, limit int) int {
	for _, b := range lengthBuckets {
		if n <= b {
			return min(b, limit)
		}
	}
	return limit
}

// batchTokens is the padded size of a batch.
const batchTokens = 4096

// forward runs encodings through a network in length-sorted batches of at most
// batchTokens padded tokens and returns one row per encoding, in input order.
func forward(ctx context.Context, m *bert.Model, encs []tokenizer.Encoding) ([][]float32, error) {
	order := make([]int, len(encs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(encs[b].IDs) - len(encs[a].IDs) })
	rows := make([][]float32, len(encs))
	for at := 0; at < len(order); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		length := bucketLength(len(encs[order[at]].IDs), m.Config.Positions)
		batch := 1
		for batch*2*length <= batchTokens && batch < len(order)-at {
			batch *= 2
		}
		n := min(batch, len(order)-at)
		ids := make([]int32, batch*length)
		types := make([]int32, batch*length)
		lens := make([]int32, batch)
		for r := range batch {
			lens[r] = 1 // rows that only fill the batch hold one padding token
			if r < n {
				e := encs[order[at+r]]
				copy(ids[r*length:], e.IDs)
				copy(types[r*length:], e.TypeIDs)
				lens[r] = int32(len(e.IDs))
			}
		}
		out, err := m.Forward(ids, types, lens, batch, length)
		if err != nil {
			return nil, err
		}
		for r := range n {
			row := out[r*m.Out() : (r+1)*m.Out() : (r+1)*m.Out()]
			if err := finite(row); err != nil {
				return nil, fmt.Errorf("input %d: %w", order[at+r], err)
			}
			rows[order[at+r]] = row
		}
		at += n
	}
	return rows, nil
}

func finite(row []float32) error {
	for j, v := range row {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("the network returned %v in column %d", v, j)
		}
	}
	return nil
}

func report(encs []tokenizer.Encoding) (r Report) {
	for _, e := range encs {
		r.Tokens += len(e.IDs)
		if e.Truncated > 0 {
			r.Truncated++
		}
	}
	return
}
