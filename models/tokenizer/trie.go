package tokenizer

import (
	"encoding/binary"
	"slices"
)

// trie finds the vocabulary entries that a text begins with: a double array, where the
// child of node s for byte c is base[s]+c if check says so.
type trie struct {
	nodes []trieNode
}

type trieNode struct {
	base, check int32
	value       int32 // entry that ends here, -1 = none
}

// newTrie builds a trie of keys, which must be distinct and not empty; values[i]
// belongs to keys[i].
func newTrie(keys []string, values []int32) *trie {
	order := make([]int32, len(keys))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		if keys[a] < keys[b] {
			return -1
		}
		return 1
	})
	t := &trie{}
	t.grow(1 << 10)
	t.nodes[0].check = 0 // the root is nobody's child but taken
	type job struct {
		node, from, to, depth int32
	}
	queue := []job{{0, 0, int32(len(order)), 0}}
	free := int32(1)
	var labels []int32
	for len(queue) > 0 {
		j := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		from := j.from
		if from < j.to && len(keys[order[from]]) == int(j.depth) {
			t.nodes[j.node].value = values[order[from]]
			from++
		}
		if from == j.to {
			continue
		}
		labels = labels[:0]
		for i := from; i < j.to; i++ {
			if c := int32(keys[order[i]][j.depth]); len(labels) == 0 || labels[len(labels)-1] != c {
				labels = append(labels, c)
			}
		}
		for int(free) < len(t.nodes) && t.nodes[free].check >= 0 {
			free++
		}
		base := max(free-labels[0], 0)
	search:
		for ; ; base++ {
			t.grow(int(base) + 257)
			for _, c := range labels {
				if t.nodes[base+c].check >= 0 {
					continue search
				}
			}
			break
		}
		t.nodes[j.node].base = base
		for _, c := range labels {
			t.nodes[base+c].check = j.node
		}
		for i := from; i < j.to; {
			c := keys[order[i]][j.depth]
			k := i + 1
			for k < j.to && keys[order[k]][j.depth] == c {
				k++
			}
			queue = append(queue, job{base + int32(c), i, k, j.depth + 1})
			i = k
		}
	}
	return t
}

func (t *trie) grow(n int) {
	for len(t.nodes) < n {
		t.nodes = append(t.nodes, trieNode{check: -1, value: -1})
	}
}

// darts reads the trie of a SentencePiece normalisation map (darts-clone): 32-bit
// units, child position = node ^ label.
type darts []uint32

func newDarts(b []byte) darts {
	d := make(darts, len(b)/4)
	for i := range d {
		d[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return d
}

// prefixes calls f with the length and value of each entry that s begins with,
// shortest first, until f returns false. A damaged array ends the search.
func (d darts) prefixes(s string, f func(n int, value uint32) bool) {
	if len(d) == 0 {
		return
	}
	offset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	at := offset(d[0])
	for i := 0; i < len(s) && s[i] != 0; i++ {
		at ^= uint32(s[i])
		if at >= uint32(len(d)) {
			return
		}
		u := d[at]
		if u&(1<<31|0xff) != uint32(s[i]) {
			return
		}
		at ^= offset(u)
		if u>>8&1 == 1 {
			if at >= uint32(len(d)) || !f(i+1, d[at]&(1<<31-1)) {
				return
			}
		}
	}
}
