package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// metaspace marks the beginning of a word in SentencePiece vocabularies.
const metaspace = "\u2581"

// scoreReset is the sum at which SentencePiece subtracts what it has so far, so that a
// long text's sums keep their last digits.
const scoreReset = 100000

// unkPenalty is how much worse than the worst entry an unknown character is.
const unkPenalty = 10

// Unigram is SentencePiece's unigram language model (Kudo 2018): of all ways to cut a
// text into vocabulary entries, the most probable. Texts are normalised first, by the
// rules of a tokenizer.json or of SentencePiece itself, which differ in corners. Of a
// spiece.model, sums are float32 and begin anew past scoreReset, as in SentencePiece.
type Unigram struct {
	vocab     map[string]int32
	tokens    []string
	scores    []float64
	trie      *trie
	special   specials
	isSpecial map[int32]bool
	unk       int32
	unkScore  float64
	bytes     []int32 // ids of <0x00> … <0xFF>, nil = no byte fallback
	float     bool    // sums are kept as float32, as SentencePiece does; else float64
	post      template

	normalizers []normalizer   // of tokenizer.json
	splits      []pretokenizer // of tokenizer.json
	spm         *spmNormalizer // of spiece.model, instead of both
	prepended   bool           // decoding drops the mark before the first word
	pool        sync.Pool      // *scratch
}

var _ Tokenizer = (*Unigram)(nil)

// cell is the best way to reach a byte position.
type cell struct {
	score float64
	start int32 // -1 = not reached
	id    int32
}

type scratch struct {
	cells []cell
	text  []byte
	out   []int32
}

// keepScratch bounds the buffers that are kept between calls, in bytes of text.
const keepScratch = 64 << 10

// finish builds the search structures from tokens and scores. matchable says which
// entries may come from text, scored which of them bound the score of the unknown.
func (u *Unigram) finish(path string, matchable, scored func(id int) bool) error {
	var keys []string
	var values []int32
	worst := math.Inf(1)
	seen := map[string]bool{}
	for i, t := range u.tokens[:len(u.scores)] {
		if math.IsNaN(u.scores[i]) || math.IsInf(u.scores[i], 0) {
			return vocabError(path, "entry %d has score %v", i, u.scores[i])
		}
		if scored(i) {
			worst = min(worst, u.scores[i])
		}
		if !matchable(i) || t == "" {
			continue
		}
		if !seen[t] {
			seen[t] = true
			keys, values = append(keys, t), append(values, int32(i))
		}
	}
	if len(keys) == 0 {
		return vocabError(path, "the vocabulary is empty")
	}
	if u.unk < 0 || int(u.unk) >= len(u.tokens) {
		return vocabError(path, "unknown token id %d", u.unk)
	}
	u.trie = newTrie(keys, values)
	u.unkScore = u.round(worst - unkPenalty)
	u.pool.New = func() any { return new(scratch) }
	return nil
}

func (u *Unigram) round(x float64) float64 {
	if u.float {
		return float64(float32(x))
	}
	return x
}

// AppendPlain implements Tokenizer.
func (u *Unigram) AppendPlain(dst []int32, text string) []int32 {
	s := u.pool.Get().(*scratch)
	text = valid(text)
	if u.spm != nil {
		s.text = u.spm.append(s.text[:0], text)
		dst = u.viterbi(dst, s, s.text)
	} else {
		for _, n := range u.normalizers {
			text = n(text)
		}
		dst = u.split(dst, s, text, 0, len(dst) == 0)
	}
	if cap(s.text) <= keepScratch && cap(s.cells) <= keepScratch {
		u.pool.Put(s)
	}
	return dst
}

// split applies the pre-tokenizers from the i-th on and encodes what they leave.
func (u *Unigram) split(dst []int32, s *scratch, text string, i int, first bool) []int32 {
	if text == "" {
		return dst
	}
	if i == len(u.splits) {
		s.text = append(s.text[:0], text...)
		return u.viterbi(dst, s, s.text)
	}
	p := u.splits[i]
	if p.whitespace {
		for at := 0; at < len(text); {
			n := strings.IndexFunc(text[at:], unicode.IsSpace)
			if n < 0 {
				n = len(text) - at
			}
			if n > 0 {
				dst = u.split(dst, s, text[at:at+n], i+1, first && at == 0)
				at += n
				continue
			}
			_, w := utf8.DecodeRuneInString(text[at:])
			at += w
		}
		return dst
	}
	// Metaspace: the last step of every known tokenizer.json.
	s.text = s.text[:0]
	if (p.prepend == "always" || p.prepend == "first" && first) && !strings.HasPrefix(text, metaspace) && text[0] != ' ' {
		s.text = append(s.text, metaspace...)
	}
	for len(text) > 0 {
		n := strings.IndexByte(text, ' ')
		if n < 0 {
			n = len(text)
		}
		s.text = append(s.text, text[:n]...)
		if n < len(text) {
			s.text = append(s.text, metaspace...)
			n++
		}
		text = text[n:]
	}
	if !p.split {
		return u.viterbi(dst, s, s.text)
	}
	all := s.text
	for len(all) > 0 {
		n := nextMark(all)
		dst = u.viterbi(dst, s, all[:n])
		all = all[n:]
	}
	return dst
}

