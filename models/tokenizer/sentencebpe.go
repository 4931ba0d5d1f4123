package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// SentenceBPE is SentencePiece's byte-pair encoding as Llama-2, Mistral and their
// descendants use it: merges of characters, words marked by U+2581, and bytes
// (<0x00> … <0xFF>) for characters that the vocabulary lacks.
type SentenceBPE struct {
	BPE                        // merges, specials, decoding tables
	chars       map[rune]int32 // id of each single character
	byteIDs     []int32
	isByte      map[int32]byte
	normalizers []normalizer
	splits      []pretokenizer
	wordwise    bool // no entry spans a space, so that words can be merged one by one
	post        template
	strip       bool // decoding drops one leading space
}

var _ Tokenizer = (*SentenceBPE)(nil)

// parseSentenceBPE reads a tokenizer.json of model type BPE with byte_fallback.
func parseSentenceBPE(path string, b []byte) (framed, error) {
	var f spmJSON
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, vocabError(path, "%v", err)
	}
	var vocab map[string]int32
	if err := json.Unmarshal(f.Model.Vocab, &vocab); err != nil {
		return nil, vocabError(path, "vocab: %v", err)
	}
	tokens := make([]string, len(vocab))
	for t, id := range vocab {
		if id < 0 || int(id) >= len(tokens) {
			return nil, vocabError(path, "token %q has id %d, outside 0…%d", t, id, len(tokens)-1)
		}
		tokens[id] = t
	}
	merges, err := parseMerges(path, f.Model.Merges)
	if err != nil {
		return nil, err
	}
	core, err := newBPE(path, tokens, merges)
	if err != nil {
		return nil, err
	}
	s := &SentenceBPE{BPE: *core, strip: true}
	if err := s.finish(path, merges); err != nil {
		return nil, err
	}
	var special map[string]int32
	if s.tokens, special, s.isSpecial, err = f.addTokens(path, s.tokens, s.vocab); err != nil {
		return nil, err
	}
	s.special = newSpecials(special)
	if s.normalizers, err = normalizersOf(path, f.Normalizer); err != nil {
		return nil, err
	}
	if s.splits, err = pretokenizersOf(path, f.PreTokenizer); err != nil {
		return nil, err
	}
	for _, p := range s.splits {
		if p.whitespace {
			return nil, vocabError(path, "WhitespaceSplit before BPE with byte_fallback")
		}
	}
	s.post, err = parseTemplate(path, f.PostProcessor, s.vocab)
	return s, err
}

// finish makes the tables of characters and bytes.
func (s *SentenceBPE) finish(path string, merges [][2]string) error {
	s.chars, s.isByte, s.wordwise = map[rune]int32{}, map[int32]byte{}, true
	if s.byteIDs = byteIDs(s.vocab); s.byteIDs == nil {
		return vocabError(path, "byte fallback without the tokens <0x00> … <0xFF>")
	}
	for c, id := range s.byteIDs {
		s.isByte[id] = byte(c)
	}
	for t, id := range s.vocab {
		if r, n := utf8.DecodeRuneInString(t); n == len(t) && n > 0 && r != utf8.RuneError {
			s.chars[r] = id
		}
	}
	for _, m := range merges {
		joined := m[0] + m[1]
		if i := strings.LastIndex(joined, metaspace); i > 0 && strings.Trim(joined[:i], metaspace) != "" {
			s.wordwise = false
		}
	}
	return nil
}

// AppendPlain implements Tokenizer. A tokenizer whose mark is put before the first word
// only takes an empty dst as the beginning of a text.
func (s *SentenceBPE) AppendPlain(dst []int32, text string) []int32 {
	first := len(dst) == 0
	text = valid(text)
	for _, n := range s.normalizers {
		text = n(text)
	}
	for _, p := range s.splits {
		text = strings.ReplaceAll(text, " ", metaspace)
		if text != "" && (p.prepend == "always" || p.prepend == "first" && first) && !strings.HasPrefix(text, metaspace) {
			text = metaspace + text
		}
	}
	if !s.wordwise {
		return s.word(dst, text)
	}
	for len(text) > 0 {
		n := wordEnd(text)
		dst = s.word(dst, text[:n])
		text = text[n:]
	}
	return dst
}

// wordEnd is the length of a run of marks and what follows up to the next mark.
func wordEnd(s string) int {
	n := 0
	for strings.HasPrefix(s[n:], metaspace) {
		n += len(metaspace)
	}
	if i := strings.Index(s[n:], metaspace); i >= 0 {
		return n + i
	}
	return len(s)
}

// word merges the characters of one word.
func (s *SentenceBPE) word(dst []int32, text string) []int32 {
	n := len(dst)
	for _, r := range text {
		if id, ok := s.chars[r]; ok {
			dst = append(dst, id)
			continue
		}
		var buf [4]byte
		for _, c := range buf[:utf8.EncodeRune(buf[:], r)] {
			dst = append(dst, s.byteIDs[c])
		}
	}
	if len(dst)-n > 64 {
		return append(dst[:n], s.mergeLong(dst[n:])...)
	}
	return append(dst[:n], s.mergeShort(dst[n:])...)
}

// EncodeSingle implements Tokenizer with the model's template (<s> text).
func (s *SentenceBPE) EncodeSingle(text string, maxLen int) Encoding {
	return s.single(s.AppendPlain(nil, text), maxLen)
}

func (s *SentenceBPE) single(ids []int32, maxLen int) Encoding {
	return s.post.encodeSingle(ids, maxLen)
}

func (s *SentenceBPE) pair(a, b []int32, maxLen int) Encoding {
	return s.post.encodePair(a, b, maxLen)
}

// EncodePair implements Tokenizer with the model's template.
func (s *SentenceBPE) EncodePair(a, b string, maxLen int) Encoding {
	return s.pair(s.AppendPlain(nil, a), s.AppendPlain(nil, b), maxLen)
}

// Decode implements Tokenizer. Bytes that are not UTF-8 become U+FFFD.
func (s *SentenceBPE) Decode(ids []int32) string {
	var out []byte
	for _, id := range ids {
		if s.isSpecial[id] {
			continue
		}
		if c, ok := s.isByte[id]; ok {
			out = append(out, c)
			continue
		}
		out = append(out, strings.ReplaceAll(s.Token(id), metaspace, " ")...)
	}
	text := strings.ToValidUTF8(string(out), "\uFFFD")
	if s.strip {
		text = strings.TrimPrefix(text, " ")
	}
	return text
}
