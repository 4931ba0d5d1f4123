// Package fmapeak measures what a core's fused multiply-adds give at most, without any
// memory: benchmarks of products state their share of it.
package fmapeak

import "time"

// loop runs n rounds of independent multiply-adds of float32 in registers.
type loop struct {
	run   func(n int)
	flops float64 // a round
}

// GFLOPs is the best of several short runs on one core, in GFLOP/s, at the width of
// registers named in bits; 0 where there is no loop for it.
func GFLOPs(bits int) float64 {
	l, ok := loops[bits]
	if !ok {
		return 0
	}
	const n = 1 << 17
	best := 0.0
	for range 40 {
		start := time.Now()
		l.run(n)
		best = max(best, n*l.flops/time.Since(start).Seconds()/1e9)
	}
	return best
}
