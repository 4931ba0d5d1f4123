package tune

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"rag2/corpusio/jsonl"
	"rag2/internal/atomicfile"
	"rag2/models/train"
)

// Positive is a text that answers a question.
type Positive struct {
	// Doc is its document in the corpus. A part behind the last dot numbers texts of one
	// article ("28293123.2").
	Doc  string `json:"doc,omitempty"`
	Text string `json:"text"`
}

// Pair is a question with the texts that answer it.
type Pair struct {
	ID        string     `json:"id"`
	Query     string     `json:"query"`
	Positives []Positive `json:"positives"`
}

// ReadPairs reads JSON lines of pairs, .gz too.
func ReadPairs(path string) ([]Pair, error) {
	return readLines(path, "questions", func(p *Pair) error {
		if p.ID == "" || strings.TrimSpace(p.Query) == "" || len(p.Positives) == 0 {
			return fmt.Errorf("a pair needs id, query and positives")
		}
		for i, x := range p.Positives {
			if strings.TrimSpace(x.Text) == "" {
				return fmt.Errorf("question %s: positive %d is empty", p.ID, i)
			}
		}
		return nil
	})
}

// ReadGroups reads JSON lines of groups, .gz too.
func ReadGroups(path string) ([]train.Group, error) {
	return readLines(path, "groups", func(g *train.Group) error {
		if g.Query == "" || g.Positive == "" || len(g.Negatives) == 0 {
			return fmt.Errorf("a group needs query, positive and negatives")
		}
		return nil
	})
}

// readLines reads a JSON-lines file whose rows pass check.
func readLines[T any](path, what string, check func(*T) error) ([]T, error) {
	h, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var r io.Reader = h
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	var out []T
	err = jsonl.Each(path, bufio.NewReaderSize(r, 1<<16), func(line int, v *T, err error) error {
		if err != nil {
			return err
		}
		if err := check(v); err != nil {
			return &jsonl.ErrLine{File: path, Line: line, Err: err}
		}
		out = append(out, *v)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: no %s", path, what)
	}
	return out, err
}

// WriteLines writes values as JSON lines, wholly or not at all.
func WriteLines[T any](path string, vs []T) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, v := range vs {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Commit()
}
