package native

import "sync/atomic"

// turns deals n pieces of work to the workers so that each goes through memory on its
// own, in order: what a kernel fetches ahead of a piece's end is the beginning of the
// worker's next. Who is done with his share takes from another's.
type turns struct {
	n     int
	taken []turn // by worker
}

type turn struct {
	atomic.Int64
	_ [56]byte
}

// share is the pieces of one worker.
func share(worker, n, workers int) (from, to int) {
	return worker * n / workers, (worker + 1) * n / workers
}

// deal begins n pieces; nobody takes any yet.
func (t *turns) deal(n int) {
	t.n = n
	for i := range t.taken {
		t.taken[i].Store(0)
	}
}

// take is the worker's next piece. It may be called n times.
func (t *turns) take(worker int) int {
	for i := range t.taken {
		w := (worker + i) % len(t.taken)
		from, to := share(w, t.n, len(t.taken))
		if int(t.taken[w].Load()) >= to-from {
			continue
		}
		if p := from + int(t.taken[w].Add(1)) - 1; p < to {
			return p
		}
	}
	panic("native: more pieces taken than there are")
}
