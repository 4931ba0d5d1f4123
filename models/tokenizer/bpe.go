package tokenizer

import (
	"container/heap"
	"slices"
	"strings"
	"unicode/utf8"
)

// BPE is a byte-level byte-pair encoding.
type BPE struct {
	vocab        map[string]int32
	tokens       []string
	special      specials
	isSpecial    map[int32]bool
	split        splitter
	ranks        map[[2]int32]merge
	bytes        [256]int32 // id of each single byte, -1 when the vocabulary lacks it
	unk          int32      // -1 = none
	bos          int32      // put before a text when addBOS
	addBOS       bool
	ignoreMerges bool // a chunk that is a token is taken whole (Llama-3)
}

type merge struct{ rank, id int32 }

var _ Tokenizer = (*BPE)(nil)

var byteToRune, runeToByte = byteTables()

// byteTables is GPT-2's mapping of bytes to printable characters.
func byteTables() (enc [256]rune, dec map[rune]byte) {
	dec = map[rune]byte{}
	n := rune(0)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r = 256 + n
			n++
		}
		enc[b] = r
		dec[r] = byte(b)
	}
	return
}

// newBPE builds the merge table. merges are "left right" strings in rank order.
func newBPE(path string, tokens []string, merges [][2]string) (*BPE, error) {
	b := &BPE{tokens: tokens, vocab: make(map[string]int32, len(tokens)), ranks: make(map[[2]int32]merge, len(merges)),
		isSpecial: map[int32]bool{}, unk: -1, bos: -1}
	for i, t := range tokens {
		if _, ok := b.vocab[t]; !ok {
			b.vocab[t] = int32(i)
		}
	}
	for i := range b.bytes {
		b.bytes[i] = -1
		if id, ok := b.vocab[string(byteToRune[i])]; ok {
			b.bytes[i] = id
		}
	}
	for i, m := range merges {
		l, ok1 := b.vocab[m[0]]
		r, ok2 := b.vocab[m[1]]
		id, ok3 := b.vocab[m[0]+m[1]]
		if !ok1 || !ok2 || !ok3 {
			return nil, vocabError(path, "merge %d (%q %q) names a token that the vocabulary lacks", i, m[0], m[1])
		}
		if _, dup := b.ranks[[2]int32{l, r}]; !dup {
			b.ranks[[2]int32{l, r}] = merge{int32(i), id}
		}
	}
	return b, nil
}

// AppendPlain implements Tokenizer.
func (b *BPE) AppendPlain(dst []int32, text string) []int32 {
	b.split.each(valid(text), func(chunk string) { dst = b.chunk(dst, chunk) })
	return dst
}

// mapped is the chunk in the vocabulary's byte alphabet.
func mapped(buf []byte, chunk string) []byte {
	for i := 0; i < len(chunk); i++ {
		buf = utf8.AppendRune(buf, byteToRune[chunk[i]])
	}
	return buf
}

func (b *BPE) chunk(dst []int32, s string) []int32 {
	if b.ignoreMerges {
		var tmp [256]byte
		if id, ok := b.vocab[string(mapped(tmp[:0], s))]; ok {
			return append(dst, id)
		}
	}
	n := len(dst)
	for i := 0; i < len(s); i++ {
		id := b.bytes[s[i]]
		if id < 0 {
			if b.unk < 0 {
				continue
			}
			id = b.unk
		}
		dst = append(dst, id)
	}
	if len(dst)-n > 64 {
		return append(dst[:n], b.mergeLong(dst[n:])...)
	}
	return append(dst[:n], b.mergeShort(dst[n:])...)
}

// mergeShort repeatedly applies the best merge, in place; quadratic, for short chunks.
func (b *BPE) mergeShort(ids []int32) []int32 {
	for len(ids) > 1 {
		best, at := merge{rank: 1<<31 - 1}, -1
		for i := 0; i+1 < len(ids); i++ {
			if m, ok := b.ranks[[2]int32{ids[i], ids[i+1]}]; ok && m.rank < best.rank {
				best, at = m, i
			}
		}
		if at < 0 {
			break
		}
		ids[at] = best.id
		ids = append(ids[:at+1], ids[at+2:]...)
	}
	return ids
}

