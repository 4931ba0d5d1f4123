package hnsw

import "slices"

// Hit is a row with its score: see Metric.
type Hit struct {
	Row   int
	Score float32
}

// better orders hits: higher score first, then lower row.
func better(a, b Hit) int {
	if a.Score != b.Score {
		if a.Score > b.Score {
			return -1
		}
		return 1
	}
	return a.Row - b.Row
}

// topK keeps the k best hits seen.
type topK struct {
	k    int
	hits []Hit // a heap, worst at 0
}

func (t *topK) reset(k int) { t.k, t.hits = k, t.hits[:0] }

func (t *topK) offer(h Hit) {
	if len(t.hits) < t.k {
		t.hits = append(t.hits, h)
		for i := len(t.hits) - 1; i > 0; {
			p := (i - 1) / 2
			if better(t.hits[i], t.hits[p]) <= 0 {
				break
			}
			t.hits[i], t.hits[p] = t.hits[p], t.hits[i]
			i = p
		}
		return
	}
	if t.k == 0 || better(h, t.hits[0]) >= 0 {
		return
	}
	t.hits[0] = h
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(t.hits) {
			return
		}
		if c+1 < len(t.hits) && better(t.hits[c+1], t.hits[c]) > 0 {
			c++
		}
		if better(t.hits[i], t.hits[c]) >= 0 {
			return
		}
		t.hits[i], t.hits[c] = t.hits[c], t.hits[i]
		i = c
	}
}

func (t *topK) sorted() []Hit {
	slices.SortFunc(t.hits, better)
	return t.hits
}
