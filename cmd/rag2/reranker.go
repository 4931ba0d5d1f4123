package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"rag2/models/train"
	"rag2/pipeline/tune"

	"github.com/spf13/cobra"
)

// reranker is the commands that make a cross-encoder.
func (a *app) reranker() *cobra.Command {
	return group("reranker", "fine-tune a cross-encoder: data, hard negatives, training, judgement",
		a.rerankerBioASQ(), a.rerankerMine(), a.rerankerTrain(), a.rerankerEval())
}

func (a *app) rerankerBioASQ() *cobra.Command {
	var out string
	var dev, test float64
	c := &cobra.Command{
		Use:   "bioasq FILE... --out DIR",
		Short: "read BioASQ's golden files: a corpus of their snippets, and questions with the right ones",
		Long: `Writes DIR/corpus.jsonl (for "corpus add --format medrag") and DIR/{train,dev,test}.jsonl,
lines of {"id", "query", "positives": [{"doc", "text"}]}, divided by question.`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if out == "" || !(dev >= 0 && test >= 0 && dev+test < 1) {
				return usagef("--out is needed, and --dev-share and --test-share together are below 1")
			}
			b, err := tune.ReadBioASQ(args)
			if err != nil {
				return err
			}
			tr, de, te := tune.Split(b.Pairs, dev, test)
			if err := errors.Join(os.MkdirAll(out, 0o755), tune.WriteLines(filepath.Join(out, "corpus.jsonl"), b.Chunks), tune.WriteLines(filepath.Join(out, "train.jsonl"), tr),
				tune.WriteLines(filepath.Join(out, "dev.jsonl"), de), tune.WriteLines(filepath.Join(out, "test.jsonl"), te)); err != nil {
				return err
			}
			_, err = fmt.Printf("%s: %d snippets; questions: %d to train with, %d dev, %d test\n", out, len(b.Chunks), len(tr), len(de), len(te))
			return err
		},
	}
	c.Flags().StringVar(&out, "out", "", "where to write")
	c.Flags().Float64Var(&dev, "dev-share", 0.1, "share of the questions that dev.json holds")
	c.Flags().Float64Var(&test, "test-share", 0.15, "share of the questions to judge the result by")
	return c
}

// searchFlags choose what Mine and Rank search.
func searchFlags(c *cobra.Command, s *stack, depth *int) {
	s.encoderFlags(c)
	c.Flags().StringSliceVar(&s.corpora, "corpora", nil, corporaUsage)
	c.Flags().IntVar(depth, "depth", 50, "hits of a question that are looked at")
}

func (a *app) rerankerMine() *cobra.Command {
	var s stack
	var o tune.MineOptions
	var file, out string
	c := &cobra.Command{
		Use:   "mine --pairs PAIRS --out GROUPS",
		Short: "search the corpora for each question and keep the best wrong hits as negatives",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" || out == "" {
				return usagef("--pairs and --out are needed")
			}
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			pairs, err := tune.ReadPairs(file)
			if err != nil {
				return err
			}
			defer s.close()
			if err := s.openRetrieval(a); err != nil {
				return err
			}
			var p progress
			gs, err := tune.Mine(c.Context(), s.enc, s.pipe.Corpora, pairs, o, func(done, total int) { p.update("questions", done, total) })
			p.done()
			if err != nil {
				return err
			}
			if err := tune.WriteLines(out, gs); err != nil {
				return err
			}
			_, err = fmt.Printf("%s: %d groups of %d questions\n", out, len(gs), len(pairs))
			return err
		},
	}
	searchFlags(c, &s, &o.Depth)
	f := c.Flags()
	f.StringVar(&file, "pairs", "", pairsUsage)
	f.StringVar(&out, "out", "", "where to write")
	f.IntVar(&o.Skip, "skip", 0, "first hits that give no negatives, where unmarked right texts are frequent")
	f.IntVar(&o.Negatives, "keep", 12, "negatives kept for a question")
	f.IntVar(&o.Positives, "positives", 0, "groups of a question at most, one for each right text; 0 = all")
	return c
}

