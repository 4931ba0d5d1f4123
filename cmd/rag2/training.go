package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"rag2/models/train"

	"github.com/spf13/cobra"
)

// trainFlags are the settings of a training run that rerankers and filters share.
type trainFlags struct {
	o          train.Options
	lora       train.LoRA
	base, out  string
	dtype      string
	epochs     int
	tokens     int
	every      int
	patience   int
	checkpoint int
	seed       uint64
	restart    bool
}

func (t *trainFlags) define(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.base, "base", "", "model to start from: a model or a directory")
	f.StringVar(&t.out, "out", "", "where to write")
	f.StringVar(&t.dtype, "weights-dtype", train.F32, "type of the weights that are written: F32, F16, BF16")
	f.IntVar(&t.epochs, "epochs", 1, "passes over the training data")
	f.IntVar(&t.tokens, "max-tokens", 256, "tokens at most, special ones included")
	f.IntVar(&t.every, "eval-every", 100, "steps between two looks at --dev")
	f.IntVar(&t.patience, "patience", 0, "looks at --dev without anything better that end the training; 0 = none")
	f.IntVar(&t.checkpoint, "checkpoint-every", 50, "steps between two checkpoints, from which a stopped training goes on; 0 = none")
	f.Uint64Var(&t.seed, "seed", 1, "seed of what is drawn at random")
	f.BoolVar(&t.restart, "restart", false, "begin anew where a checkpoint lies in --out")
	f.Float64Var(&t.o.LR, "lr", 3e-5, "peak learning rate")
	f.IntVar(&t.o.Warmup, "warmup", 0, "steps of warm-up")
	f.Float64Var(&t.o.WeightDecay, "weight-decay", 0, "decoupled weight decay")
	f.Float64Var(&t.o.Clip, "clip", 1, "limit of the gradient's norm; 0 = none")
	f.IntVar(&t.o.Accumulate, "accumulate", 1, "batches in a step")
	f.Float64Var(&t.o.Dropout, "dropout", 0, "share of the activations that training drops")
	f.StringVar(&t.o.Storage, "storage", "float32", "how the network sees the weights in training: float32, bfloat16; the master weights are float32")
	f.IntVar(&t.lora.Rank, "lora", 0, "rank of low-rank additions that are trained instead of the weights; 0 = none")
	f.Float64Var(&t.lora.Alpha, "lora-alpha", 32, "scale of the low-rank additions, over --lora")
}

// check refuses what cannot be before anything is loaded.
func (t *trainFlags) check() error {
	if t.base == "" || t.out == "" {
		return usagef("--base and --out are needed")
	}
	if t.epochs < 1 || t.tokens < 16 || t.every < 1 || t.patience < 0 || t.checkpoint < 0 {
		return usagef("--epochs and --eval-every are at least 1, --max-tokens 16, --patience and --checkpoint-every 0")
	}
	if t.dtype != train.F32 && t.dtype != train.F16 && t.dtype != train.BF16 {
		return usagef("--weights-dtype %q; F32, F16 or BF16", t.dtype)
	}
	if t.lora.Rank != 0 {
		if err := t.lora.Validate(); err != nil {
			return usageError{err}
		}
	}
	return nil
}

// steps fixes the length of the run: batches in all, rounded down to whole updates.
func (t *trainFlags) steps(perEpoch int) (batches int, err error) {
	t.o.Seed = t.seed
	t.o.Steps = t.epochs * perEpoch / max(t.o.Accumulate, 1)
	if err := t.o.Validate(); err != nil {
		return 0, usageError{err}
	}
	return t.o.Steps * t.o.Accumulate, nil
}

// adapter is the LoRA that was asked for.
func (t *trainFlags) adapter() *train.LoRA {
	if t.lora.Rank == 0 {
		return nil
	}
	return &t.lora
}

// run trains, draws the loss, and says how it went.
func (t *trainFlags) run(ctx context.Context, a *app, j train.Job, title string) (train.Result, error) {
	if t.restart {
		if err := train.CleanUp(t.out); err != nil {
			return train.Result{}, err
		}
	}
	var p progress
	j.Dir, j.Every, j.Patience, j.Checkpoint = t.out, t.every, t.patience, t.checkpoint
	j.Progress = func(done, total int, loss float64) { p.update("steps", done, total) }
	r, err := j.Run(ctx)
	p.done()
	if errors.Is(err, train.ErrSettings) {
		err = usageError{fmt.Errorf("%w, or call with --restart", err)}
	}
	if err != nil {
		return r, err
	}
	if err := train.Plot(t.out, title); err != nil {
		return r, err
	}
	best := ""
	if r.Best != nil {
		best = fmt.Sprintf(", best held-out score %.4f at step %d", r.Best.Value, r.BestStep)
	}
	fmt.Fprintf(os.Stderr, "rag2: %d steps in %s%s\n", r.Steps, r.Wall.Round(1e9), best)
	return r, nil
}

// finish prints the result and removes the checkpoint of a run that is over.
func (t *trainFlags) finish(a *app, r train.Result) error {
	if err := train.CleanUp(t.out); err != nil {
		return err
	}
	if a.json {
		return printJSON(r)
	}
	_, err := fmt.Printf("%s: trained %d steps\n", t.out, r.Steps)
	return err
}
