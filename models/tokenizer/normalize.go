package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normalizer is one step of a tokenizer.json's normaliser; texts are valid UTF-8.
type normalizer func(string) string

// normStep is a normalizer object of a tokenizer.json.
type normStep struct {
	Type        string          `json:"type"`
	Normalizers []normStep      `json:"normalizers"`
	Charsmap    string          `json:"precompiled_charsmap"`
	Left        bool            `json:"strip_left"`
	Right       bool            `json:"strip_right"`
	Prepend     string          `json:"prepend"`
	Content     string          `json:"content"`
	Pattern     json.RawMessage `json:"pattern"`
}

// normalizersOf reads the steps that SentencePiece-like tokenizers use.
func normalizersOf(path string, s *normStep) (out []normalizer, err error) {
	if s == nil {
		return nil, nil
	}
	add := func(f normalizer) { out = append(out, f) }
	switch s.Type {
	case "Sequence":
		for i := range s.Normalizers {
			more, err := normalizersOf(path, &s.Normalizers[i])
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
	case "Precompiled":
		if s.Charsmap == "" {
			return nil, nil // SentencePiece's "identity"
		}
		b, err := base64.StdEncoding.DecodeString(s.Charsmap)
		if err != nil {
			return nil, vocabError(path, "normalisation map: %v", err)
		}
		m, err := parseCharsmap(b)
		if err != nil {
			return nil, vocabError(path, "%v", err)
		}
		add(func(t string) string { return string(m.appendHF(make([]byte, 0, len(t)+len(t)/8), t)) })
	case "Strip":
		left, right := s.Left, s.Right
		add(func(t string) string {
			if left {
				t = strings.TrimLeftFunc(t, unicode.IsSpace)
			}
			if right {
				t = strings.TrimRightFunc(t, unicode.IsSpace)
			}
			return t
		})
	case "Prepend":
		prefix := s.Prepend
		add(func(t string) string {
			if t == "" {
				return t
			}
			return prefix + t
		})
	case "Replace":
		f, err := replacer(path, s)
		if err != nil {
			return nil, err
		}
		add(f)
	case "NFC":
		add(norm.NFC.String)
	case "NFD":
		add(norm.NFD.String)
	case "NFKC":
		add(norm.NFKC.String)
	case "NFKD":
		add(norm.NFKD.String)
	case "Lowercase":
		add(lower)
	default:
		return nil, vocabError(path, "normaliser %q is not read", s.Type)
	}
	return out, nil
}

// replacer reads a Replace step: a literal string, or the pattern " {2,}".
func replacer(path string, s *normStep) (normalizer, error) {
	var p struct{ String, Regex *string }
	if err := json.Unmarshal(s.Pattern, &p); err != nil {
		return nil, vocabError(path, "pattern of Replace: %v", err)
	}
	content := s.Content
	switch {
	case p.String != nil && *p.String != "":
		from := *p.String
		return func(t string) string { return strings.ReplaceAll(t, from, content) }, nil
	case p.Regex != nil && *p.Regex == " {2,}":
		return func(t string) string {
			if !strings.Contains(t, "  ") {
				return t
			}
			var b strings.Builder
			for i := 0; i < len(t); {
				n := i
				for n < len(t) && t[n] == ' ' {
					n++
				}
				switch {
				case n-i >= 2:
					b.WriteString(content)
				case n-i == 1:
					b.WriteByte(' ')
				default:
					b.WriteByte(t[i])
					n++
				}
				i = n
			}
			return b.String()
		}, nil
	}
	return nil, vocabError(path, "pattern %s of Replace is not read", s.Pattern)
}

// pretokenizer is a split of SentencePiece-like tokenizers.
type pretokenizer struct {
	whitespace bool   // WhitespaceSplit; else Metaspace with:
	prepend    string // "always", "first" or "never"
	split      bool   // words are encoded one by one
}

// splitStep is a pre_tokenizer object of a tokenizer.json.
type splitStep struct {
	Type          string      `json:"type"`
	Pretokenizers []splitStep `json:"pretokenizers"`
	Replacement   string      `json:"replacement"`
	AddPrefix     *bool       `json:"add_prefix_space"` // before version 0.14 of the library
	Scheme        string      `json:"prepend_scheme"`
	Split         *bool       `json:"split"`
}

func pretokenizersOf(path string, s *splitStep) (out []pretokenizer, err error) {
	if s == nil {
		return nil, nil
	}
	parts := []splitStep{*s}
	if s.Type == "Sequence" {
		parts = s.Pretokenizers
	}
	for i, p := range parts {
		switch p.Type {
		case "WhitespaceSplit":
			out = append(out, pretokenizer{whitespace: true})
		case "Metaspace":
			if p.Replacement != "" && p.Replacement != metaspace {
				return nil, vocabError(path, "Metaspace with replacement %q", p.Replacement)
			}
			if i != len(parts)-1 {
				return nil, vocabError(path, "a pre-tokenizer after Metaspace")
			}
			m := pretokenizer{prepend: p.Scheme, split: p.Split == nil || *p.Split}
			if m.prepend == "" {
				m.prepend = "always"
				if p.AddPrefix != nil && !*p.AddPrefix {
					m.prepend = "never"
				}
			}
			if m.prepend != "always" && m.prepend != "first" && m.prepend != "never" {
				return nil, vocabError(path, "Metaspace with prepend_scheme %q", p.Scheme)
			}
			out = append(out, m)
		default:
			return nil, vocabError(path, "pre-tokenizer %q; WhitespaceSplit and Metaspace are read here", p.Type)
		}
	}
	return out, nil
}
