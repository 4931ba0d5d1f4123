package train

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rag2/internal/atomicfile"
)

// Score is a judgement of the parameters on held-out data.
type Score struct {
	Value float64            `json:"value"` // higher is better; early stopping compares it
	More  map[string]float64 `json:"more,omitempty"`
}

// Job is a training run that may be killed at any point and goes on, when run again,
// to the same result. Everything that it does in a batch follows from the batch's
// number.
type Job struct {
	Trainer *Trainer
	Batches int                                  // in all, over all epochs
	Input   func(batch int) ([]Input, error)     // of batch 0 … Batches-1
	Dev     func(context.Context) (Score, error) // nil = none: the last parameters are the result
	Every   int                                  // steps between two looks at Dev; 0 = Dev is never looked at
	// Patience ends the run when so many looks in a row brought nothing better; 0 = never.
	Patience   int
	Checkpoint int    // steps between two checkpoints; 0 = none
	Dir        string // of checkpoint and log
	// Settings tell runs apart: a checkpoint made with others is refused.
	Settings any
	Progress func(done, total int, loss float64)
}

// Files of a run in Job.Dir.
const (
	checkpointFile = "checkpoint.safetensors"
	bestFile       = "best.safetensors"
	LogFile        = "train.jsonl" // Entry lines
)

// Entry is a line of the log: one update, or one look at the held-out data.
type Entry struct {
	Step int     `json:"step"`
	Loss float64 `json:"loss,omitempty"` // mean of the update's batches
	LR   float64 `json:"lr,omitempty"`
	Norm float64 `json:"norm,omitempty"` // of the gradient, before clipping
	Dev  *Score  `json:"dev,omitempty"`
}

// Result sums a run up.
type Result struct {
	Steps    int           `json:"steps"`
	Best     *Score        `json:"best,omitempty"`
	BestStep int           `json:"best_step,omitempty"`
	Stopped  bool          `json:"stopped_early"`
	Resumed  int           `json:"resumed_at"` // step; 0 = from the beginning
	Wall     time.Duration `json:"wall"`       // of this call
}

// state is what a checkpoint holds beside arrays.
type state struct {
	Settings json.RawMessage `json:"settings"`
	Step     int             `json:"step"`
	Batch    int             `json:"batch"`
	Best     *Score          `json:"best,omitempty"`
	BestStep int             `json:"best_step,omitempty"`
	Bad      int             `json:"bad"` // looks since the best
}

// ErrSettings reports a checkpoint of another run.
var ErrSettings = errors.New("the checkpoint was made with other settings")

// Run trains. Afterwards the parameters are the best that Dev saw, or the last.
func (j *Job) Run(ctx context.Context) (Result, error) {
	begin := time.Now()
	var r Result
	var s state
	var err error
	if s.Settings, err = json.Marshal(j.Settings); err != nil {
		return r, err
	}
	if err := os.MkdirAll(j.Dir, 0o755); err != nil {
		return r, err
	}
	if j.Checkpoint > 0 {
		if err := j.resume(&s); err != nil {
			return r, err
		}
		r.Resumed = s.Step
	}
	log, err := j.openLog(s.Step)
	if err != nil {
		return r, err
	}
	defer log.Close()
	w := json.NewEncoder(log)
	t := j.Trainer
	sum := 0.0
	for ; s.Batch < j.Batches && !j.patienceLost(&s); s.Batch++ {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		in, err := j.Input(s.Batch)
		if err != nil {
			return r, err
		}
		loss, err := t.Batch(in)
		if err != nil {
			return r, err
		}
		if sum += loss; t.step == s.Step {
			continue
		}
		s.Step = t.step
		e := Entry{Step: s.Step, Loss: sum / float64(t.o.Accumulate), LR: t.o.rate(s.Step - 1), Norm: t.norm}
		sum = 0
		if j.Progress != nil {
			j.Progress(s.Step, t.o.Steps, e.Loss)
		}
		last := s.Batch+t.o.Accumulate >= j.Batches
		if j.Dev != nil && j.Every > 0 && (s.Step%j.Every == 0 || last) {
			if err := j.look(ctx, &s, &e); err != nil {
				return r, err
			}
		}
		if err := w.Encode(e); err != nil {
			return r, fmt.Errorf("write the log: %w", err)
		}
		if j.Checkpoint > 0 && (s.Step%j.Checkpoint == 0 || last || j.patienceLost(&s)) {
			// The log must not lag behind the checkpoint.
			if err := log.Sync(); err != nil {
				return r, err
			}
			if err := j.save(s); err != nil {
				return r, err
			}
		}
	}
	r.Steps, r.Best, r.BestStep, r.Stopped = s.Step, s.Best, s.BestStep, s.Batch < j.Batches
	r.Wall = time.Since(begin)
	if s.Best != nil {
		if err := j.restoreBest(); err != nil {
			return r, err
		}
	}
	return r, log.Sync()
}

func (j *Job) patienceLost(s *state) bool { return j.Patience > 0 && s.Bad >= j.Patience }

// look judges the parameters and keeps them when they are the best so far.
func (j *Job) look(ctx context.Context, s *state, e *Entry) error {
	score, err := j.Dev(ctx)
	if err != nil {
		return fmt.Errorf("held-out data at step %d: %w", s.Step, err)
	}
	e.Dev = &score
	if s.Best != nil && !(score.Value > s.Best.Value) {
		s.Bad++
		return nil
	}
	s.Best, s.BestStep, s.Bad = &score, s.Step, 0
	var ts []Tensor
	for _, p := range j.Trainer.free() {
		ts = append(ts, Tensor{p.Name, p.Dims, p.Value})
	}
	return WriteSafetensors(filepath.Join(j.Dir, bestFile), ts, F32, nil)
}

// openLog opens the log for appending, with the lines after step dropped: those of a run
// that was killed after its last checkpoint.
func (j *Job) openLog(step int) (*os.File, error) {
	path := filepath.Join(j.Dir, LogFile)
	entries, err := ReadLog(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	for _, e := range entries {
		if e.Step <= step {
			if err := w.Encode(e); err != nil {
				return nil, err
			}
		}
	}
	if err := atomicfile.WriteFile(path, b.Bytes()); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o644)
}

// ReadLog reads the log of a run; a last line that was cut is left out.
func ReadLog(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Entry
	r := bufio.NewReader(f)
	for line := 1; ; line++ {
		b, err := r.ReadBytes('\n')
		if err != nil { // what has no end of line is no line
			return out, nil
		}
		var e Entry
		if err := json.Unmarshal(b, &e); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		out = append(out, e)
	}
}
