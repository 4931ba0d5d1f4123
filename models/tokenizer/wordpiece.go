package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// WordPiece is BERT's tokenizer: the BERT normaliser, a split at white space and
// punctuation, and greedy longest-match pieces.
type WordPiece struct {
	vocab               map[string]int32
	tokens              []string
	special             specials
	isSpecial           map[int32]bool
	prefix              string
	unk, cls, sep       int32
	maxChars            int
	lower, accents, cjk bool // lower-case; strip accents; space around CJK
	clean               bool
}

var _ Tokenizer = (*WordPiece)(nil)

func isOther(r rune) bool { // Unicode categories Cc, Cf, Cn, Co
	return !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z)
}

func isCJK(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FFF || r >= 0x3400 && r <= 0x4DBF || r >= 0x20000 && r <= 0x2A6DF ||
		r >= 0x2A700 && r <= 0x2B73F || r >= 0x2B740 && r <= 0x2B81F || r >= 0x2B820 && r <= 0x2CEAF ||
		r >= 0xF900 && r <= 0xFAFF || r >= 0x2F800 && r <= 0x2FA1F
}

func isPunct(r rune) bool {
	if r < 128 {
		return r >= '!' && r <= '/' || r >= ':' && r <= '@' || r >= '[' && r <= '`' || r >= '{' && r <= '~'
	}
	return unicode.Is(unicode.P, r)
}

// normalize applies the BERT normaliser.
func (w *WordPiece) normalize(text string) string {
	ascii := true
	for i := 0; i < len(text); i++ {
		if text[i] >= 128 {
			ascii = false
			break
		}
	}
	var b strings.Builder
	b.Grow(len(text))
	if ascii {
		for i := 0; i < len(text); i++ {
			c := text[i]
			switch {
			case w.clean && (c == '\t' || c == '\n' || c == '\r'):
				c = ' '
			case w.clean && (c < 32 || c == 127):
				continue
			case w.lower && c >= 'A' && c <= 'Z':
				c += 'a' - 'A'
			}
			b.WriteByte(c)
		}
		return b.String()
	}
	for _, r := range valid(text) {
		if w.clean {
			if r == 0 || r == utf8.RuneError {
				continue
			}
			if r == '\t' || r == '\n' || r == '\r' {
				b.WriteByte(' ')
				continue
			}
			if isOther(r) { // U+0085 too, although it is white space
				continue
			}
			if unicode.IsSpace(r) {
				b.WriteByte(' ')
				continue
			}
		}
		if w.cjk && isCJK(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(r)
	}
	s := b.String()
	if w.accents {
		s = norm.NFD.String(s)
		s = strings.Map(func(r rune) rune {
			if unicode.Is(unicode.Mn, r) {
				return -1
			}
			return r
		}, s)
	}
	if w.lower {
		s = lower(s)
	}
	return s
}

// lower is full lower-casing rune by rune: İ becomes i and a combining dot.
func lower(s string) string {
	if strings.ContainsRune(s, 'İ') {
		s = strings.ReplaceAll(s, "İ", "i̇")
	}
	return strings.Map(unicode.ToLower, s)
}

// AppendPlain implements Tokenizer.
func (w *WordPiece) AppendPlain(dst []int32, text string) []int32 {
	s := w.normalize(text)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if unicode.IsSpace(r) {
			i += n
			continue
		}
		if isPunct(r) {
			dst = w.word(dst, s[i:i+n])
			i += n
			continue
		}
		j := i + n
		for j < len(s) {
			r, n := utf8.DecodeRuneInString(s[j:])
			if unicode.IsSpace(r) || isPunct(r) {
				break
			}
			j += n
		}
		dst = w.word(dst, s[i:j])
		i = j
	}
	return dst
}

// word appends the pieces of one word, or the unknown token.
func (w *WordPiece) word(dst []int32, s string) []int32 {
	if len(s) > w.maxChars && utf8.RuneCountInString(s) > w.maxChars {
		return append(dst, w.unk)
	}
	if id, ok := w.vocab[s]; ok {
		return append(dst, id)
	}
	var buf [4*128 + 16]byte
	n := len(dst)
	for start := 0; start < len(s); {
		end := len(s)
		for ; end > start; end-- {
			if end < len(s) && !utf8.RuneStart(s[end]) {
				continue
			}
			var id int32
			var ok bool
			if start == 0 {
				id, ok = w.vocab[s[:end]]
			} else {
				id, ok = w.vocab[string(append(append(buf[:0], w.prefix...), s[start:end]...))]
			}
			if ok {
				dst = append(dst, id)
				break
			}
		}
		if end == start {
			return append(dst[:n], w.unk)
		}
		start = end
	}
	return dst
}

// EncodeSingle gives [CLS] text [SEP].
func (w *WordPiece) EncodeSingle(text string, maxLen int) Encoding {
	return w.single(w.AppendPlain(make([]int32, 0, 8+len(text)/3), text), maxLen)
}

func (w *WordPiece) single(text []int32, maxLen int) Encoding {
	ids := slices.Insert(text, 0, w.cls)
	cut := 0
	if maxLen > 0 && len(ids)+1 > maxLen {
		keep := max(maxLen-1, 1)
		cut = len(ids) - keep
		ids = ids[:keep]
	}
	ids = append(ids, w.sep)
	return Encoding{IDs: ids, TypeIDs: make([]int32, len(ids)), Truncated: cut}
}

// EncodePair gives [CLS] a [SEP] b [SEP] with token types 0 and 1.
func (w *WordPiece) EncodePair(a, b string, maxLen int) Encoding {
	return w.pair(w.AppendPlain(nil, a), w.AppendPlain(nil, b), maxLen)
}

func (w *WordPiece) pair(ia, ib []int32, maxLen int) Encoding {
	na, nb := len(ia), len(ib)
	if maxLen > 0 {
		na, nb = longestFirst(na, nb, maxLen-3)
	}
	e := Encoding{IDs: make([]int32, 0, na+nb+3), TypeIDs: make([]int32, na+nb+3), Truncated: len(ia) + len(ib) - na - nb}
	e.IDs = append(append(append(e.IDs, w.cls), ia[:na]...), w.sep)
	e.IDs = append(append(e.IDs, ib[:nb]...), w.sep)
	for i := na + 2; i < len(e.TypeIDs); i++ {
		e.TypeIDs[i] = 1
	}
	return e
}

// SplitSpecial implements Tokenizer.
func (w *WordPiece) SplitSpecial(text string) []Piece { return w.special.split(text) }

// Decode joins pieces with spaces, continuation pieces without.
func (w *WordPiece) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		t := w.Token(id)
		if w.isSpecial[id] || t == "" {
			continue
		}
		if c, ok := strings.CutPrefix(t, w.prefix); ok {
			b.WriteString(c)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t)
	}
	return b.String()
}

// TokenID implements Tokenizer.
func (w *WordPiece) TokenID(t string) (int32, bool) { id, ok := w.vocab[t]; return id, ok }

// Token implements Tokenizer.
func (w *WordPiece) Token(id int32) string {
	if id < 0 || int(id) >= len(w.tokens) {
		return ""
	}
	return w.tokens[id]
}

// VocabSize implements Tokenizer.
func (w *WordPiece) VocabSize() int { return len(w.tokens) }
