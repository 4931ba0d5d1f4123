package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Load reads dir's tokenizer.json, or its spiece.model when there is no other, or such
// a file itself.
func Load(path string) (Tokenizer, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		dir := path
		path = filepath.Join(dir, "tokenizer.json")
		if _, err := os.Stat(path); err != nil {
			if p := filepath.Join(dir, "spiece.model"); fileExists(p) {
				return LoadSentencePiece(p)
			}
		}
	}
	if strings.HasSuffix(path, ".model") {
		return LoadSentencePiece(path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return Parse(path, b)
}

func fileExists(p string) bool { _, err := os.Stat(p); return err == nil }

type stage struct {
	Type             string          `json:"type"`
	Lowercase        *bool           `json:"lowercase"`
	StripAccents     *bool           `json:"strip_accents"`
	CleanText        *bool           `json:"clean_text"`
	CJK              *bool           `json:"handle_chinese_chars"`
	IndividualDigits bool            `json:"individual_digits"`
	AddPrefixSpace   bool            `json:"add_prefix_space"`
	UseRegex         *bool           `json:"use_regex"`
	Pattern          json.RawMessage `json:"pattern"`
	Pretokenizers    []stage         `json:"pretokenizers"`
	Normalizers      []stage         `json:"normalizers"`
}

// Parse builds a tokenizer from the contents of a tokenizer.json; path names it in errors.
// Builds with the tag daulet encode with Hugging Face's Rust library, to compare with.
func Parse(path string, b []byte) (Tokenizer, error) {
	t, err := parse(path, b)
	if err != nil {
		return nil, err
	}
	return oracle(path, b, t)
}

// framed puts special tokens around the ids of texts.
type framed interface {
	Tokenizer
	single(ids []int32, maxLen int) Encoding
	pair(a, b []int32, maxLen int) Encoding
}

func parse(path string, b []byte) (framed, error) {
	var kindOf struct {
		Model struct {
			Type         string
			ByteFallback bool `json:"byte_fallback"`
		}
	}
	if json.Unmarshal(b, &kindOf) == nil {
		switch {
		case kindOf.Model.Type == "Unigram":
			return parseUnigram(path, b)
		case kindOf.Model.Type == "BPE" && kindOf.Model.ByteFallback:
			return parseSentenceBPE(path, b)
		}
	}
	var f struct {
		AddedTokens   []addedToken    `json:"added_tokens"`
		Normalizer    *stage          `json:"normalizer"`
		PreTokenizer  *stage          `json:"pre_tokenizer"`
		PostProcessor json.RawMessage `json:"post_processor"`
		Model         struct {
			Type         string            `json:"type"`
			Vocab        json.RawMessage   `json:"vocab"`
			Merges       []json.RawMessage `json:"merges"`
			Unk          string            `json:"unk_token"`
			Prefix       *string           `json:"continuing_subword_prefix"`
			MaxChars     int               `json:"max_input_chars_per_word"`
			IgnoreMerges bool              `json:"ignore_merges"`
		} `json:"model"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, vocabError(path, "%v", err)
	}
	kind := f.Model.Type
	if kind == "" && f.Model.MaxChars > 0 {
		kind = "WordPiece"
	}
	if kind == "" && len(f.Model.Merges) > 0 {
		kind = "BPE"
	}
	if kind != "WordPiece" && kind != "BPE" {
		return nil, vocabError(path, "model type %q; WordPiece, BPE and Unigram are read", f.Model.Type)
	}
	var vocab map[string]int32
	if err := json.Unmarshal(f.Model.Vocab, &vocab); err != nil {
		return nil, vocabError(path, "vocab: %v", err)
	}
	size := len(vocab)
	for _, a := range f.AddedTokens {
		size = max(size, int(a.ID)+1)
	}
	if size > len(vocab)+len(f.AddedTokens) {
		return nil, vocabError(path, "added token ids leave gaps above the vocabulary of %d", len(vocab))
	}
	tokens := make([]string, size)
	for t, id := range vocab {
		if id < 0 || int(id) >= size {
			return nil, vocabError(path, "token %q has id %d, outside 0…%d", t, id, size-1)
		}
		tokens[id] = t
	}
	special := map[string]int32{}
	isSpecial := map[int32]bool{}
	for _, a := range f.AddedTokens {
		if a.ID < 0 {
			return nil, vocabError(path, "added token %q has id %d", a.Content, a.ID)
		}
		tokens[a.ID] = a.Content
		vocab[a.Content] = a.ID
		special[a.Content] = a.ID
		if a.Special {
			isSpecial[a.ID] = true
		}
	}
	if kind == "WordPiece" {
		w := &WordPiece{vocab: vocab, tokens: tokens, special: newSpecials(special), isSpecial: isSpecial, prefix: "##", maxChars: 100}
		if f.Model.Prefix != nil {
			w.prefix = *f.Model.Prefix
		}
		if f.Model.MaxChars > 0 {
			w.maxChars = min(f.Model.MaxChars, 128)
		}
		if n := f.Normalizer; n != nil {
			if n.Type != "BertNormalizer" {
				return nil, vocabError(path, "normaliser %q; BertNormalizer is read", n.Type)
			}
			w.lower = n.Lowercase == nil || *n.Lowercase
			w.accents = w.lower
			if n.StripAccents != nil {
				w.accents = *n.StripAccents
			}
			w.clean = n.CleanText == nil || *n.CleanText
			w.cjk = n.CJK == nil || *n.CJK
		}
		if p := f.PreTokenizer; p != nil && p.Type != "BertPreTokenizer" {
			return nil, vocabError(path, "pre-tokenizer %q; BertPreTokenizer is read with WordPiece", p.Type)
		}
		unk := f.Model.Unk
		if unk == "" {
			unk = "[UNK]"
		}
		for _, s := range []struct {
			name string
			id   *int32
		}{{unk, &w.unk}, {"[CLS]", &w.cls}, {"[SEP]", &w.sep}} {
			id, ok := vocab[s.name]
			if !ok {
				return nil, vocabError(path, "the vocabulary lacks %s", s.name)
			}
			*s.id = id
		}
		return w, nil
	}
	merges, err := parseMerges(path, f.Model.Merges)
	if err != nil {
		return nil, err
	}
	p, err := newBPE(path, tokens, merges)
	if err != nil {
		return nil, err
	}
	p.special, p.isSpecial, p.ignoreMerges = newSpecials(special), isSpecial, f.Model.IgnoreMerges
	if id, ok := vocab[f.Model.Unk]; ok && f.Model.Unk != "" {
		p.unk = id
	}
	if p.split, err = splitterOf(path, f.PreTokenizer); err != nil {
		return nil, err
	}
	// A template that puts a token before the text marks the beginning of text.
	var post struct {
		Type       string `json:"type"`
		Processors []json.RawMessage
		Single     []struct {
			SpecialToken *struct {
				ID string `json:"id"`
			} `json:"SpecialToken"`
		} `json:"single"`
	}
	raws := []json.RawMessage{f.PostProcessor}
	if json.Unmarshal(f.PostProcessor, &post) == nil && len(post.Processors) > 0 {
		raws = post.Processors
	}
	for _, r := range raws {
		post.Single = nil
		if json.Unmarshal(r, &post) == nil && len(post.Single) > 0 && post.Single[0].SpecialToken != nil {
			if id, ok := vocab[post.Single[0].SpecialToken.ID]; ok {
				p.bos, p.addBOS = id, true
			}
		}
	}
	return p, nil
}

// parseMerges reads merges, which are pairs or "left right" strings.
func parseMerges(path string, raws []json.RawMessage) ([][2]string, error) {
	merges := make([][2]string, 0, len(raws))
	for i, raw := range raws {
		var pair []string
		var s string
		if json.Unmarshal(raw, &pair) != nil {
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, vocabError(path, "merge %d: %v", i, err)
			}
			pair = strings.SplitN(s, " ", 2)
		}
		if len(pair) != 2 {
			return nil, vocabError(path, "merge %d is not a pair", i)
		}
		merges = append(merges, [2]string{pair[0], pair[1]})
	}
	return merges, nil
}

// splitterOf recognises the pre-tokenizers of the supported models.
func splitterOf(path string, s *stage) (splitter, error) {
	var sp splitter
	if s == nil {
		return sp, vocabError(path, "BPE without a byte-level pre-tokenizer")
	}
	parts := []stage{*s}
	if s.Type == "Sequence" {
		parts = s.Pretokenizers
	}
	byteLevel := false
	for _, p := range parts {
		switch p.Type {
		case "Digits":
			if !p.IndividualDigits {
				return sp, vocabError(path, "Digits pre-tokenizer without individual_digits")
			}
			sp.digits1 = true
		case "ByteLevel":
			if p.AddPrefixSpace {
				return sp, vocabError(path, "ByteLevel with add_prefix_space")
			}
			byteLevel = true
		case "Split":
			re := string(p.Pattern)
			switch {
			case strings.Contains(re, `{1,3}`):
				sp.llama, sp.maxDigits = true, 3
			case strings.Contains(re, `(?i:'s`):
				sp.llama, sp.maxDigits = true, 1
			default:
				return sp, vocabError(path, "split pattern %s is not one of Llama-3 or Qwen2", re)
			}
		default:
			return sp, vocabError(path, "pre-tokenizer %q", p.Type)
		}
	}
	if !byteLevel {
		return sp, vocabError(path, "BPE without a byte-level pre-tokenizer")
	}
	return sp, nil
}
