package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"

	"rag2/corpusio/jsonl"
	"rag2/models/train"

	"github.com/spf13/cobra"
)

// reranker is the commands that make a cross-encoder.
func (a *app) reranker() *cobra.Command {
	return group("reranker", "fine-tune a cross-encoder", a.rerankerTrain())
}

func (a *app) rerankerTrain() *cobra.Command {
	var s stack
	var o train.Options
	var file, base, out string
	var groups, negatives, epochs, tokens, freeze int
	var seed uint64
	var half, freezeEmbeddings bool
	c := &cobra.Command{
		Use:   "train --groups GROUPS --base MODEL --out DIR",
		Short: "fine-tune a BERT on questions with right and wrong passages",
		Long: `GROUPS is JSONL: {"query", "positive", "negatives": [...]}. The loss is the softmax over
the positive and some negatives drawn from the group. DIR becomes a Hugging Face
directory that --cross-encoder opens.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" || base == "" || out == "" {
				return usagef("--groups, --base and --out are needed")
			}
			if groups < 1 || negatives < 1 || epochs < 1 || tokens < 16 {
				return usagef("--batch, --negatives and --epochs are at least 1, --max-tokens 16")
			}
			gs, err := readGroups(file)
			if err != nil {
				return err
			}
			o.Steps = epochs * (len(gs) / groups) / max(o.Accumulate, 1)
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			dir, err := a.modelDir(base)
			if err != nil {
				return err
			}
			x, err := train.OpenCrossEncoder(dir, freezeEmbeddings, freeze, seed)
			if err != nil {
				return err
			}
			if tokens > x.Config.Positions {
				return usagef("--max-tokens %d; the model has %d positions", tokens, x.Config.Positions)
			}
			defer s.close()
			if err := s.openEngine(a); err != nil {
				return err
			}
			t, err := train.New(s.engine, x.Params, x.GroupLoss(negatives+1), o)
			if err != nil {
				return err
			}
			defer t.Close()
			rng := rand.New(rand.NewPCG(seed, 2))
			var p progress
			defer p.done()
			for epoch := range epochs {
				sum, n := 0.0, 0
				err := x.Batches(gs, groups, negatives, tokens, rng, func(in []train.Input) error {
					if err := c.Context().Err(); err != nil {
						return err
					}
					loss, err := t.Batch(in)
					sum, n = sum+loss, n+1
					p.update("steps", t.Step(), o.Steps)
					return err
				})
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "rag2: epoch %d of %d: mean loss %.4f\n", epoch+1, epochs, sum/float64(max(n, 1)))
			}
			return x.Save(out, half)
		},
	}
	f := c.Flags()
	f.StringVar(&file, "groups", "", "groups to train with, JSONL (.gz is not read)")
	f.StringVar(&base, "base", "", "BERT to start from: a model or a directory")
	f.StringVar(&out, "out", "", "where to write")
	f.IntVar(&groups, "batch", 8, "groups in a batch")
	f.IntVar(&negatives, "negatives", 3, "negatives drawn for each positive")
	f.IntVar(&epochs, "epochs", 1, "passes over the groups")
	f.IntVar(&tokens, "max-tokens", 256, "tokens at most, special ones included")
	f.IntVar(&freeze, "freeze-layers", 0, "lower layers that keep their weights")
	f.BoolVar(&freezeEmbeddings, "freeze-embeddings", true, "the embeddings keep their weights")
	f.BoolVar(&half, "half", false, "float16 vectors")
	f.Uint64Var(&seed, "seed", 1, "seed of what is drawn at random")
	f.Float64Var(&o.LR, "lr", 3e-5, "peak learning rate")
	f.IntVar(&o.Warmup, "warmup", 0, "steps of warm-up")
	f.Float64Var(&o.WeightDecay, "weight-decay", 0, "decoupled weight decay")
	f.Float64Var(&o.Clip, "clip", 1, "limit of the gradient's norm; 0 = none")
	f.IntVar(&o.Accumulate, "accumulate", 1, "batches in a step")
	return c
}

func readGroups(path string) ([]train.Group, error) {
	h, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var out []train.Group
	err = jsonl.Each(path, bufio.NewReader(h), func(line int, g *train.Group, err error) error {
		if err != nil {
			return err
		}
		if g.Query == "" || g.Positive == "" || len(g.Negatives) == 0 {
			return &jsonl.ErrLine{File: path, Line: line, Err: fmt.Errorf("a group needs query, positive and negatives")}
		}
		out = append(out, *g)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: no groups", path)
	}
	return out, err
}
