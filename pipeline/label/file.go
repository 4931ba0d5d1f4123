package label

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"rag2/corpusio/jsonl"
	"rag2/internal/atomicfile"
	"rag2/pipeline"
)

// Snippet is a candidate.
type Snippet struct {
	ID     string `json:"id"`
	Corpus string `json:"corpus,omitempty"`
	Title  string `json:"title,omitempty"`
	Text   string `json:"text"`
}

// Item is a question with its candidates. Gold must be known. Without candidates the
// Labeler retrieves them.
type Item struct {
	Question pipeline.Question
	Snippets []Snippet
}

// UnmarshalJSON reads a question as package pipeline does, and "snippets".
func (it *Item) UnmarshalJSON(b []byte) error {
	var j struct {
		Snippets []Snippet `json:"snippets"`
	}
	if err := json.Unmarshal(b, &it.Question); err != nil {
		return err
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	it.Snippets = j.Snippets
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (it Item) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		pipeline.Question
		Snippets []Snippet `json:"snippets"`
	}{it.Question, it.Snippets})
}

// Settings are what labels depend on; the first line of a file.
type Settings struct {
	Kind            string   `json:"kind"` // "settings"
	Format          int      `json:"format"`
	Model           string   `json:"model"`
	Prompts         string   `json:"prompts"` // hash of the templates
	Scored          string   `json:"scored"`
	Answers         string   `json:"answers"`
	RationaleTokens int      `json:"rationale_tokens"`
	AnswerTokens    int      `json:"answer_tokens"`
	Candidates      string   `json:"candidates,omitempty"` // how they were retrieved
	Population      string   `json:"population"`
	Tau             *float64 `json:"tau,omitempty"` // given rather than computed
}

// format is the version of the file.
const format = 1

// Question is what the model did with a question alone; a line of kind "question".
type Question struct {
	Kind     string `json:"kind"` // "question"
	ID       string `json:"id"`
	Question string `json:"question"` // stem and options as models see them
	Gold     string `json:"gold"`
	// Output is the model's whole text, Rationale the part that is scored.
	Output    string `json:"output"`
	Finish    string `json:"finish,omitempty"`
	Rationale string `json:"rationale"`
	// Tokens are the ids of the scored text. Logprobs are natural logarithms without evidence, one per token.
	Tokens       []int     `json:"tokens,omitempty"`
	Logprobs     []float32 `json:"logprobs,omitempty"`
	PPL          *float64  `json:"ppl"`
	Option       string    `json:"option"` // chosen without evidence; "" = none stated
	Right        bool      `json:"right"`
	Unscored     string    `json:"unscored,omitempty"` // why PPL is null
	PromptTokens int       `json:"prompt_tokens"`
	NewTokens    int       `json:"new_tokens"`
	Retrieved    []Snippet `json:"retrieved,omitempty"`
	Pairs        []Pair    `json:"-"`
}

// Pair is what the model did with a question and one snippet; a line of kind "pair".
// Lines of pairs follow their question's.
type Pair struct {
	Kind     string    `json:"kind"` // "pair"
	Question string    `json:"question_id"`
	N        int       `json:"n"` // position among the question's candidates, from 0
	Snippet  Snippet   `json:"snippet"`
	Output   string    `json:"output,omitempty"`
	Option   string    `json:"option"`
	Right    bool      `json:"right"`
	Logprobs []float32 `json:"logprobs,omitempty"`
	PPL      *float64  `json:"ppl"`
	Unscored string    `json:"unscored,omitempty"`
	Failed   bool      `json:"failed,omitempty"` // there is no answer given the snippet: the label is Discard

	PromptTokens int `json:"prompt_tokens"`
	NewTokens    int `json:"new_tokens"`

	// These follow from the above and the question; Relabel computes them.
	RightWithout bool     `json:"right_without"`
	PPLWithout   *float64 `json:"ppl_without"`
	Delta        *float64 `json:"delta"` // PPL(without) − PPL(with)
	Tau          *float64 `json:"tau"`
	Label        Label    `json:"label,omitempty"`
}

// File is a label file: JSON lines; settings, then each question with its pairs.
type File struct {
	Settings  Settings
	Questions []Question
}

