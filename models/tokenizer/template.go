package tokenizer

import "encoding/json"

// template puts special tokens around one text or two.
type template struct{ single, pair []templatePart }

// templatePart is a special token or, with id -1, a text.
type templatePart struct {
	id     int32
	second bool // the second text
	typ    int32
}

func (t template) encodeSingle(a []int32, maxLen int) Encoding {
	parts := t.single
	if len(parts) == 0 {
		parts = []templatePart{{id: -1}}
	}
	return fill(parts, a, nil, maxLen)
}

func (t template) encodePair(a, b []int32, maxLen int) Encoding {
	parts := t.pair
	if len(parts) == 0 {
		parts = []templatePart{{id: -1}, {id: -1, second: true, typ: 1}}
	}
	return fill(parts, a, b, maxLen)
}

// fill lays texts out, cut longest-first to what the limit leaves beside the special
// tokens.
func fill(parts []templatePart, a, b []int32, maxLen int) Encoding {
	special := 0
	for _, p := range parts {
		if p.id >= 0 {
			special++
		}
	}
	na, nb := len(a), len(b)
	if maxLen > 0 {
		na, nb = longestFirst(na, nb, maxLen-special)
	}
	e := Encoding{IDs: make([]int32, 0, na+nb+special), TypeIDs: make([]int32, 0, na+nb+special), Truncated: len(a) + len(b) - na - nb}
	for _, p := range parts {
		switch {
		case p.id >= 0:
			e.IDs = append(e.IDs, p.id)
		case p.second:
			e.IDs = append(e.IDs, b[:nb]...)
		default:
			e.IDs = append(e.IDs, a[:na]...)
		}
		for len(e.TypeIDs) < len(e.IDs) {
			e.TypeIDs = append(e.TypeIDs, p.typ)
		}
	}
	return e
}

// parseTemplate reads a post_processor of type TemplateProcessing, alone or in a
// Sequence. Without one the template is empty.
func parseTemplate(path string, raw json.RawMessage, vocab map[string]int32) (t template, err error) {
	type part struct {
		SpecialToken *struct {
			ID   string `json:"id"`
			Type int32  `json:"type_id"`
		}
		Sequence *struct {
			ID   string `json:"id"`
			Type int32  `json:"type_id"`
		}
	}
	var post struct {
		Type         string
		Processors   []json.RawMessage
		Single, Pair []part
	}
	if len(raw) == 0 || string(raw) == "null" {
		return t, nil
	}
	if err := json.Unmarshal(raw, &post); err != nil {
		return t, vocabError(path, "post-processor: %v", err)
	}
	if post.Type == "Sequence" {
		for _, p := range post.Processors {
			if t, err = parseTemplate(path, p, vocab); err != nil || len(t.single) > 0 {
				return t, err
			}
		}
		return t, nil
	}
	if post.Type != "TemplateProcessing" {
		return t, nil
	}
	read := func(parts []part, texts int) (out []templatePart, err error) {
		for _, p := range parts {
			switch {
			case p.SpecialToken != nil:
				id, ok := vocab[p.SpecialToken.ID]
				if !ok {
					return nil, vocabError(path, "the template's token %q is not in the vocabulary", p.SpecialToken.ID)
				}
				out = append(out, templatePart{id: id, typ: p.SpecialToken.Type})
			case p.Sequence != nil:
				texts--
				out = append(out, templatePart{id: -1, second: p.Sequence.ID == "B", typ: p.Sequence.Type})
			}
		}
		if texts != 0 {
			return nil, vocabError(path, "the template does not hold each text once")
		}
		return out, nil
	}
	if t.single, err = read(post.Single, 1); err != nil {
		return t, err
	}
	if len(post.Pair) > 0 {
		t.pair, err = read(post.Pair, 2)
	}
	return t, err
}
