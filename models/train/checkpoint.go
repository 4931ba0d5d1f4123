package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"rag2/tensor/weights"
)

// The three arrays of a parameter in a checkpoint.
const (
	ofMoment   = ".exp_avg"
	ofVariance = ".exp_avg_sq"
)

// save writes the checkpoint: values and optimiser state of what is trained, in
// float32, and the state as metadata. It is called between updates only, when no
// gradient is held.
func (j *Job) save(s state) error {
	if j.Trainer.held != 0 {
		return errors.New("checkpoint: gradients are held")
	}
	s.Batch++ // the next one
	meta, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var ts []Tensor
	for _, p := range j.Trainer.free() {
		ts = append(ts, Tensor{p.Name, p.Dims, p.Value}, Tensor{p.Name + ofMoment, p.Dims, p.m}, Tensor{p.Name + ofVariance, p.Dims, p.v})
	}
	return WriteSafetensors(filepath.Join(j.Dir, checkpointFile), ts, F32, map[string]string{"rag2.training": string(meta)})
}

// resume reads the checkpoint, if there is one, into the trainer and s.
func (j *Job) resume(s *state) error {
	path := filepath.Join(j.Dir, checkpointFile)
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	w, err := weights.Open(path)
	if err != nil {
		return err
	}
	defer w.Close()
	meta, _ := w.Meta()["rag2.training"].(string)
	var got state
	if err := json.Unmarshal([]byte(meta), &got); err != nil {
		return fmt.Errorf("%s: no checkpoint of a training run: %w", path, err)
	}
	if string(got.Settings) != string(s.Settings) {
		return fmt.Errorf("%s: %w: %s, now %s; remove the file to begin anew", path, ErrSettings, got.Settings, s.Settings)
	}
	for _, p := range j.Trainer.free() {
		for _, x := range []struct {
			name string
			to   []float32
		}{{p.Name, p.Value}, {p.Name + ofMoment, p.m}, {p.Name + ofVariance, p.v}} {
			if err := readInto(w, x.name, p.Dims, x.to); err != nil {
				return err
			}
		}
	}
	*s = got
	t := j.Trainer
	t.step, t.batch, t.held = got.Step, got.Batch, 0
	return nil
}

// restoreBest puts the best parameters back.
func (j *Job) restoreBest() error {
	w, err := weights.Open(filepath.Join(j.Dir, bestFile))
	if err != nil {
		return err
	}
	defer w.Close()
	for _, p := range j.Trainer.free() {
		if err := readInto(w, p.Name, p.Dims, p.Value); err != nil {
			return err
		}
	}
	return nil
}

// readInto reads a tensor of a given shape.
func readInto(w *weights.File, name string, dims []int, to []float32) error {
	i, err := w.Info(name)
	if err != nil {
		return err
	}
	if !slices.Equal(i.Shape, dims) {
		return fmt.Errorf("%s: tensor %q has shape %v, the network has %v", w.Path(), name, i.Shape, dims)
	}
	v, err := w.Float32(name)
	if err != nil {
		return err
	}
	copy(to, v)
	return nil
}

// CleanUp removes checkpoint and best parameters of a run that is over; the log stays.
func CleanUp(dir string) error {
	var errs []error
	for _, f := range []string{checkpointFile, bestFile} {
		if err := os.Remove(filepath.Join(dir, f)); err != nil && !os.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
