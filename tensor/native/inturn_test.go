package native

import "testing"

// Every piece is one task's.
func TestInTurn(t *testing.T) {
	for n := range 40 {
		for workers := 1; workers < 7; workers++ {
			seen := make([]bool, n)
			for i := range n {
				p := inTurn(i, n, workers)
				if p < 0 || p >= n || seen[p] {
					t.Fatalf("task %d of %d by %d workers: piece %d", i, n, workers, p)
				}
				seen[p] = true
				if i >= workers && p != inTurn(i-workers, n, workers)+1 {
					t.Fatalf("task %d of %d by %d workers: piece %d does not follow the worker's last", i, n, workers, p)
				}
			}
		}
	}
}
