package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"rag2/internal/atomicfile"
	"rag2/models"
	"rag2/pipeline"
	"rag2/pipeline/label"

	"github.com/spf13/cobra"
)

// filter is the commands that make the rationale-guided filter.
func (a *app) filter() *cobra.Command {
	return group("filter", "the filter: make labels, look at them, train, judge",
		a.filterLabel(), a.filterRelabel(), a.filterReport(), a.filterExport(), a.filterGold(), a.filterTrain(), a.filterEval())
}

// labelSummary is what the commands print.
type labelSummary struct {
	File      string              `json:"file"`
	Questions int                 `json:"questions"`
	Pairs     int                 `json:"pairs"`
	Scored    int                 `json:"scored"`
	Tau       *float64            `json:"tau"`
	Labels    map[label.Label]int `json:"labels"`
}

func (a *app) printLabels(path string, f *label.File) error {
	s := labelSummary{File: path, Questions: len(f.Questions), Labels: map[label.Label]int{label.Helpful: 0, label.NotHelpful: 0, label.Discard: 0}}
	for _, q := range f.Questions {
		for _, p := range q.Pairs {
			s.Pairs++
			s.Labels[p.Label]++
			if p.Delta != nil {
				s.Scored++
			}
			if f.Settings.Population == label.Global {
				s.Tau = p.Tau
			}
		}
	}
	if a.json {
		return printJSON(s)
	}
	tau := "one for each question"
	if s.Tau != nil {
		tau = strconv.FormatFloat(*s.Tau, 'g', 6, 64)
	}
	_, err := fmt.Printf("%s: %d questions, %d pairs, %d with ΔPPL, τ = %s\n  %s %d · %s %d · %s %d\n", path, s.Questions, s.Pairs, s.Scored, tau,
		label.Helpful, s.Labels[label.Helpful], label.NotHelpful, s.Labels[label.NotHelpful], label.Discard, s.Labels[label.Discard])
	return err
}

// tauFlag is --tau and --tau-population.
type tauFlag struct{ tau, population string }

func (t *tauFlag) define(c *cobra.Command) {
	c.Flags().StringVar(&t.tau, "tau", "quartile", "threshold of ΔPPL: quartile (the ⌈n/4⌉-th largest) or a number")
	c.Flags().StringVar(&t.population, "tau-population", label.Global, "pairs that the quartile is taken over: global, per-question")
}

func (t *tauFlag) value() (*float64, error) {
	if t.tau == "quartile" {
		return nil, nil
	}
	v, err := strconv.ParseFloat(t.tau, 64)
	if err != nil || v-v != 0 {
		return nil, usagef("--tau %q: quartile or a finite number", t.tau)
	}
	return &v, nil
}

