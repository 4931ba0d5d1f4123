package label

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// ErrJournal reports a journal of another job.
var ErrJournal = errors.New("the journal belongs to other settings, questions or snippets")

// journal holds finished work: a line with the job's key, then one entry a line in the
// order of completion. A line cut by a killed process is dropped at the next opening.
type journal struct {
	path      string
	questions map[string]*Question
	pairs     map[pairKey]*Pair

	mu sync.Mutex
	f  *os.File
}

type pairKey struct {
	question string
	n        int
}

// entry is a line: one of the fields.
type entry struct {
	Key      string    `json:"key,omitempty"`
	Question *Question `json:"question,omitempty"`
	Pair     *Pair     `json:"pair,omitempty"`
}

// openJournal opens or begins the journal of the job with the given key.
func openJournal(path, key string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	j := &journal{path: path, f: f, questions: map[string]*Question{}, pairs: map[pairKey]*Pair{}}
	if err := j.load(key); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return j, nil
}

func (j *journal) load(key string) error {
	b, err := io.ReadAll(j.f)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(b, '\n') + 1
	for n, line := range bytes.SplitAfter(b[:whole], []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
		switch {
		case (n == 0) != (e.Key != "") || n == 0 && e.Key != key:
			return fmt.Errorf("%w; remove it to begin anew", ErrJournal)
		case e.Question != nil:
			j.questions[e.Question.ID] = e.Question
		case e.Pair != nil:
			j.pairs[pairKey{e.Pair.Question, e.Pair.N}] = e.Pair
		}
	}
	if err := j.f.Truncate(int64(whole)); err != nil {
		return err
	}
	if _, err := j.f.Seek(int64(whole), io.SeekStart); err != nil {
		return err
	}
	if whole == 0 {
		return j.add(entry{Key: key})
	}
	return nil
}

// add appends an entry durably.
func (j *journal) add(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.f.Write(append(b, '\n')); err != nil {
		return err
	}
	return j.f.Sync()
}

// question fills q with the finished question of that id, if there is one.
func (j *journal) question(id string, q *Question) bool {
	if x := j.questions[id]; x != nil {
		*q = *x
		return true
	}
	return false
}

func (j *journal) pair(id string, n int, p *Pair) bool {
	if x := j.pairs[pairKey{id, n}]; x != nil {
		*p = *x
		return true
	}
	return false
}

func (j *journal) close() {
	if j.f != nil {
		_ = j.f.Close()
		j.f = nil
	}
}
