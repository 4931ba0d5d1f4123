package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// job is a run on the tiny T5 whose look at held-out data is the loss of batch 0.
func job(t *testing.T, dir string) (*Job, *T5) {
	t.Helper()
	g, x := openT5(t, "t5")
	tr, err := New(engines(t)["native"], x.Params, x.Loss, Options{Steps: 30, LR: 2e-3, Accumulate: 2, Dropout: 0.1, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return &Job{Trainer: tr, Batches: 60, Input: func(b int) ([]Input, error) { return g.batch(b), nil }, Every: 4, Checkpoint: 3, Dir: dir, Settings: "s",
		Dev: func(context.Context) (Score, error) {
			in := g.batch(0)
			l, err := tr.Evaluate("loss", in, 1, x.Loss)
			if err != nil {
				return Score{}, err
			}
			return Score{Value: -float64(l[0])}, nil
		}}, x
}

// digest is everything that a run leaves.
func digest(t *testing.T, x *T5, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, p := range x.Params {
		if err := json.NewEncoder(&b).Encode(p.Value); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, LogFile))
	if err != nil {
		t.Fatal(err)
	}
	b.Write(log)
	return b.Bytes()
}

func whole(t *testing.T) []byte {
	dir := t.TempDir()
	j, x := job(t, dir)
	r, err := j.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if r.Steps != 30 || r.Best == nil || r.BestStep%4 != 0 && r.BestStep != 30 {
		t.Errorf("%+v", r)
	}
	if err := Plot(dir, "a run"); err != nil {
		t.Error(err)
	}
	return digest(t, x, dir)
}

// A run that is interrupted at any batch and goes on leaves the same as one that is not.
func TestResumeGivesTheSame(t *testing.T) {
	want := whole(t)
	dir := t.TempDir()
	for _, stop := range []int{1, 2, 7, 8, 13, 24, 25, 40, 58} {
		j, _ := job(t, dir)
		ctx, cancel := context.WithCancel(context.Background())
		input := j.Input
		j.Input = func(b int) ([]Input, error) {
			if b == stop {
				cancel()
			}
			return input(b)
		}
		if _, err := j.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped at %d: %v", stop, err)
		}
		cancel()
	}
	j, x := job(t, dir)
	r, err := j.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if r.Resumed == 0 {
		t.Error("nothing was resumed")
	}
	if got := digest(t, x, dir); !bytes.Equal(got, want) {
		t.Error("the result differs from that of a run that was not interrupted")
	}
	j, _ = job(t, dir)
	j.Settings = "others"
	if _, err := j.Run(context.Background()); !errors.Is(err, ErrSettings) {
		t.Errorf("other settings: %v", err)
	}
}

// The same with a process that is killed.
func TestKillAndResume(t *testing.T) {
	if dir := os.Getenv("RAG2_TEST_TRAIN_DIR"); dir != "" {
		j, _ := job(t, dir)
		if _, err := j.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := whole(t)
	dir := t.TempDir()
	for i := range 4 {
		c := exec.Command(os.Args[0], "-test.run=^TestKillAndResume$")
		c.Env = append(os.Environ(), "RAG2_TEST_TRAIN_DIR="+dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// Killed as soon as the log has grown by some steps.
		deadline := time.Now().Add(time.Minute)
		for time.Now().Before(deadline) {
			log, _ := ReadLog(filepath.Join(dir, LogFile))
			if len(log) > 0 && log[len(log)-1].Step > 6*i+3 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	j, x := job(t, dir)
	r, err := j.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := digest(t, x, dir); !bytes.Equal(got, want) {
		t.Errorf("the result after kills differs (%+v)", r)
	}
}

func TestPatience(t *testing.T) {
	dir := t.TempDir()
	j, x := job(t, dir)
	n := 0
	var best []float32
	j.Dev = func(context.Context) (Score, error) {
		if n++; n == 2 {
			best = append([]float32(nil), x.Params[0].Value...)
			return Score{Value: 1}, nil
		}
		return Score{Value: 0}, nil
	}
	j.Patience = 3
	r, err := j.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !r.Stopped || r.Steps != 4*5 || r.BestStep != 8 {
		t.Errorf("%+v", r)
	}
	for i, v := range best {
		if x.Params[0].Value[i] != v {
			t.Fatal("the best parameters were not put back")
		}
	}
	// Called again, it is over at once with the same result.
	j2, _ := job(t, dir)
	j2.Patience = 3
	r2, err := j2.Run(context.Background())
	if err != nil || r2.Steps != r.Steps || !r2.Stopped || r2.BestStep != 8 {
		t.Errorf("%+v, %v", r2, err)
	}
	if err := CleanUp(dir); err != nil {
		t.Error(err)
	}
}
