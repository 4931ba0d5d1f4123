package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// LoadSentencePiece reads a spiece.model file: a unigram model as SentencePiece's own
// library runs it. Beside it, added_tokens.json and tokenizer_config.json (extra_ids,
// added_tokens_decoder) are read when they are there; a T5 model without them gets its
// 100 extra ids.
func LoadSentencePiece(path string) (Tokenizer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	u, err := ParseSentencePiece(path, b)
	if err != nil {
		return nil, err
	}
	if err := u.addTokens(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return u, nil
}

// Types of SentencePiece's entries.
const (
	pieceNormal  = 1
	pieceUnknown = 2
	pieceControl = 3
	pieceUser    = 4
	pieceUnused  = 5
	pieceByte    = 6
)

// ParseSentencePiece builds a tokenizer from the contents of a spiece.model: the
// protocol buffer ModelProto of sentencepiece_model.proto, of which are read pieces (1:
// piece 1, score 2, type 3), trainer_spec (2: model_type 3) and normalizer_spec (3:
// precompiled_charsmap 2, add_dummy_prefix 3, remove_extra_whitespaces 4,
// escape_whitespaces 5).
func ParseSentencePiece(path string, b []byte) (*Unigram, error) {
	u := newSentencePiece()
	var types []int
	escape, model := true, 1
	err := eachField(b, func(field int, v uint64, data []byte) error {
		switch field {
		case 1:
			piece, score, typ := "", float32(0), pieceNormal
			if err := eachField(data, func(field int, v uint64, data []byte) error {
				switch field {
				case 1:
					piece = string(data)
				case 2:
					score = math.Float32frombits(uint32(v))
				case 3:
					typ = int(v)
				}
				return nil
			}); err != nil {
				return err
			}
			if !utf8.ValidString(piece) {
				return fmt.Errorf("entry %d is not UTF-8", len(types))
			}
			types = append(types, typ)
			u.addPiece(piece, score, typ)
		case 2:
			return eachField(data, func(field int, v uint64, _ []byte) error {
				if field == 3 {
					model = int(v)
				}
				return nil
			})
		case 3:
			return eachField(data, func(field int, v uint64, data []byte) (err error) {
				switch field {
				case 2:
					if len(data) > 0 {
						u.spm.m, err = parseCharsmap(data)
					}
				case 3:
					u.spm.dummyPrefix = v != 0
				case 4:
					u.spm.trim = v != 0
				case 5:
					escape = v != 0
				}
				return err
			})
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, vocabError(path, "SentencePiece model: %v", err)
	case model != 1:
		return nil, vocabError(path, "SentencePiece model type %d; unigram (1) is read, of others their tokenizer.json", model)
	case !escape:
		return nil, vocabError(path, "SentencePiece model that does not escape white space")
	}
	if err := u.finishPieces(path, types); err != nil {
		return nil, err
	}
	u.post = t5Template(u.vocab)
	return u, nil
}

// newSentencePiece is an empty model that works as SentencePiece's library does.
func newSentencePiece() *Unigram {
	return &Unigram{vocab: map[string]int32{}, isSpecial: map[int32]bool{}, unk: -1, float: true, prepended: true,
		spm: &spmNormalizer{dummyPrefix: true, trim: true}}
}

// addPiece appends an entry.
func (u *Unigram) addPiece(piece string, score float32, typ int) {
	id := int32(len(u.tokens))
	if _, dup := u.vocab[piece]; !dup {
		u.vocab[piece] = id
	}
	u.tokens, u.scores = append(u.tokens, piece), append(u.scores, float64(score))
	if typ == pieceUnknown {
		u.unk = id
	}
	if typ == pieceUnknown || typ == pieceControl {
		u.isSpecial[id] = true
	}
}

// finishPieces finishes a model whose pieces were added; types are those of SentencePiece.
func (u *Unigram) finishPieces(path string, types []int) error {
	if u.unk < 0 {
		return vocabError(path, "SentencePiece model without an unknown piece")
	}
	control := map[string]int32{}
	for id := range u.isSpecial {
		control[u.tokens[id]] = id
	}
	u.special = newSpecials(control)
	var users []string
	for i, t := range types {
		if t == pieceUser {
			users = append(users, u.tokens[i])
		}
	}
	byteIDs := make([]int32, 256)
	found := 0
	for i, t := range types {
		var c int
		if t == pieceByte {
			if n, err := fmt.Sscanf(u.tokens[i], "<0x%02X>", &c); n != 1 || err != nil || c > 255 {
				return vocabError(path, "byte piece %q", u.tokens[i])
			}
			byteIDs[c] = int32(i)
			found++
		}
	}
	for i, t := range types {
		if t == pieceUser {
			u.scores[i] = u.round(0.1 * float64(len(u.tokens[i])-1)) // release 0.2.1 and later
		}
	}
	if found == 256 {
		u.bytes = byteIDs
	} else if found > 0 {
		return vocabError(path, "%d byte pieces instead of 256", found)
	}
	if len(users) > 0 {
		u.spm.users = map[string]int32{}
		special := map[string]int32{}
		for _, s := range users {
			special[s] = u.vocab[s]
		}
		u.spm.userFind = newSpecials(special)
		u.spm.users = special
	}
	return u.finish(path, func(id int) bool { return types[id] == pieceNormal || types[id] == pieceUser }, func(id int) bool { return types[id] == pieceNormal })
}

// t5Template ends every text with </s>, which is what T5 models do; without that token
// texts stay as they are.
func t5Template(vocab map[string]int32) template {
	eos, ok := vocab["</s>"]
	if !ok {
		return template{}
	}
	e := templatePart{id: eos}
	return template{single: []templatePart{{id: -1}, e}, pair: []templatePart{{id: -1}, e, {id: -1, second: true}, e}}
}

// addTokens appends the tokens that Transformers keeps beside a spiece.model.
func (u *Unigram) addTokens(dir string) error {
	extra := 100
	byID := map[int32]string{}
	special := map[int32]bool{}
	if b, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json")); err == nil {
		var j struct {
			Extra   *int `json:"extra_ids"`
			Decoder map[string]struct {
				Content string
				Special bool
			} `json:"added_tokens_decoder"`
		}
		if err := json.Unmarshal(b, &j); err != nil {
			return vocabError(dir, "tokenizer_config.json: %v", err)
		}
		if j.Extra != nil {
			extra = *j.Extra
		}
		for k, t := range j.Decoder {
			var id int32
			if _, err := fmt.Sscan(k, &id); err != nil {
				return vocabError(dir, "tokenizer_config.json: added token id %q", k)
			}
			byID[id], special[id] = t.Content, t.Special
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "added_tokens.json")); err == nil {
		var j map[string]int32
		if err := json.Unmarshal(b, &j); err != nil {
			return vocabError(dir, "added_tokens.json: %v", err)
		}
		for t, id := range j {
			byID[id] = t
		}
	}
	if extra < 0 || extra > 1000 {
		return vocabError(dir, "%d extra ids", extra)
	}
	if _, has := u.vocab["<extra_id_0>"]; !has {
		for i := range extra {
			id := int32(len(u.scores) + i)
			byID[id], special[id] = fmt.Sprintf("<extra_id_%d>", extra-1-i), true
		}
	}
	var ids []int32
	for id := range byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		t := byID[id]
		switch {
		case id < 0 || int(id) > len(u.tokens):
			return vocabError(dir, "added token %q has id %d, the vocabulary %d entries", t, id, len(u.tokens))
		case int(id) == len(u.tokens):
			u.tokens = append(u.tokens, t)
		case u.tokens[id] != t:
			return vocabError(dir, "added token %q has the id of %q", t, u.tokens[id])
		}
		u.vocab[t] = id
		u.special.byText[t] = id
		if special[id] {
			u.isSpecial[id] = true
		}
	}
	u.special = newSpecials(u.special.byText)
	return nil
}

// spmNormalizer is SentencePiece's normaliser: longest match in the map, white space
// trimmed and collapsed, words marked.
type spmNormalizer struct {
	m           *charsmap // nil = identity
	dummyPrefix bool
	trim        bool // remove_extra_whitespaces
	users       map[string]int32
	userFind    specials
}

// next is the normalised form of the start of s and the number of bytes it stands for.
func (n *spmNormalizer) next(s string) (string, int) {
	if n.users != nil && n.userFind.first[s[0]] {
		for k := min(n.userFind.maxLen, len(s)); k > 0; k-- {
			if _, ok := n.users[s[:k]]; ok {
				return s[:k], k
			}
		}
	}
	if n.m != nil {
		if c := s[0]; c < utf8.RuneSelf && !n.m.ascii[c] && (len(s) == 1 || s[1] < utf8.RuneSelf) {
			return s[:1], 1 // no entry of the known maps joins two ASCII characters
		}
		if out, k := n.m.longest(s); k > 0 {
			return out, k
		}
	}
	_, w := utf8.DecodeRuneInString(s)
	return s[:w], w
}

// append appends the normalised s, which is valid UTF-8.
func (n *spmNormalizer) append(dst []byte, s string) []byte {
	start := len(dst)
	if n.trim {
		for len(s) > 0 {
			out, w := n.next(s)
			if out != " " {
				break
			}
			s = s[w:]
		}
	}
	if s == "" {
		return dst
	}
	if n.dummyPrefix {
		dst = append(dst, metaspace...)
	}
	space := n.trim
	for len(s) > 0 {
		out, w := n.next(s)
		s = s[w:]
		for space && strings.HasPrefix(out, " ") {
			out = out[1:]
		}
		if out != "" {
			for i := 0; i < len(out); i++ {
				if out[i] == ' ' {
					dst = append(dst, metaspace...)
				} else {
					dst = append(dst, out[i])
				}
			}
			space = out[len(out)-1] == ' '
		}
		if !n.trim {
			space = false
		}
	}
	if n.trim {
		for len(dst)-start >= len(metaspace) && string(dst[len(dst)-len(metaspace):]) == metaspace {
			dst = dst[:len(dst)-len(metaspace)]
		}
	}
	return dst
}

// eachField walks a protocol buffer message: v holds varints and fixed-width numbers,
// data length-delimited fields.
func eachField(b []byte, f func(field int, v uint64, data []byte) error) error {
	cut := errors.New("the message is cut")
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
			return cut
		}
		b = b[n:]
		var v uint64
		var data []byte
		switch tag & 7 {
		case 0:
			if v, n = binary.Uvarint(b); n <= 0 {
				return cut
			}
			b = b[n:]
		case 1:
			if len(b) < 8 {
				return cut
			}
			v, b = binary.LittleEndian.Uint64(b), b[8:]
		case 5:
			if len(b) < 4 {
				return cut
			}
			v, b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
		case 2:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return cut
			}
			data, b = b[n:n+int(size)], b[n+int(size):]
		default:
			return fmt.Errorf("wire type %d", tag&7)
		}
		if err := f(int(tag>>3), v, data); err != nil {
			return err
		}
	}
	return nil
}
