package tokenizer

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// charsmap is a precompiled normalisation map of SentencePiece: a trie of source
// strings whose values are offsets of NUL-terminated replacements.
//
//	bytes 0–3      size of the trie in bytes, little endian
//	4 … 4+size     trie (darts-clone)
//	the rest       replacements
type charsmap struct {
	trie darts
	text string
	// ascii says what the map does with a single ASCII byte that nothing follows: 0 = it
	// stays, 1 = look it up.
	ascii [128]bool
}

func parseCharsmap(b []byte) (*charsmap, error) {
	if len(b) < 4 {
		return nil, errors.New("normalisation map: too short")
	}
	n := binary.LittleEndian.Uint32(b)
	if n%4 != 0 || uint64(n) > uint64(len(b)-4) {
		return nil, errors.New("normalisation map: its trie is longer than the map")
	}
	m := &charsmap{trie: newDarts(b[4 : 4+n]), text: string(b[4+n:])}
	for c := range m.ascii {
		_, m.ascii[c] = m.shortest(string(rune(c)))
	}
	return m, nil
}

// replacement is the string at an offset.
func (m *charsmap) replacement(at uint32) string {
	if uint64(at) >= uint64(len(m.text)) {
		return ""
	}
	s := m.text[at:]
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	return s
}

// shortest replaces by the shortest entry that s begins with, as Hugging Face's
// library does.
func (m *charsmap) shortest(s string) (out string, ok bool) {
	m.trie.prefixes(s, func(_ int, v uint32) bool {
		out, ok = m.replacement(v), true
		return false
	})
	return
}

// longest finds the longest entry that s begins with, as SentencePiece does.
func (m *charsmap) longest(s string) (out string, n int) {
	at := uint32(0)
	m.trie.prefixes(s, func(k int, v uint32) bool {
		n, at = k, v
		return true
	})
	if n > 0 {
		out = m.replacement(at)
	}
	return
}

// maxGrapheme bytes: longer clusters are replaced character by character.
const maxGrapheme = 6

// appendHF appends s as Hugging Face's Precompiled normaliser changes it: by grapheme
// clusters of fewer than six bytes, else by characters.
func (m *charsmap) appendHF(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		// An ASCII character that no other joins is a cluster of its own.
		if c := s[i]; c < utf8.RuneSelf && (i+1 == len(s) || s[i+1] < utf8.RuneSelf && !(c == '\r' && s[i+1] == '\n')) {
			if !m.ascii[c] {
				dst = append(dst, c)
			} else if r, ok := m.shortest(s[i : i+1]); ok {
				dst = append(dst, r...)
			}
			i++
			continue
		}
		g, _, _, _ := uniseg.FirstGraphemeClusterInString(s[i:], -1)
		i += len(g)
		if len(g) < maxGrapheme {
			if r, ok := m.shortest(g); ok {
				dst = append(dst, r...)
				continue
			}
		}
		for j, c := range g {
			part := g[j : j+utf8.RuneLen(c)]
			if r, ok := m.shortest(part); ok {
				dst = append(dst, r...)
			} else {
				dst = append(dst, part...)
			}
		}
	}
	return dst
}
