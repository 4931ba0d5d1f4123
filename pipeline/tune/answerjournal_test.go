package tune

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rag2/corpusio"
	"rag2/models"
	"rag2/pipeline"
)

// model and library keep their names while what they hold changes.
type (
	model struct {
		models.Generator
		weights string
	}
	library struct {
		shelf
		content string
	}
)

func (model) Name() string          { return "same" }
func (m model) Fingerprint() string { return m.weights }
func (l library) Content() string   { return l.content }

// A journal belongs to the weights and passages, not to names; one process writes it; and
// a file that is no journal is never emptied.
func TestAnswerJournalBelongs(t *testing.T) {
	prompts, err := pipeline.LoadPrompts("")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "journal")
	open := func(weights, content string) (*answerJournal, error) {
		n := library{shelf{corpusio.Passage{ID: "1"}}, content}
		p := &pipeline.Pipeline{Encoder: letters{}, Generator: model{nil, weights}, Prompts: prompts, Corpora: []pipeline.Retriever{n}}
		return (&Answering{Pipeline: p, Journal: path}).openJournal()
	}
	j, err := open("a", "x")
	if err != nil {
		t.Fatal(err)
	}
	q := pipeline.Question{ID: "7"}
	if err := j.add(q, []Outcome{{Question: "7"}, {Question: "7"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := open("a", "x"); !errors.Is(err, ErrJournalBusy) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second writer: %v", err)
	}
	j.close()
	for _, other := range [][2]string{{"b", "x"}, {"a", "y"}} {
		if _, err := open(other[0], other[1]); !errors.Is(err, ErrJournal) {
			t.Errorf("%v: %v", other, err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole { // killed anywhere
		if err := os.WriteFile(path, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := open("a", "x")
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if row, err := j.find(q); err != nil || row != nil {
			t.Fatalf("cut at %d: %v, %v", n, row, err)
		}
		j.close()
	}
	for _, text := range []string{"notes of mine", `{"question":"half`, "{}\n", "\x00\x00\x00"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := open("a", "x"); err == nil {
			t.Errorf("%q was taken for a journal", text)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%q became %q, %v", text, b, err)
		}
	}
}
