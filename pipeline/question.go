package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// ErrQuestion reports a question that cannot be asked.
var ErrQuestion = errors.New("not a question")

// maxQuestion bounds a question with its options, in bytes; MedQA's longest has 4 kB.
const maxQuestion = 64 << 10

// Option is one choice.
type Option struct {
	Key  string `json:"key"` // one capital letter
	Text string `json:"text"`
}

// Question is a stem with options; without options the answer is open.
type Question struct {
	ID      string   `json:"id,omitempty"`
	Stem    string   `json:"question"`
	Options []Option `json:"options,omitempty"`
	Gold    string   `json:"gold,omitempty"` // the right key, when known; no stage sees it
}

// Validate lists what is wrong.
func (q Question) Validate() error {
	var errs []error
	if strings.TrimSpace(q.Stem) == "" {
		errs = append(errs, errors.New("the question is empty"))
	}
	if !utf8.ValidString(q.Stem) {
		errs = append(errs, errors.New("the question is not valid UTF-8"))
	}
	if n := len(q.Render()); n > maxQuestion {
		errs = append(errs, fmt.Errorf("the question has %d bytes, at most %d are read", n, maxQuestion))
	}
	if len(q.Options) == 1 {
		errs = append(errs, errors.New("one option alone is no choice"))
	}
	seen := map[string]bool{}
	for _, o := range q.Options {
		switch {
		case len(o.Key) != 1 || o.Key[0] < 'A' || o.Key[0] > 'Z':
			errs = append(errs, fmt.Errorf("option %q: keys are single letters A to Z", o.Key))
		case seen[o.Key]:
			errs = append(errs, fmt.Errorf("option %s is given twice", o.Key))
		case strings.TrimSpace(o.Text) == "":
			errs = append(errs, fmt.Errorf("option %s is empty", o.Key))
		}
		seen[o.Key] = true
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	return nil
}

// Render is the question as models see it: "{stem} A) … B) …".
func (q Question) Render() string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(q.Stem))
	for _, o := range q.Options {
		b.WriteString(" " + o.Key + ") " + strings.TrimSpace(o.Text))
	}
	return b.String()
}

// Option is the option with a key.
func (q Question) Option(key string) (Option, bool) {
	for _, o := range q.Options {
		if o.Key == key {
			return o, true
		}
	}
	return Option{}, false
}

var reInlineOption = regexp.MustCompile(`(?:^|\s)\(?([A-Z])[).:]\s+`)

// ParseQuestion reads a stem with options written behind it, as in "… ? A) x B) y".
// The keys must run A, B, C… without a gap; otherwise all of it is the stem.
func ParseQuestion(text string) Question {
	text = strings.TrimSpace(text)
	var at [][]int
	for _, m := range reInlineOption.FindAllStringSubmatchIndex(text, -1) {
		key := text[m[2]]
		switch {
		case key == 'A':
			at = [][]int{m} // the last A begins the list
		case len(at) > 0 && key == 'A'+byte(len(at)):
			at = append(at, m)
		}
	}
	if len(at) < 2 || strings.TrimSpace(text[:at[0][0]]) == "" {
		return Question{Stem: text}
	}
	q := Question{Stem: strings.TrimSpace(text[:at[0][0]])}
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		q.Options = append(q.Options, Option{text[m[2]:m[3]], strings.TrimSpace(text[m[1]:end])})
	}
	if q.Validate() != nil {
		return Question{Stem: text}
	}
	return q
}

// UnmarshalJSON reads {"question", "options"} where options are {"A": text} or
// [{"key","text"}], and the gold key from "gold", "answer_idx" or "answer".
func (q *Question) UnmarshalJSON(b []byte) error {
	var j struct {
		ID      json.RawMessage `json:"id"`
		Stem    *string         `json:"question"`
		Options json.RawMessage `json:"options"`
		Gold    string          `json:"gold"`
		Index   string          `json:"answer_idx"`
		Answer  any             `json:"answer"`
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if j.Stem == nil {
		return fmt.Errorf("no field \"question\"")
	}
	*q = Question{Stem: *j.Stem, ID: strings.Trim(string(j.ID), `"`)}
	if q.ID == "null" {
		q.ID = ""
	}
	if len(j.Options) > 0 && string(j.Options) != "null" {
		m := map[string]string{}
		if json.Unmarshal(j.Options, &m) == nil {
			for k, v := range m {
				q.Options = append(q.Options, Option{k, v})
			}
			slices.SortFunc(q.Options, func(a, b Option) int { return strings.Compare(a.Key, b.Key) })
		} else if err := json.Unmarshal(j.Options, &q.Options); err != nil {
			return fmt.Errorf("options: neither {\"A\": text} nor [{\"key\", \"text\"}]: %w", err)
		}
	}
	answer, _ := j.Answer.(string)
	for _, g := range []string{j.Gold, j.Index, answer} {
		if _, ok := q.Option(g); ok {
			q.Gold = g
			break
		}
	}
	return nil
}
