//go:build daulet

package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/daulet/tokenizers"
)

// daulet encodes with Hugging Face's Rust library through daulet/tokenizers; vocabulary,
// special tokens around texts and decoding are those of the Go tokenizer that it is
// compared with. It lives as long as the process.
type daulet struct {
	framed
	rust *tokenizers.Tokenizer
}

// oracle wraps a tokenizer. The library gets no added tokens, since text is never control
// here.
func oracle(path string, b []byte, t framed) (Tokenizer, error) {
	var j map[string]json.RawMessage
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, vocabError(path, "%v", err)
	}
	j["added_tokens"], j["post_processor"], j["truncation"], j["padding"] = json.RawMessage("[]"), json.RawMessage("null"), json.RawMessage("null"), json.RawMessage("null")
	b, err := json.Marshal(j)
	if err != nil {
		return nil, vocabError(path, "%v", err)
	}
	rust, err := tokenizers.FromBytes(b)
	if err != nil {
		return nil, vocabError(path, "%v", err)
	}
	return &daulet{t, rust}, nil
}

// AppendPlain implements Tokenizer. Two kinds of texts are encoded in Go: those with a NUL,
// where the library's C interface would end them, and those that spell a control token, which the
// library's Unigram model finds in its vocabulary.
func (d *daulet) AppendPlain(dst []int32, text string) []int32 {
	if strings.IndexByte(text, 0) >= 0 || slices.ContainsFunc(d.SplitSpecial(text), func(p Piece) bool { return p.ID >= 0 }) {
		return d.framed.AppendPlain(dst, text)
	}
	for _, id := range d.rust.EncodeWithOptions(valid(text), false).IDs {
		dst = append(dst, int32(id))
	}
	return dst
}

// EncodeSingle implements Tokenizer.
func (d *daulet) EncodeSingle(text string, maxLen int) Encoding {
	return d.single(d.AppendPlain(nil, text), maxLen)
}

// EncodePair implements Tokenizer.
func (d *daulet) EncodePair(a, b string, maxLen int) Encoding {
	return d.pair(d.AppendPlain(nil, a), d.AppendPlain(nil, b), maxLen)
}
