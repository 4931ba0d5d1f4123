package main

import (
	"fmt"

	"rag2/models/bert"
	"rag2/models/train"
	"rag2/pipeline/label"
	"rag2/pipeline/tune"

	"github.com/spf13/cobra"
)

func (a *app) filterGold() *cobra.Command {
	var file, out, dataset string
	var random float64
	var seed uint64
	c := &cobra.Command{
		Use:   "gold --groups GROUPS --out RECORDS.json",
		Short: "training records from relevance judgements instead of perplexities",
		Long: `For each group of "reranker mine" two records in the authors' format: the right text is
helpful, and a mined text, or one that is right for another question, is not.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" || out == "" {
				return usagef("--groups and --out are needed")
			}
			if !(random >= 0 && random <= 1) {
				return usagef("--random %g; 0 to 1 is possible", random)
			}
			gs, err := tune.ReadGroups(file)
			if err != nil {
				return err
			}
			rs, err := tune.Gold(gs, random, dataset, seed)
			if err != nil {
				return err
			}
			if err := label.WriteRecords(out, rs); err != nil {
				return err
			}
			_, err = fmt.Printf("%s: %d records\n", out, len(rs))
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&file, "groups", "", groupsUsage)
	f.StringVar(&out, "out", "", "where to write")
	f.StringVar(&dataset, "dataset", "rag2", datasetUsage)
	f.Float64Var(&random, "random", 0.5, "share of the negatives that are right texts of other questions")
	f.Uint64Var(&seed, "seed", 1, "seed of what is drawn at random")
	return c
}

// authors sets what the authors trained with.
func (t *trainFlags) authors(c *cobra.Command, batch *int) {
	set := func(name string, f func()) {
		if !c.Flags().Changed(name) {
			f()
		}
	}
	set("lr", func() { t.o.LR = 3e-5 })
	set("epochs", func() { t.epochs = 40 })
	set("batch", func() { *batch = 16 })
	set("max-tokens", func() { t.tokens = 512 })
	set("weight-decay", func() { t.o.WeightDecay = 0 })
	set("warmup", func() { t.o.Warmup = 0 })
	set("clip", func() { t.o.Clip = 1 })
}

func (a *app) filterTrain() *cobra.Command {
	var s stack
	var t trainFlags
	var file, dev, weighting string
	var authors bool
	var batch int
	c := &cobra.Command{
		Use:   "train --records RECORDS.json --base MODEL --out DIR",
		Short: "train a filter: a T5 that answers with a label token, or a BERT that reads question and evidence",
		Long: `RECORDS is a JSON array in the authors' format, {"id", "answer", "dataset_name", "question"},
as "filter export" writes it. A T5 without the tokens [HELPFUL] and [NOT_HELPFUL] gets
them; its loss is the cross-entropy of the label token over the vocabulary. DIR becomes a
Hugging Face directory that --filter opens. --authors: learning rate 3e-5, 40
epochs, batches of 16, linear decay, no warm-up, no weight decay. A training that was
stopped, however, goes on from its checkpoint in DIR to the same result.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if authors {
				t.authors(c, &batch)
			}
			if file == "" {
				return usagef("--records is needed")
			}
			if err := t.check(); err != nil {
				return err
			}
			if batch < 1 || weighting != "none" && weighting != "balanced" {
				return usagef("--batch is at least 1, and --class-weight is none or balanced")
			}
			dir, err := a.modelDir(t.base)
			if err != nil {
				return err
			}
			x, err := t.classifier(dir)
			if err != nil {
				return err
			}
			examples, err := prepare(file, x)
			if err != nil {
				return err
			}
			var held []train.Example
			if dev != "" {
				if held, err = prepare(dev, x); err != nil {
					return err
				}
			}
			if weighting == "balanced" {
				x.SetWeight(train.Balanced(examples))
			}
			data := &train.Shuffled{Examples: examples, Batch: batch, Seed: t.seed}
			batches, err := t.steps(data.PerEpoch())
			if err != nil {
				return err
			}
			defer s.close()
			if err := s.openEngine(a); err != nil {
				return err
			}
			tr, err := train.New(s.engine, x.Parameters(), x.Loss, t.o)
			if err != nil {
				return err
			}
			defer tr.Close()
			j := train.Job{Trainer: tr, Batches: batches, Input: func(batch int) ([]train.Input, error) { return x.Inputs(data.At(batch)), nil },
				Settings: map[string]any{"command": "filter train", "options": t.o, "lora": t.lora, "base": t.base, "tokens": t.tokens, "batch": batch, "records": len(examples), "weighting": weighting}}
			if dev != "" {
				j.Dev = train.HeldOut(x, tr, held, 2*batch)
			}
			r, err := t.run(c.Context(), a, j, "filter: cross-entropy of the label")
			if err != nil {
				return err
			}
			if err := x.SaveFilter(t.out, t.dtype); err != nil {
				return err
			}
			return t.finish(a, r)
		},
	}
	t.define(c)
	f := c.Flags()
	f.StringVar(&file, "records", "", recordsUsage)
	f.StringVar(&dev, "held-out", "", devUsage)
	f.BoolVar(&authors, "authors", false, "start from the authors' settings; flags that are given win")
	f.IntVar(&batch, "batch", 16, "examples in a batch")
	f.StringVar(&weighting, "class-weight", "none", "none, or balanced: both classes weigh as much in the loss")
	return c
}

// classifier opens what is trained: a T5, or any BERT.
func (t *trainFlags) classifier(dir string) (train.Classifier, error) {
	if _, err := bert.ReadConfig(dir); err != nil {
		x, err := train.OpenT5(dir, t.adapter(), t.seed)
		if err != nil {
			return nil, err
		}
		x.MaxTokens = t.tokens
		return x, nil
	}
	b, err := train.OpenBERT(dir, train.BERTOptions{Labels: 2, LoRA: t.adapter(), Seed: t.seed})
	if err != nil {
		return nil, err
	}
	if t.tokens > b.Config.Positions {
		return nil, usagef("--max-tokens %d; the model has %d positions", t.tokens, b.Config.Positions)
	}
	return &train.PairFilter{BERT: b, MaxTokens: t.tokens}, nil
}

// prepare reads and encodes records.
func prepare(path string, x train.Classifier) ([]train.Example, error) {
	rs, err := label.ReadRecords(path)
	if err != nil {
		return nil, err
	}
	if len(rs) == 0 {
		return nil, fmt.Errorf("%s: no records", path)
	}
	out := make([]train.Example, len(rs))
	for i, r := range rs {
		class := 0
		if r.Answer == label.TokenHelpful {
			class = 1
		}
		if out[i], err = x.Prepare(r.Question, class); err != nil {
			return nil, fmt.Errorf("%s: record %d (%s): %w", path, i, r.ID, err)
		}
	}
	return out, nil
}
