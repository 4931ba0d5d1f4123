package tune

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"rag2/pipeline"

	"github.com/gofrs/flock"
)

// ErrJournal reports a journal of another comparison.
var ErrJournal = errors.New("the journal belongs to other settings, models, corpora or judges")

// ErrJournalBusy reports a journal that another process writes.
var ErrJournalBusy = errors.New("another process writes this journal; wait for it, or name another file")

// answerJournal keeps outcomes by question: a line with the key of the run, then a line
// for each question. A line cut by a killed process is dropped at the next opening; a file
// that is no journal is left as it is. The open file is locked against a second process.
type answerJournal struct {
	f    *os.File // nil = nothing is kept
	lock *flock.Flock
	done map[string][]Outcome
}

type answerEntry struct {
	Key      string    `json:"key,omitempty"` // of the run, in the first line
	Question string    `json:"question,omitempty"`
	Outcomes []Outcome `json:"outcomes,omitempty"`
}

func digest(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:16]), nil
}

// key is all that outcomes depend on beside the question.
func (a *Answering) key() (string, error) {
	p := a.Pipeline
	parts := []any{a.Options, p.Encoder.Fingerprint(), p.Generator.Name(), p.Prompts.Hash()}
	if g, ok := p.Generator.(interface{ Fingerprint() string }); ok { // names are those of folders
		parts = append(parts, g.Fingerprint())
	}
	if p.CrossEncoder != nil {
		parts = append(parts, p.CrossEncoder.Fingerprint())
	}
	for _, c := range p.Corpora {
		parts = append(parts, c.Name(), c.Len())
		if x, ok := c.(interface{ Content() string }); ok {
			parts = append(parts, x.Content())
		}
	}
	for _, j := range a.Judges {
		parts = append(parts, j.Name, j.Filter.Fingerprint(), j.Threshold)
	}
	return digest(parts)
}

func (a *Answering) openJournal() (*answerJournal, error) {
	j := &answerJournal{done: map[string][]Outcome{}}
	if a.Journal == "" {
		return j, nil
	}
	key, err := a.key()
	if err != nil {
		return nil, err
	}
	if j.f, err = os.OpenFile(a.Journal, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	j.lock = flock.New(a.Journal, flock.SetFlag(os.O_RDWR))
	if ok, err := j.lock.TryLock(); err != nil || !ok {
		j.close()
		return nil, errors.Join(fmt.Errorf("%s: %w", a.Journal, ErrJournalBusy), err)
	}
	if err := j.load(key, len(a.Arms())); err != nil {
		j.close()
		return nil, fmt.Errorf("%s: %w", a.Journal, err)
	}
	return j, nil
}

func (j *answerJournal) load(key string, arms int) error {
	b, err := io.ReadAll(j.f)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(b, '\n') + 1
	if whole == 0 { // new, or cut within the first line
		first, err := json.Marshal(answerEntry{Key: key})
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(first, b) {
			return fmt.Errorf("%w, or is none; remove it to begin anew", ErrJournal)
		}
	}
	for n, line := range bytes.SplitAfter(b[:whole], []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var e answerEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
		switch {
		case n == 0 && e.Key != key:
			return fmt.Errorf("%w; remove it to begin anew", ErrJournal)
		case n > 0 && len(e.Outcomes) != arms:
			return fmt.Errorf("line %d: %d outcomes, expected %d", n+1, len(e.Outcomes), arms)
		case n > 0:
			j.done[e.Question] = e.Outcomes
		}
	}
	if err := j.f.Truncate(int64(whole)); err != nil {
		return err
	}
	if _, err := j.f.Seek(int64(whole), io.SeekStart); err != nil {
		return err
	}
	if whole == 0 {
		return j.write(answerEntry{Key: key})
	}
	return nil
}

// find gives the outcomes of a question that was answered before, nil otherwise.
func (j *answerJournal) find(q pipeline.Question) ([]Outcome, error) {
	k, err := digest(q)
	return j.done[k], err
}

func (j *answerJournal) add(q pipeline.Question, row []Outcome) error {
	k, err := digest(q)
	if err != nil || j.f == nil {
		return err
	}
	return j.write(answerEntry{Question: k, Outcomes: row})
}

func (j *answerJournal) write(e answerEntry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := j.f.Write(append(b, '\n')); err != nil {
		return err
	}
	return j.f.Sync()
}

func (j *answerJournal) close() {
	if j.f != nil {
		_ = j.lock.Close()
		_ = j.f.Close()
	}
}