type candidate struct {
	merge
	at, right int32 // positions of the pair
	left, rhs int32 // ids when it was found: stale if they changed
}

type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	x := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return x
}

// mergeLong does the same with a linked list and a heap: n log n.
func (b *BPE) mergeLong(ids []int32) []int32 {
	n := int32(len(ids))
	prev, next := make([]int32, n), make([]int32, n)
	for i := range n {
		prev[i], next[i] = i-1, i+1
	}
	var h candidates
	offer := func(i int32) {
		if i < 0 || next[i] >= n {
			return
		}
		j := next[i]
		if m, ok := b.ranks[[2]int32{ids[i], ids[j]}]; ok {
			heap.Push(&h, candidate{m, i, j, ids[i], ids[j]})
		}
	}
	for i := range n - 1 {
		offer(i)
	}
	for h.Len() > 0 {
		c := heap.Pop(&h).(candidate)
		if ids[c.at] != c.left || next[c.at] != c.right || ids[c.right] != c.rhs {
			continue
		}
		ids[c.at] = c.id
		ids[c.right] = -1
		next[c.at] = next[c.right]
		if next[c.at] < n {
			prev[next[c.at]] = c.at
		}
		offer(prev[c.at])
		offer(c.at)
	}
	out := ids[:0]
	for i := int32(0); i < n; i = next[i] {
		out = append(out, ids[i])
	}
	return out
}

func (b *BPE) start() []int32 {
	if b.addBOS && b.bos >= 0 {
		return []int32{b.bos}
	}
	return nil
}

// EncodeSingle encodes text after the beginning-of-text token, if the model has one.
func (b *BPE) EncodeSingle(text string, maxLen int) Encoding {
	return b.single(b.AppendPlain(nil, text), maxLen)
}

func (b *BPE) single(text []int32, maxLen int) Encoding {
	ids := slices.Insert(text, 0, b.start()...)
	e := Encoding{IDs: ids}
	if maxLen > 0 && len(ids) > maxLen {
		e.IDs, e.Truncated = ids[:maxLen], len(ids)-maxLen
	}
	e.TypeIDs = make([]int32, len(e.IDs))
	return e
}

// EncodePair joins both texts without a separator.
func (b *BPE) EncodePair(x, y string, maxLen int) Encoding {
	return b.pair(b.AppendPlain(nil, x), b.AppendPlain(nil, y), maxLen)
}

func (b *BPE) pair(ix, iy []int32, maxLen int) Encoding {
	ids := b.start()
	room := maxLen - len(ids)
	nx, ny := len(ix), len(iy)
	if maxLen > 0 {
		nx, ny = longestFirst(nx, ny, room)
	}
	e := Encoding{IDs: append(append(ids, ix[:nx]...), iy[:ny]...), Truncated: len(ix) + len(iy) - nx - ny}
	e.TypeIDs = make([]int32, len(e.IDs))
	for i := len(e.IDs) - ny; i < len(e.IDs); i++ {
		e.TypeIDs[i] = 1
	}
	return e
}

// SplitSpecial implements Tokenizer.
func (b *BPE) SplitSpecial(text string) []Piece { return b.special.split(text) }

// Decode implements Tokenizer. Bytes that are not UTF-8 become U+FFFD.
func (b *BPE) Decode(ids []int32) string {
	var out []byte
	for _, id := range ids {
		if !b.isSpecial[id] {
			out = b.appendBytes(out, id)
		}
	}
	return strings.ToValidUTF8(string(out), "\uFFFD")
}

// appendBytes appends the raw bytes of a token, which may end inside a
// character: for streaming.
func (b *BPE) appendBytes(out []byte, id int32) []byte {
	for _, r := range b.Token(id) {
		if c, ok := runeToByte[r]; ok {
			out = append(out, c)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// TokenID implements Tokenizer.
func (b *BPE) TokenID(t string) (int32, bool) { id, ok := b.vocab[t]; return id, ok }

// Token implements Tokenizer.
func (b *BPE) Token(id int32) string {
	if id < 0 || int(id) >= len(b.tokens) {
		return ""
	}
	return b.tokens[id]
}

// VocabSize implements Tokenizer.
func (b *BPE) VocabSize() int { return len(b.tokens) }