// Relabel computes ΔPPL, τ and labels from what the model gave. tau nil = the quartile
// over population.
func (f *File) Relabel(tau *float64, population string) error {
	if err := relabel(f.Questions, tau, population); err != nil {
		return err
	}
	f.Settings.Tau, f.Settings.Population = tau, population
	return nil
}

// Write writes the file, wholly or not at all.
func (f *File) Write(path string) error {
	out, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer out.Abort()
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	f.Settings.Kind, f.Settings.Format = "settings", format
	if err := enc.Encode(f.Settings); err != nil {
		return err
	}
	for _, q := range f.Questions {
		q.Kind = "question"
		if err := enc.Encode(q); err != nil {
			return err
		}
		for _, p := range q.Pairs {
			p.Kind = "pair"
			if err := enc.Encode(p); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return out.Commit()
}

// openText opens a file for reading lines, gunzipping by name.
func openText(path string) (*bufio.Reader, io.Closer, error) {
	h, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if !strings.HasSuffix(path, ".gz") {
		return bufio.NewReaderSize(h, 1<<16), h, nil
	}
	z, err := gzip.NewReader(h)
	if err != nil {
		h.Close()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return bufio.NewReaderSize(z, 1<<16), h, nil
}

// Read reads a label file.
func Read(path string) (*File, error) {
	r, c, err := openText(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	f := &File{}
	err = jsonl.Each(path, r, func(line int, raw *json.RawMessage, err error) error {
		if err == nil {
			err = f.add(*raw, line == 1)
		}
		var at *jsonl.ErrLine
		if err != nil && !errors.As(err, &at) {
			return &jsonl.ErrLine{File: path, Line: line, Err: err}
		}
		return err
	})
	if err == nil && f.Settings.Kind == "" {
		err = fmt.Errorf("%s: the file is empty", path)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) add(raw json.RawMessage, first bool) error {
	var k struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &k); err != nil {
		return err
	}
	if first != (k.Kind == "settings") {
		return fmt.Errorf("not a label file: line of kind %q; settings come first and once", k.Kind)
	}
	switch k.Kind {
	case "settings":
		if err := json.Unmarshal(raw, &f.Settings); err != nil {
			return err
		}
		if f.Settings.Format != format {
			return fmt.Errorf("label file of format %d; this program reads %d", f.Settings.Format, format)
		}
	case "question":
		var q Question
		if err := json.Unmarshal(raw, &q); err != nil {
			return err
		}
		f.Questions = append(f.Questions, q)
	case "pair":
		var p Pair
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		if len(f.Questions) == 0 || f.Questions[len(f.Questions)-1].ID != p.Question {
			return fmt.Errorf("a pair of question %q stands behind another question", p.Question)
		}
		q := &f.Questions[len(f.Questions)-1]
		q.Pairs = append(q.Pairs, p)
	default:
		return fmt.Errorf("line of unknown kind %q", k.Kind)
	}
	return nil
}

// ReadItems reads questions with candidates, JSON lines (.gz too); at most first when
// that is not 0. A question without a known answer is an error: it cannot be labelled.
func ReadItems(path string, first int) ([]Item, error) {
	r, c, err := openText(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := errors.New("enough")
	var out []Item
	seen := map[string]bool{}
	err = jsonl.Each(path, r, func(line int, it *Item, err error) error {
		if err != nil {
			return err
		}
		q := &it.Question
		if q.ID == "" {
			q.ID = fmt.Sprintf("%04d", line-1)
		}
		err = q.Validate()
		switch {
		case err != nil:
		case q.Gold == "":
			err = fmt.Errorf("question %s: its right option is not given; labels need it", q.ID)
		case seen[q.ID]:
			err = fmt.Errorf("question %s occurs twice", q.ID)
		}
		for i, s := range it.Snippets {
			if strings.TrimSpace(s.Text) == "" {
				err = errors.Join(err, fmt.Errorf("question %s: snippet %d is empty", q.ID, i))
			}
		}
		if err != nil {
			return &jsonl.ErrLine{File: path, Line: line, Err: err}
		}
		seen[q.ID] = true
		if out = append(out, *it); len(out) == first {
			return stop
		}
		return nil
	})
	if err != nil && !errors.Is(err, stop) {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no questions", path)
	}
	return out, nil
}
