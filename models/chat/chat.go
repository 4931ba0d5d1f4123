// Package chat renders a conversation by a model's own Jinja chat template and
// encodes it so that only the template's text can become control tokens: what a
// user or a passage says stays text, whatever it looks like.
package chat

import (
	"fmt"
	"strings"

	"rag2/models/tokenizer"

	"github.com/nikolalohinski/gonja/v2"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// Turn is one message.
type Turn struct{ Role, Content string }

// Part is a run of rendered text.
type Part struct {
	Text string
	User bool // from a message, not from the template
}

// Template is a parsed chat template.
type Template struct {
	t        *exec.Template
	bos, eos string
	trims    bool
}

// Contents are rendered as marks of the private use area, so that the template
// cannot confuse them with its own text.
const (
	markOpen  = "\uE0F0"
	markClose = "\uE0F1"
)

// Parse reads a Jinja template as Hugging Face models carry it.
func Parse(source, bos, eos string) (*Template, error) {
	t, err := gonja.FromString(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return &Template{t: t, bos: bos, eos: eos, trims: strings.Contains(source, "trim")}, nil
}

// Render renders the turns and opens the assistant's.
func (t *Template) Render(turns []Turn) (parts []Part, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("chat template: %v", r)
		}
	}()
	messages := make([]map[string]any, len(turns))
	contents := make([]string, len(turns))
	for i, m := range turns {
		contents[i] = m.Content
		if t.trims {
			contents[i] = strings.TrimSpace(m.Content)
		}
		messages[i] = map[string]any{"role": m.Role, "content": fmt.Sprintf("%s%d%s", markOpen, i, markClose)}
	}
	text, err := t.t.ExecuteToString(exec.NewContext(map[string]any{
		"messages": messages, "add_generation_prompt": true, "bos_token": t.bos, "eos_token": t.eos,
		"raise_exception": func(msg string) string { panic(msg) },
	}))
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	for {
		before, rest, ok := strings.Cut(text, markOpen)
		if before != "" {
			parts = append(parts, Part{Text: before})
		}
		if !ok {
			return parts, nil
		}
		number, after, ok := strings.Cut(rest, markClose)
		i := -1
		if _, err := fmt.Sscanf(number, "%d", &i); !ok || err != nil || i < 0 || i >= len(contents) {
			return nil, fmt.Errorf("chat template: it changed the text of message %q", number)
		}
		parts = append(parts, Part{Text: contents[i], User: true})
		text = after
	}
}

// Encode gives the ids of rendered parts. Text between two control tokens is
// encoded as one piece, as the model saw it in training.
func Encode(t tokenizer.Tokenizer, parts []Part) []int32 {
	var ids []int32
	var run strings.Builder
	flush := func() {
		if run.Len() > 0 {
			ids = t.AppendPlain(ids, run.String())
			run.Reset()
		}
	}
	for _, p := range parts {
		if p.User {
			run.WriteString(p.Text)
			continue
		}
		for _, piece := range t.SplitSpecial(p.Text) {
			if piece.ID < 0 {
				run.WriteString(piece.Text)
				continue
			}
			flush()
			ids = append(ids, piece.ID)
		}
	}
	flush()
	return ids
}
