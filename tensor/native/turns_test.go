package native

import (
	"slices"
	"sync"
	"testing"
)

// Every piece is taken once, each worker's own in order and before others'.
func TestTurns(t *testing.T) {
	for workers := 1; workers <= 5; workers++ {
		x := turns{taken: make([]turn, workers)}
		for n := range 23 {
			x.deal(n)
			taken := make([][]int, workers)
			var wg sync.WaitGroup
			for w := range workers {
				calls := n / workers
				if w < n%workers {
					calls++
				}
				wg.Add(1)
				go func() {
					defer wg.Done()
					for range calls {
						taken[w] = append(taken[w], x.take(w))
					}
				}()
			}
			wg.Wait()
			for w, list := range taken {
				from, to := share(w, n, workers)
				for i, p := range list {
					if own := p >= from && p < to; own && i > 0 && p <= list[i-1] && list[i-1] < to && list[i-1] >= from {
						t.Errorf("%d workers, %d pieces: worker %d took %v", workers, n, w, list)
					}
				}
			}
			all := slices.Concat(taken...)
			slices.Sort(all)
			for i, p := range all {
				if i != p || len(all) != n {
					t.Fatalf("%d workers, %d pieces: taken were %v", workers, n, all)
				}
			}
			// One who works alone takes his own first, then all the rest.
			x.deal(n)
			from, to := share(workers-1, n, workers)
			seen := map[int]bool{}
			for i := range n {
				p := x.take(workers - 1)
				if seen[p] || i < to-from && p != from+i {
					t.Fatalf("%d workers, %d pieces: %d was taken after %d others", workers, n, p, i)
				}
				seen[p] = true
			}
		}
	}
}
