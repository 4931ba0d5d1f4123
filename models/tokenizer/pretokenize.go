package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// splitter cuts text into the chunks that BPE merges within. The rules are the
// regular expressions of the models' pre-tokenizers, scanned by hand since Go's
// regexp has no look-ahead.
type splitter struct {
	digits1   bool // every \p{N} is a chunk of its own before anything else (SmolLM)
	llama     bool // Llama-3 and Qwen2 expression instead of GPT-2's
	maxDigits int  // digits in a chunk of the Llama expression
}

// splitters maps pre-tokenizer names of GGUF files to rules.
var splitters = map[string]splitter{
	"gpt-2": {}, "default": {}, "": {},
	"smollm":    {digits1: true},
	"llama-bpe": {llama: true, maxDigits: 3}, "llama3": {llama: true, maxDigits: 3}, "llama-v3": {llama: true, maxDigits: 3},
	"qwen2": {llama: true, maxDigits: 1},
}

func isL(r rune) bool {
	return r < 128 && (r|32) >= 'a' && (r|32) <= 'z' || r >= 128 && unicode.IsLetter(r)
}
func isN(r rune) bool { return r >= '0' && r <= '9' || r >= 128 && unicode.IsNumber(r) }
func isS(r rune) bool { return unicode.IsSpace(r) }

// each calls f for every chunk of s, which is valid UTF-8.
func (sp splitter) each(s string, f func(string)) {
	if !sp.digits1 {
		sp.scan(s, f)
		return
	}
	from := 0
	for i, r := range s {
		if isN(r) {
			if i > from {
				sp.scan(s[from:i], f)
			}
			from = i + utf8.RuneLen(r)
			f(s[i:from])
		}
	}
	if from < len(s) {
		sp.scan(s[from:], f)
	}
}

func (sp splitter) scan(s string, f func(string)) {
	for len(s) > 0 {
		n := 0
		if sp.llama {
			n = sp.llamaChunk(s)
		} else {
			n = gpt2Chunk(s)
		}
		f(s[:n])
		s = s[n:]
	}
}

// run is the length of the prefix of s whose runes satisfy ok.
func run(s string, ok func(rune) bool) int {
	for i, r := range s {
		if !ok(r) {
			return i
		}
	}
	return len(s)
}

func isX(r rune) bool { return !isS(r) && !isL(r) && !isN(r) }

// contraction is the length of 's 't 're 've 'm 'll 'd at the start of s.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	at := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		if fold {
			return s[i] | 32
		}
		return s[i]
	}
	switch a, b := at(1), at(2); {
	case a == 's', a == 't', a == 'm', a == 'd':
		return 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 3
	}
	if fold && len(s) >= 3 && s[1:3] == "ſ" { // U+017F folds to s
		return 3
	}
	return 0
}

// spaces is the chunk of `\s+(?!\S)|\s+` at the start of s, which is white space.
func spaces(s string) int {
	n := run(s, isS)
	if n == len(s) {
		return n
	}
	_, last := utf8.DecodeLastRuneInString(s[:n])
	if n > last {
		return n - last
	}
	return n
}

// gpt2Chunk: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2Chunk(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	sp := 0
	if s[0] == ' ' {
		sp = 1
	}
	for _, class := range [...]func(rune) bool{isL, isN, isX} {
		if n := run(s[sp:], class); n > 0 {
			return sp + n
		}
	}
	return spaces(s)
}

// llamaChunk: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func (sp splitter) llamaChunk(s string) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	r, w := utf8.DecodeRuneInString(s)
	if isL(r) {
		return run(s, isL)
	}
	if r != '\r' && r != '\n' && !isN(r) {
		if n := run(s[w:], isL); n > 0 {
			return w + n
		}
	}
	if isN(r) {
		n := 0
		for k := 0; k < sp.maxDigits && n < len(s); k++ {
			r, w := utf8.DecodeRuneInString(s[n:])
			if !isN(r) {
				break
			}
			n += w
		}
		return n
	}
	lead := 0
	if s[0] == ' ' {
		lead = 1
	}
	if n := run(s[lead:], isX); n > 0 {
		n += lead
		return n + run(s[n:], func(r rune) bool { return r == '\r' || r == '\n' })
	}
	// White space: up to the last line break, if there is one.
	n := run(s, isS)
	for i := n - 1; i >= 0; i-- {
		if s[i] == '\n' || s[i] == '\r' {
			return i + 1
		}
	}
	return spaces(s)
}
