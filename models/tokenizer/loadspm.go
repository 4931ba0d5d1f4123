package tokenizer

import (
	"encoding/json"
	"fmt"
)

// addedToken is an entry of added_tokens.
type addedToken struct {
	ID      int32  `json:"id"`
	Content string `json:"content"`
	Special bool   `json:"special"`
}

// spmJSON is a tokenizer.json made of a SentencePiece model.
type spmJSON struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    *normStep       `json:"normalizer"`
	PreTokenizer  *splitStep      `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Model         struct {
		Vocab        json.RawMessage   `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
		UnkID        *int32            `json:"unk_id"`
		Unk          string            `json:"unk_token"`
		ByteFallback bool              `json:"byte_fallback"`
		FuseUnk      bool              `json:"fuse_unk"`
	} `json:"model"`
}

// addTokens puts added tokens into a vocabulary of n entries and returns the grown
// tokens, those of templates, and the ones that decoding leaves out.
func (f *spmJSON) addTokens(path string, tokens []string, vocab map[string]int32) ([]string, map[string]int32, map[int32]bool, error) {
	special, isSpecial := map[string]int32{}, map[int32]bool{}
	for _, a := range f.AddedTokens {
		if a.ID < 0 || int(a.ID) >= len(tokens)+len(f.AddedTokens) {
			return nil, nil, nil, vocabError(path, "added token %q has id %d, the vocabulary %d entries", a.Content, a.ID, len(tokens))
		}
		for int(a.ID) >= len(tokens) {
			tokens = append(tokens, "")
		}
		tokens[a.ID] = a.Content
		vocab[a.Content] = a.ID
		special[a.Content] = a.ID
		if a.Special {
			isSpecial[a.ID] = true
		}
	}
	return tokens, special, isSpecial, nil
}

// byteIDs finds <0x00> … <0xFF>; nil when one is missing.
func byteIDs(vocab map[string]int32) []int32 {
	out := make([]int32, 256)
	for i := range out {
		id, ok := vocab[fmt.Sprintf("<0x%02X>", i)]
		if !ok {
			return nil
		}
		out[i] = id
	}
	return out
}

// parseUnigram reads a tokenizer.json of model type Unigram.
func parseUnigram(path string, b []byte) (framed, error) {
	var f spmJSON
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, vocabError(path, "%v", err)
	}
	var entries [][2]json.RawMessage
	if err := json.Unmarshal(f.Model.Vocab, &entries); err != nil {
		return nil, vocabError(path, "vocab: %v", err)
	}
	u := &Unigram{vocab: map[string]int32{}, unk: -1, prepended: true}
	for i, e := range entries {
		var t string
		var score float64
		if err := json.Unmarshal(e[0], &t); err != nil {
			return nil, vocabError(path, "entry %d: %v", i, err)
		}
		if err := json.Unmarshal(e[1], &score); err != nil {
			return nil, vocabError(path, "entry %d: %v", i, err)
		}
		if _, dup := u.vocab[t]; !dup {
			u.vocab[t] = int32(i)
		}
		u.tokens, u.scores = append(u.tokens, t), append(u.scores, score)
	}
	if f.Model.UnkID != nil {
		u.unk = *f.Model.UnkID
	}
	var special map[string]int32
	var err error
	if u.tokens, special, u.isSpecial, err = f.addTokens(path, u.tokens, u.vocab); err != nil {
		return nil, err
	}
	u.special = newSpecials(special)
	if f.Model.ByteFallback {
		u.bytes = byteIDs(u.vocab)
	}
	if u.normalizers, err = normalizersOf(path, f.Normalizer); err != nil {
		return nil, err
	}
	if u.splits, err = pretokenizersOf(path, f.PreTokenizer); err != nil {
		return nil, err
	}
	if n := len(u.splits); n > 0 && u.splits[n-1].prepend == "never" {
		u.prepended = false
	}
	if u.post, err = parseTemplate(path, f.PostProcessor, u.vocab); err != nil {
		return nil, err
	}
	// Control tokens never come from text.
	return u, u.finishErr(path)
}

func (u *Unigram) finishErr(path string) error {
	return u.finish(path, func(id int) bool { return !u.isSpecial[int32(id)] && int32(id) != u.unk }, func(int) bool { return true })
}
