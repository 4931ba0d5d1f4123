package tokenizer

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// ggufVocab is the vocabulary in a GGUF file's metadata (tokenizer.ggml.*).
type ggufVocab struct {
	path   string
	meta   map[string]any
	tokens []string
	scores []float32
	types  []int32 // as SentencePiece's: pieceNormal …
}

func (v ggufVocab) id(key string, missing int32) int32 {
	if id, ok := v.meta["tokenizer.ggml."+key].(uint32); ok && int(id) < len(v.tokens) {
		return int32(id)
	}
	return missing
}

func (v ggufVocab) flag(key string, missing bool) bool {
	if b, ok := v.meta["tokenizer.ggml."+key].(bool); ok {
		return b
	}
	return missing
}

// special are the control and user-defined tokens; isSpecial those of them that decoding
// leaves out.
func (v ggufVocab) special() (special map[string]int32, isSpecial map[int32]bool) {
	special, isSpecial = map[string]int32{}, map[int32]bool{}
	for i, t := range v.types {
		switch t {
		case pieceControl, pieceUnknown:
			isSpecial[int32(i)] = true
			special[v.tokens[i]] = int32(i)
		case pieceUser:
			special[v.tokens[i]] = int32(i)
		}
	}
	return
}

// template puts the file's beginning and end tokens around texts.
func (v ggufVocab) template(bos, eos bool) (t template) {
	b, e := v.id("bos_token_id", -1), v.id("eos_token_id", -1)
	frame := func(second bool) (out []templatePart) {
		if v.flag("add_bos_token", bos) && b >= 0 {
			out = append(out, templatePart{id: b})
		}
		out = append(out, templatePart{id: -1, second: second})
		if v.flag("add_eos_token", eos) && e >= 0 {
			out = append(out, templatePart{id: e})
		}
		return out
	}
	t.single = frame(false)
	t.pair = append(frame(false), frame(true)...)
	return t
}

// FromGGUF builds the tokenizer that a GGUF file describes in its metadata: byte-level BPE
// ("gpt2"), SentencePiece's BPE ("llama") or its unigram model ("t5").
func FromGGUF(path string, meta map[string]any) (Tokenizer, error) {
	v := ggufVocab{path: path, meta: meta}
	v.tokens, _ = meta["tokenizer.ggml.tokens"].([]string)
	v.scores, _ = meta["tokenizer.ggml.scores"].([]float32)
	v.types, _ = meta["tokenizer.ggml.token_type"].([]int32)
	if len(v.tokens) == 0 {
		return nil, vocabError(path, "GGUF metadata lacks tokenizer.ggml.tokens")
	}
	if len(v.types) != 0 && len(v.types) != len(v.tokens) {
		return nil, vocabError(path, "%d tokens and %d types of tokens", len(v.tokens), len(v.types))
	}
	model, _ := meta["tokenizer.ggml.model"].(string)
	if model == "llama" || model == "t5" {
		if len(v.scores) != len(v.tokens) || len(v.types) == 0 {
			return nil, vocabError(path, "%d tokens, %d scores and %d types of tokens", len(v.tokens), len(v.scores), len(v.types))
		}
		for i, t := range v.tokens {
			if !utf8.ValidString(t) {
				return nil, vocabError(path, "token %d is not UTF-8", i)
			}
		}
	}
	switch model {
	case "gpt2":
		return v.byteBPE()
	case "llama":
		return v.sentenceBPE()
	case "t5":
		return v.unigram()
	}
	return nil, vocabError(path, "GGUF tokenizer model %q; gpt2, llama and t5 are read", model)
}