func (a *app) rerankerTrain() *cobra.Command {
	var s stack
	var t trainFlags
	var file, dev string
	var negatives, freeze int
	var sampler train.Sampler
	var freezeEmbeddings bool
	c := &cobra.Command{
		Use:   "train --groups GROUPS --base MODEL --out DIR",
		Short: "fine-tune a BERT on questions with right and wrong passages",
		Long: `GROUPS is JSONL: {"query", "positive", "negatives": [...]}, as "reranker mine" writes it. The
loss is the softmax over the positive and some negatives drawn from the group. DIR becomes
a Hugging Face directory that --cross-encoder opens; with --lora an adapter of the PEFT
library, which --cross-encoder opens with the base model beside it. A training that was
stopped, however, goes on from its checkpoint in DIR to the same result.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("--groups is needed")
			}
			if err := t.check(); err != nil {
				return err
			}
			if sampler.Batch < 1 || negatives < 1 {
				return usagef("--batch and --negatives are at least 1")
			}
			var err error
			if sampler.Groups, err = tune.ReadGroups(file); err != nil {
				return err
			}
			var held []train.Group
			if dev != "" {
				if held, err = tune.ReadGroups(dev); err != nil {
					return err
				}
			}
			sampler.Negatives, sampler.Seed = negatives, t.seed
			batches, err := t.steps(sampler.PerEpoch())
			if err != nil {
				return err
			}
			dir, err := a.modelDir(t.base)
			if err != nil {
				return err
			}
			x, err := train.OpenBERT(dir, train.BERTOptions{Labels: 1, FreezeEmbeddings: freezeEmbeddings, FreezeLayers: freeze, LoRA: t.adapter(), Seed: t.seed})
			if err != nil {
				return err
			}
			if t.tokens > x.Config.Positions {
				return usagef("--max-tokens %d; the model has %d positions", t.tokens, x.Config.Positions)
			}
			defer s.close()
			if err := s.openEngine(a); err != nil {
				return err
			}
			tr, err := train.New(s.engine, x.Params, x.GroupLoss(negatives+1), t.o)
			if err != nil {
				return err
			}
			defer tr.Close()
			j := train.Job{Trainer: tr, Batches: batches,
				Input:    func(batch int) ([]train.Input, error) { return x.PairInputs(sampler.Pairs(batch), t.tokens), nil },
				Settings: map[string]any{"command": "reranker train", "options": t.o, "lora": t.lora, "base": t.base, "tokens": t.tokens, "batch": sampler.Batch, "negatives": negatives, "groups": len(sampler.Groups), "freeze": freeze, "freeze_embeddings": freezeEmbeddings},
			}
			if dev != "" {
				j.Dev = func(ctx context.Context) (train.Score, error) { return rankGroups(ctx, x, tr, held, t.tokens) }
			}
			r, err := t.run(c.Context(), a, j, "reranker: softmax loss over a positive and its negatives")
			if err != nil {
				return err
			}
			if t.adapter() != nil {
				err = x.SaveAdapter(t.out, a.repository(t.base), t.dtype)
			} else {
				err = x.Save(t.out, t.dtype, nil)
			}
			if err != nil {
				return err
			}
			return t.finish(a, r)
		},
	}
	t.define(c)
	f := c.Flags()
	f.StringVar(&file, "groups", "", groupsUsage)
	f.StringVar(&dev, "held-out", "", devUsage)
	f.IntVar(&sampler.Batch, "batch", 8, "examples in a batch")
	f.IntVar(&negatives, "negatives", 3, "negatives drawn for each positive")
	f.IntVar(&freeze, "freeze-layers", 0, "lower layers that keep their weights")
	f.BoolVar(&freezeEmbeddings, "freeze-embeddings", true, "the embeddings keep their weights")
	return c
}

// rankGroups is the mean reciprocal rank of the positives among all their negatives.
func rankGroups(ctx context.Context, x *train.BERT, t *train.Trainer, groups []train.Group, tokens int) (train.Score, error) {
	sum := 0.0
	for _, g := range groups {
		if err := ctx.Err(); err != nil {
			return train.Score{}, err
		}
		pairs := [][2]string{{g.Query, g.Positive}}
		for _, n := range g.Negatives {
			pairs = append(pairs, [2]string{g.Query, n})
		}
		z, err := x.Scores(t, pairs, tokens)
		if err != nil {
			return train.Score{}, err
		}
		rank := 1
		for _, v := range z[1:] {
			if v >= z[0] {
				rank++
			}
		}
		sum += 1 / float64(rank)
	}
	return train.Score{Value: sum / float64(len(groups))}, nil
}

func (a *app) rerankerEval() *cobra.Command {
	var s stack
	var file, dev string
	var depth int
	var weight float64
	c := &cobra.Command{
		Use:   "eval --pairs PAIRS --cross-encoder MODEL",
		Short: "compare a cross-encoder with the retrieval that it reranks: nDCG@10, MRR",
		Long: `Intervals are 95 % bootstraps over questions, the gain is paired. --held-out names other
questions, on which the weight of the retrieval score beside the cross-encoder's logit is
chosen by nDCG@10; the pipeline takes it as --rerank-retrieval.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" || s.crossEncoder == "" || depth < 1 {
				return usagef("--pairs and --cross-encoder are needed, and --depth is at least 1")
			}
			pairs, err := tune.ReadPairs(file)
			if err != nil {
				return err
			}
			var devPairs []tune.Pair
			if dev != "" {
				if devPairs, err = tune.ReadPairs(dev); err != nil {
					return err
				}
			}
			defer s.close()
			if err := s.openRetrieval(a); err != nil {
				return err
			}
			run := func(pairs []tune.Pair, what string) ([]tune.Reranked, error) {
				var p progress
				defer p.done()
				return tune.Rerank(c.Context(), s.enc, s.pipe.CrossEncoder, s.pipe.Corpora, pairs, depth, func(done, total int) { p.update(what, done, total) })
			}
			if dev != "" {
				held, err := run(devPairs, "held-out questions")
				if err != nil {
					return err
				}
				weight = tune.BestWeight(held)
				if d := tune.Rank(held, depth, weight); !a.json {
					fmt.Printf("weight of the retrieval score, chosen on %d held-out questions: %g; gain there in nDCG@10 %s, MRR %s\n", d.Questions, weight, d.Gain.NDCG10, d.Gain.MRR)
				}
			}
			rs, err := run(pairs, "questions")
			if err != nil {
				return err
			}
			r := tune.Rank(rs, depth, weight)
			if a.json {
				return printJSON(r)
			}
			fmt.Printf("%d questions, %d candidates each; %.1f %% have a right one among them\n%-12s %-24s %s\n", r.Questions, r.Depth, 100*r.Found, "", "nDCG@10", "MRR")
			for _, row := range []struct {
				name string
				s    tune.RankingScores
			}{{"retrieval", r.Retrieval}, {"reranked", r.Reranked}, {"gain", r.Gain}} {
				fmt.Printf("%-12s %-24s %s\n", row.name, row.s.NDCG10, row.s.MRR)
			}
			return nil
		},
	}
	searchFlags(c, &s, &depth)
	c.Flags().StringVar(&file, "pairs", "", pairsUsage)
	c.Flags().StringVar(&dev, "held-out", "", devUsage)
	c.Flags().Float64Var(&weight, "rerank-retrieval", 0, rerankRetrievalUsage)
	c.Flags().StringVar(&s.crossEncoder, "cross-encoder", "", crossEncoderUsage)
	return c
}
