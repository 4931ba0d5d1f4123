package hnsw

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// BuildOptions shape an index. The zero value is inner product, M 16,
// efConstruction 200, no codes, all CPUs.
type BuildOptions struct {
	Metric         Metric
	Codes          Codes // what the walk of a search reads; NoCodes: the vectors
	M              int   // neighbours per node above level 0; twice as many at level 0
	EfConstruction int
	Seed           uint64
	Workers        int // goroutines; the file does not depend on it
	// FullPrecision builds the graph from the vectors themselves. Otherwise from 8-bit
	// codes of them, made in memory (dim+8 bytes a row): faster, and as good unless
	// neighbours are closer together than the 8-bit grid.
	FullPrecision bool
	// Checkpoint is where the state of a build is kept; "" is the index's path with
	// ".ckpt". A build that finds a checkpoint of the same vectors and options takes it
	// up and makes the file that an uninterrupted build would have made.
	Checkpoint string
	// CheckpointEvery is the least time between checkpoints, 0 = 20 s; they also wait
	// until they cost less than 3 % of the time. Negative writes none.
	CheckpointEvery time.Duration
	OnCheckpoint    func(took time.Duration) // told after each
	Progress        func(done, total int)

	base string // an index of the first rows whose graph is taken over
}

func (o BuildOptions) defaults() BuildOptions {
	if o.M == 0 {
		o.M = 16
	}
	if o.EfConstruction == 0 {
		o.EfConstruction = max(200, o.M)
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.CheckpointEvery == 0 {
		o.CheckpointEvery = 20 * time.Second
	}
	return o
}

// Validate lists everything that is wrong with the options.
func (o BuildOptions) Validate() error {
	o = o.defaults()
	var errs []error
	if o.M < 2 || o.M > maxDegree/2 {
		errs = append(errs, fmt.Errorf("parameter M is %d, not 2…%d", o.M, maxDegree/2))
	}
	if o.EfConstruction < o.M || o.EfConstruction > 1<<16 {
		errs = append(errs, fmt.Errorf("efConstruction is %d, not M…65536", o.EfConstruction))
	}
	if int(o.Metric) >= len(metricNames) {
		errs = append(errs, fmt.Errorf("metric %d is unknown", o.Metric))
	}
	if int(o.Codes) >= len(codeNames) {
		errs = append(errs, fmt.Errorf("codes %d are unknown", o.Codes))
	}
	if o.Workers < 1 || o.Workers > 4096 {
		errs = append(errs, fmt.Errorf("%d workers, not 1…4096", o.Workers))
	}
	return errors.Join(errs...)
}