func (v ggufVocab) byteBPE() (Tokenizer, error) {
	pre, _ := v.meta["tokenizer.ggml.pre"].(string)
	sp, ok := splitters[pre]
	if !ok {
		return nil, vocabError(v.path, "GGUF pre-tokenizer %q is not supported", pre)
	}
	lines, _ := v.meta["tokenizer.ggml.merges"].([]string)
	if len(lines) == 0 {
		return nil, vocabError(v.path, "GGUF metadata lacks tokenizer.ggml.merges")
	}
	merges := make([][2]string, len(lines))
	for i, l := range lines {
		a, b, ok := strings.Cut(l, " ")
		if !ok {
			return nil, vocabError(v.path, "merge %d (%q) is not a pair", i, l)
		}
		merges[i] = [2]string{a, b}
	}
	p, err := newBPE(v.path, v.tokens, merges)
	if err != nil {
		return nil, err
	}
	p.split = sp
	p.ignoreMerges = sp.llama && sp.maxDigits == 3
	special, isSpecial := v.special()
	p.special, p.isSpecial = newSpecials(special), isSpecial
	p.bos, p.addBOS = v.id("bos_token_id", -1), v.flag("add_bos_token", false)
	return p, nil
}

// sentenceBPE is a vocabulary of Llama-2, Mistral and their like. It has scores instead of
// merges: of all neighbours whose joined text is a piece, those that make the best piece
// are joined first, the leftmost of equals.
func (v ggufVocab) sentenceBPE() (Tokenizer, error) {
	core, err := newBPE(v.path, v.tokens, nil)
	if err != nil {
		return nil, err
	}
	order := make([]int32, 0, len(v.tokens))
	for i, t := range v.types {
		if s := float64(v.scores[i]); math.IsNaN(s) || math.IsInf(s, 0) {
			return nil, vocabError(v.path, "token %d has score %v", i, s)
		}
		if t == pieceNormal && core.vocab[v.tokens[i]] == int32(i) {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case v.scores[a] > v.scores[b]:
			return -1
		case v.scores[a] < v.scores[b]:
			return 1
		}
		return 0
	})
	rank := int32(0)
	var merges [][2]string
	for k, id := range order {
		if k > 0 && v.scores[id] != v.scores[order[k-1]] {
			rank++
		}
		t := v.tokens[id]
		for i := range t {
			l, ok1 := core.vocab[t[:i]]
			r, ok2 := core.vocab[t[i:]]
			if i > 0 && ok1 && ok2 {
				core.ranks[[2]int32{l, r}] = merge{rank, id}
				merges = append(merges, [2]string{t[:i], t[i:]})
			}
		}
	}
	s := &SentenceBPE{BPE: *core, strip: v.flag("add_space_prefix", true), post: v.template(true, false)}
	if err := s.finish(v.path, merges); err != nil {
		return nil, err
	}
	special, isSpecial := v.special()
	s.special, s.isSpecial = newSpecials(special), isSpecial
	if s.strip {
		s.normalizers = append(s.normalizers, func(t string) string {
			if t == "" {
				return t
			}
			return metaspace + t
		})
	}
	s.normalizers = append(s.normalizers, func(t string) string { return strings.ReplaceAll(t, " ", metaspace) })
	return s, nil
}

// unigram is a vocabulary of T5, normalised as SentencePiece does.
func (v ggufVocab) unigram() (Tokenizer, error) {
	u := newSentencePiece()
	u.spm.dummyPrefix, u.spm.trim = v.flag("add_space_prefix", true), v.flag("remove_extra_whitespaces", true)
	var m []byte
	switch x := v.meta["tokenizer.ggml.precompiled_charsmap"].(type) {
	case []uint8:
		m = x
	case []int8: // some converters
		for _, c := range x {
			m = append(m, byte(c))
		}
	}
	var err error
	if len(m) > 0 {
		if u.spm.m, err = parseCharsmap(m); err != nil {
			return nil, vocabError(v.path, "%v", err)
		}
	}
	types := make([]int, len(v.types))
	for i, t := range v.types {
		if types[i] = int(t); t == pieceUser {
			types[i] = pieceControl // what a converter added: extra ids and labels, never from text
		}
		u.addPiece(v.tokens[i], v.scores[i], types[i])
	}
	if err := u.finishPieces(v.path, types); err != nil {
		return nil, err
	}
	u.post = v.template(false, true)
	return u, nil
}
