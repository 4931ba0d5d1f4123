package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Encoding is one encoded input.
type Encoding struct {
	IDs       []int32
	TypeIDs   []int32 // 0 for the first text, 1 for the second
	Truncated int     // tokens dropped to meet the length limit
}

// Piece is a special token, or (ID -1) text without any.
type Piece struct {
	Text string
	ID   int32
}

// Tokenizer maps text to ids and back. Lengths count special tokens; a limit of
// 0 or less means none.
type Tokenizer interface {
	// AppendPlain appends the ids of text, without special tokens.
	AppendPlain(dst []int32, text string) []int32
	// EncodeSingle encodes text with the model's special tokens, cut at the end.
	EncodeSingle(text string, maxLen int) Encoding
	// EncodePair encodes a pair with the model's special tokens; when it is too
	// long, tokens are taken off the longer text first (Hugging Face's
	// longest_first).
	EncodePair(a, b string, maxLen int) Encoding
	// SplitSpecial cuts text at the vocabulary's special tokens: for template
	// text that the caller wrote.
	SplitSpecial(text string) []Piece
	// Decode gives the text of ids; special tokens are left out.
	Decode(ids []int32) string
	// TokenID finds a token by its vocabulary string.
	TokenID(token string) (int32, bool)
	// Token is the vocabulary string of an id, "" when out of range.
	Token(id int32) string
	VocabSize() int
}

// longestFirst tells how many tokens of each text stay when together they may
// have at most room tokens, removing one at a time from the longer (from b on a
// tie), as Hugging Face's LongestFirst strategy ends up doing.
func longestFirst(na, nb, room int) (int, int) {
	if na+nb <= room {
		return na, nb
	}
	room = max(room, 0)
	// The shorter text stays whole if it fits in half of the room.
	swap := na > nb
	n1, n2 := na, nb
	if swap {
		n1, n2 = nb, na
	}
	if n1 > room {
		n2 = n1
	} else {
		n2 = max(n1, room-n1)
	}
	if n1+n2 > room {
		n1 = room / 2
		n2 = n1 + room%2
	}
	if swap {
		return n2, n1
	}
	return n1, n2
}

// specials finds control tokens in template text.
type specials struct {
	byText map[string]int32
	first  [256]bool
	maxLen int
}

func newSpecials(tokens map[string]int32) specials {
	s := specials{byText: tokens}
	for t := range tokens {
		if t != "" {
			s.first[t[0]] = true
			s.maxLen = max(s.maxLen, len(t))
		}
	}
	return s
}

// next finds the first special token at or after from; the longest one wins.
func (s *specials) next(text string, from int) (start, end int, id int32, ok bool) {
	for i := from; i < len(text); i++ {
		if !s.first[text[i]] {
			continue
		}
		for n := min(s.maxLen, len(text)-i); n > 0; n-- {
			if id, ok := s.byText[text[i:i+n]]; ok {
				return i, i + n, id, true
			}
		}
	}
	return 0, 0, 0, false
}

// split cuts text at special tokens.
func (s *specials) split(text string) (out []Piece) {
	at := 0
	for {
		start, end, id, ok := s.next(text, at)
		if !ok {
			break
		}
		if start > at {
			out = append(out, Piece{text[at:start], -1})
		}
		out = append(out, Piece{text[start:end], id})
		at = end
	}
	if at < len(text) {
		out = append(out, Piece{text[at:], -1})
	}
	return out
}

// valid returns text with invalid UTF-8 replaced by U+FFFD.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func vocabError(path, format string, args ...any) error {
	return fmt.Errorf("%s: tokenizer: %s", path, fmt.Sprintf(format, args...))
}