// nextMark is the position of the first mark after the first byte, or the length.
func nextMark(b []byte) int {
	for i := 1; i+2 < len(b); i++ {
		if b[i] == metaspace[0] && b[i+1] == metaspace[1] && b[i+2] == metaspace[2] {
			return i
		}
	}
	return len(b)
}

// viterbi appends the ids of the best segmentation of text, which is valid UTF-8.
func (u *Unigram) viterbi(dst []int32, s *scratch, text []byte) []int32 {
	n := len(text)
	if cap(s.cells) < n+1 {
		s.cells = make([]cell, n+1+n/4)
	}
	cells := s.cells[:n+1]
	for i := range cells {
		cells[i].start = -1
	}
	cells[0].score = 0
	nodes := u.trie.nodes
	far := 0 // the farthest position reached
	for at := 0; at < n; {
		width := 1
		if text[at] >= utf8.RuneSelf {
			_, width = utf8.DecodeRune(text[at:])
		}
		here := cells[at].score
		if u.float && math.Abs(here) > scoreReset {
			for i := at; i <= far; i++ {
				if i == at || cells[i].start >= 0 {
					cells[i].score = u.round(cells[i].score - here)
				}
			}
			here = 0
		}
		whole := false
		node := int32(0)
		for i := at; i < n; i++ {
			next := nodes[node].base + int32(text[i])
			if int(next) >= len(nodes) || nodes[next].check != node || next == 0 {
				break
			}
			node = next
			if id := nodes[node].value; id >= 0 {
				score := u.round(here + u.scores[id])
				if c := &cells[i+1]; c.start < 0 || score > c.score {
					*c = cell{score, int32(at), id}
				}
				far = max(far, i+1)
				whole = whole || i+1-at == width
			}
		}
		if !whole {
			if c, score := &cells[at+width], u.round(here+u.unkScore); c.start < 0 || score > c.score {
				*c = cell{score, int32(at), u.unk}
			}
			far = max(far, at+width)
		}
		at += width
	}
	// Walk back; neighbouring unknown characters are one token.
	out := s.out[:0]
	for end := n; end > 0; {
		c := cells[end]
		start := int(c.start)
		if c.id == u.unk {
			for start > 0 && cells[start].id == u.unk {
				start = int(cells[start].start)
			}
			out = u.appendUnknown(out, text[start:end])
		} else {
			out = append(out, c.id)
		}
		end = start
	}
	for i := len(out) - 1; i >= 0; i-- {
		dst = append(dst, out[i])
	}
	if cap(out) <= keepScratch {
		s.out = out
	}
	return dst
}

// appendUnknown appends, in reverse, the ids of a run of unknown characters.
func (u *Unigram) appendUnknown(out []int32, text []byte) []int32 {
	if u.bytes == nil {
		return append(out, u.unk)
	}
	for i := len(text) - 1; i >= 0; i-- {
		out = append(out, u.bytes[text[i]])
	}
	return out
}

// EncodeSingle implements Tokenizer with the model's template (T5: text </s>).
func (u *Unigram) EncodeSingle(text string, maxLen int) Encoding {
	return u.single(u.AppendPlain(nil, text), maxLen)
}

func (u *Unigram) single(ids []int32, maxLen int) Encoding { return u.post.encodeSingle(ids, maxLen) }

func (u *Unigram) pair(a, b []int32, maxLen int) Encoding { return u.post.encodePair(a, b, maxLen) }

// EncodePair implements Tokenizer with the model's template (T5: a </s> b </s>).
func (u *Unigram) EncodePair(a, b string, maxLen int) Encoding {
	return u.pair(u.AppendPlain(nil, a), u.AppendPlain(nil, b), maxLen)
}

// SplitSpecial implements Tokenizer.
func (u *Unigram) SplitSpecial(text string) []Piece { return u.special.split(text) }

// Decode implements Tokenizer.
func (u *Unigram) Decode(ids []int32) string {
	var b strings.Builder
	first := true
	for i := 0; i < len(ids); i++ {
		id := ids[i]
		if u.isSpecial[id] {
			continue
		}
		if c, ok := u.byteOf(id); ok {
			run := []byte{c}
			for i+1 < len(ids) {
				c, ok := u.byteOf(ids[i+1])
				if !ok {
					break
				}
				run = append(run, c)
				i++
			}
			b.WriteString(strings.ToValidUTF8(string(run), "\uFFFD"))
			first = false
			continue
		}
		t := u.Token(id)
		if first && u.prepended {
			t = strings.TrimPrefix(t, metaspace)
		}
		first = false
		b.WriteString(strings.ReplaceAll(t, metaspace, " "))
	}
	return b.String()
}

func (u *Unigram) byteOf(id int32) (byte, bool) {
	if u.bytes == nil {
		return 0, false
	}
	var c byte
	if n, err := fmt.Sscanf(u.Token(id), "<0x%02X>", &c); n == 1 && err == nil && u.bytes[c] == id {
		return c, true
	}
	return 0, false
}

// TokenID implements Tokenizer.
func (u *Unigram) TokenID(t string) (int32, bool) { id, ok := u.vocab[t]; return id, ok }

// Token implements Tokenizer.
func (u *Unigram) Token(id int32) string {
	if id < 0 || int(id) >= len(u.tokens) {
		return ""
	}
	return u.tokens[id]
}

// VocabSize implements Tokenizer.
func (u *Unigram) VocabSize() int { return len(u.tokens) }