func (a *app) filterLabel() *cobra.Command {
	var s stack
	var po pipeline.Options
	var o label.Options
	var tau tauFlag
	var file, out string
	var first int
	var priceIn, priceOut float64
	c := &cobra.Command{
		Use:   "label --file QUESTIONS --out LABELS",
		Short: "label snippets by the perplexity of the model's rationale with and without them",
		Long: `Labels question-snippet pairs as RAG² does. QUESTIONS is JSONL: {"id", "question",
"options", "answer", "snippets": [{"id", "corpus", "title", "text"}]}; questions without
snippets retrieve theirs from the corpora. A job that was stopped continues when it is
called again. The model must give log-probabilities of given text: --llm does, a server
is asked once.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" || out == "" {
				return usagef("--file and --out are needed")
			}
			if s.llmPath == "" && s.llmURL == "" {
				return usagef("labels need a language model: --llm or --llm-url")
			}
			var err error
			if o.Tau, err = tau.value(); err != nil {
				return err
			}
			o.Population = tau.population
			o.RationaleTokens = po.RationaleTokens
			if err := o.Validate(); err != nil {
				return err
			}
			items, err := label.ReadItems(file, first)
			if err != nil {
				return err
			}
			defer s.close()
			l := label.Labeler{}
			if l.Prompts, err = pipeline.LoadPrompts(s.prompts); err != nil {
				return err
			}
			for _, it := range items {
				if len(it.Snippets) > 0 {
					continue
				}
				if err := s.openRetrieval(a); err != nil {
					return fmt.Errorf("question %s has no snippets: %w", it.Question.ID, err)
				}
				given, err := po.Defaults(len(s.pipe.Corpora))
				if err != nil {
					return err
				}
				l.Retrieve, l.Expected = s.candidates(po), min(given.K, given.PerCorpusK*len(s.pipe.Corpora))
				l.Candidates = fmt.Sprintf("%s %s k=%d per-corpus=%d preset=%s query=%s rerank=%s %s", s.enc.Fingerprint(), s.crossEncoder, po.K, po.PerCorpusK, po.Preset, po.Query, po.RerankQuery, s.corpora)
				if po.RerankRetrieval != 0 {
					l.Candidates += fmt.Sprintf(" retrieval=%g", po.RerankRetrieval)
				}
				break
			}
			if err := s.openGenerator(a); err != nil {
				return err
			}
			l.Generator = s.pipe.Generator
			var p progress
			var now label.Progress
			cost := func() string {
				s := fmt.Sprintf("%d tokens read, %d written", now.Read, now.Written)
				if priceIn > 0 || priceOut > 0 {
					s += fmt.Sprintf(", cost about %.2f", (float64(now.Read)*priceIn+float64(now.Written)*priceOut)/1e6)
				}
				return s
			}
			l.Progress = func(n label.Progress) { now = n; p.note = cost(); p.update("pairs", n.Done, n.Total) }
			start := time.Now()
			f, err := l.Run(c.Context(), items, o, out)
			p.done()
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "rag2: %s, %s\n", cost(), time.Since(start).Round(time.Second))
			return a.printLabels(out, f)
		},
	}
	s.retrievalFlags(c)
	optionFlags(c, &po, pipeline.QueryRationale)
	tau.define(c)
	f := c.Flags()
	f.StringVar(&file, "file", "", "JSONL file of questions {\"question\", \"options\"}, .gz too")
	f.StringVar(&out, "out", "", "where to write")
	f.IntVar(&first, "first", 0, "take this many questions (default all)")
	f.StringVar(&o.Scored, "scored", label.ScoreRationale, "text whose perplexity is compared: rationale, question")
	f.StringVar(&o.Answers, "answers", pipeline.AnswerText, "text: the model writes its answers; logprob: the options are scored")
	f.IntVar(&o.AnswerTokens, "answer-tokens", 512, "tokens of the answer at most")
	f.IntVar(&o.Concurrency, "concurrency", 4, "questions that a server works on at once")
	f.Float64Var(&priceIn, "price-in", 0, "price of a million prompt tokens, for the cost that is shown")
	f.Float64Var(&priceOut, "price-out", 0, "price of a million written tokens")
	return c
}

// candidates retrieves the snippets of a question whose rationale is known.
func (s *stack) candidates(o pipeline.Options) func(context.Context, pipeline.Question, models.Completion) ([]label.Snippet, error) {
	return func(ctx context.Context, q pipeline.Question, rationale models.Completion) ([]label.Snippet, error) {
		t, err := s.pipe.RetrieveGiven(ctx, q, rationale, o)
		if err != nil {
			return nil, err
		}
		out := []label.Snippet{}
		for _, x := range t.Kept() {
			out = append(out, label.Snippet{ID: x.ID, Corpus: x.Corpus, Title: x.Title, Text: x.Text})
		}
		return out, nil
	}
}

func (a *app) filterRelabel() *cobra.Command {
	var tau tauFlag
	var out string
	c := &cobra.Command{
		Use:   "relabel LABELS",
		Short: "recompute labels with another threshold, without the language model",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			v, err := tau.value()
			if err != nil {
				return err
			}
			f, err := label.Read(args[0])
			if err != nil {
				return err
			}
			if err := f.Relabel(v, tau.population); err != nil {
				return usageError{err}
			}
			if out == "" {
				out = args[0]
			}
			if err := f.Write(out); err != nil {
				return err
			}
			return a.printLabels(out, f)
		},
	}
	tau.define(c)
	c.Flags().StringVar(&out, "out", "", "where to write")
	return c
}

func (a *app) filterReport() *cobra.Command {
	var out, other string
	c := &cobra.Command{
		Use:   "report LABELS --out REPORT.html",
		Short: "write a page with the labels' distributions and agreement",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if out == "" {
				return usagef("--out is needed")
			}
			f, err := label.Read(args[0])
			if err != nil {
				return err
			}
			var g *label.File
			if other != "" {
				if g, err = label.Read(other); err != nil {
					return err
				}
			}
			html, err := label.Report(f, g)
			if err != nil {
				return err
			}
			return atomicfile.WriteFile(out, html)
		},
	}
	c.Flags().StringVar(&out, "out", "", "where to write")
	c.Flags().StringVar(&other, "compare", "", "another label file, to count how often they agree")
	return c
}

func (a *app) filterExport() *cobra.Command {
	var out, dataset string
	var dev float64
	c := &cobra.Command{
		Use:   "export LABELS --out DIR",
		Short: `write train.json and dev.json in the authors' format {"id","answer","dataset_name","question"}`,
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if out == "" || !(dev >= 0 && dev < 1) {
				return usagef("--out is needed, and --dev-share is between 0 and 1")
			}
			f, err := label.Read(args[0])
			if err != nil {
				return err
			}
			train, held := label.Split(f.Records(dataset), dev)
			if err := errors.Join(os.MkdirAll(out, 0o755), label.WriteRecords(filepath.Join(out, "train.json"), train), label.WriteRecords(filepath.Join(out, "dev.json"), held)); err != nil {
				return err
			}
			_, err = fmt.Printf("%s: %d records to train with, %d held back\n", out, len(train), len(held))
			return err
		},
	}
	c.Flags().StringVar(&out, "out", "", "where to write")
	c.Flags().StringVar(&dataset, "dataset", "rag2", datasetUsage)
	c.Flags().Float64Var(&dev, "dev-share", 0.1, "share of the questions that dev.json holds")
	return c
}
