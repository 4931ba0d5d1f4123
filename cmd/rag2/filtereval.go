package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"rag2/internal/atomicfile"
	"rag2/models"
	"rag2/pipeline"
	"rag2/pipeline/label"
	"rag2/pipeline/tune"

	"github.com/spf13/cobra"
)

// Names of judges that are no models' names.
const (
	judgeLLM   = "llm"
	judgeJoint = "llm-joint"
)

const judgeUsage = "a T5 or BERT that keeps or drops snippets, trained for it: a model or a directory; llm or llm-joint asks the language model about each snippet alone or about all together"

// openJudge opens a filter by name.
func (s *stack) openJudge(a *app, name string) (models.Filter, error) {
	if name == judgeLLM || name == judgeJoint {
		if s.pipe.Generator == nil {
			if s.llmPath == "" && s.llmURL == "" {
				return nil, usagef("the filter %s needs a language model: --llm or --llm-url", name)
			}
			if err := s.openGenerator(a); err != nil {
				return nil, err
			}
		}
		return models.NewLLMFilter(s.pipe.Generator, name == judgeJoint)
	}
	dir, err := a.modelDir(name)
	if err != nil {
		return nil, err
	}
	if err := s.openEngine(a); err != nil {
		return nil, err
	}
	return models.OpenFilterOn(s.engine, dir, a.modelDir)
}

// judging is a call of filter eval.
type judging struct {
	*app
	s         stack
	o         pipeline.Options
	file, dev string
	questions string
	out       string
	journal   string
	judges    []string
	fixed     bool // the threshold is given
	held      []tune.Set
}

func (a *app) filterEval() *cobra.Command {
	j := judging{app: a}
	var first int
	c := &cobra.Command{
		Use:   "eval --records RECORDS.json | --questions QUESTIONS  --judge MODEL...",
		Short: "judge filters on labelled pairs, or by what they do to the answers",
		Long: `--records: every judge gets the same labelled pairs; accuracy, F1, AUROC and calibration beside
the majority label. "gain" is the accuracy minus that of always saying the more frequent
label, on the same samples.

--questions: multiple choice questions with known answers are answered by --llm without
evidence, with all that is retrieved for them (no filter), and with what each judge keeps of
it. Gains are paired by question; questions whose snippets are the same in two arms are
answered once.

A judge's threshold is chosen on the labelled pairs of --held-out, or is --filter-threshold.
Intervals are 95 % bootstraps over questions. --out writes a page, with reliability
diagrams for --records.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if (j.file == "") == (j.questions == "") || len(j.judges) == 0 || first < 0 {
				return usagef("--records or --questions is needed, and at least one --judge")
			}
			if err := given(c, "answers-journal", "held-out", "out"); err != nil {
				return err
			}
			j.fixed = c.Flags().Changed("filter-threshold")
			if j.fixed && j.dev != "" {
				return usagef("--held-out and --filter-threshold exclude each other")
			}
			if j.dev != "" {
				var err error
				if j.held, err = readSets(j.dev, first); err != nil {
					return err
				}
			}
			defer j.s.close()
			if j.questions != "" {
				return j.onAnswers(c.Context(), first)
			}
			return j.onPairs(c.Context(), first)
		},
	}
	f := c.Flags()
	j.s.retrievalFlags(c)
	optionFlags(c, &j.o, pipeline.QueryRationale)
	answerFlags(c, &j.o)
	f.StringVar(&j.file, "records", "", recordsUsage)
	f.StringVar(&j.questions, "questions", "", "multiple choice questions with their answers, JSONL, .gz too")
	f.StringVar(&j.dev, "held-out", "", devUsage)
	f.StringVar(&j.out, "out", "", "where to write")
	f.StringVar(&j.journal, "answers-journal", "", "keeps the finished questions of --questions: a call that was stopped goes on there")
	f.StringArrayVar(&j.judges, "judge", nil, judgeUsage+"; repeat it")
	f.IntVar(&first, "first", 0, "take this many questions (default all)")
	return c
}

// each opens the judges one after the other and gives each with its threshold to f, which
// closes it.
func (j *judging) each(ctx context.Context, f func(name string, x models.Filter, threshold float64) error) error {
	for _, name := range j.judges {
		x, err := j.s.openJudge(j.app, name)
		if err != nil {
			return fmt.Errorf("judge %s: %w", name, err)
		}
		threshold := j.o.Threshold
		if len(j.held) > 0 {
			var js []tune.Judged
			if js, err = j.judge(ctx, name, x, j.held, "held-out questions"); err == nil {
				threshold = tune.BestThreshold(js)
			}
		}
		if err == nil {
			err = f(name, x, threshold)
		}
		if err != nil {
			return fmt.Errorf("judge %s: %w", name, err)
		}
	}
	return nil
}

func (j *judging) judge(ctx context.Context, name string, x models.Filter, sets []tune.Set, what string) ([]tune.Judged, error) {
	var p progress
	defer p.done()
	return tune.Judge(ctx, x, sets, func(done, total int) { p.update(name+", "+what, done, total) })
}

// print writes the page, and the result as JSON or as text.
func (j *judging) print(result any, page func() ([]byte, error), text func(io.Writer) error) error {
	if j.out != "" {
		b, err := page()
		if err != nil {
			return err
		}
		if err := atomicfile.WriteFile(j.out, b); err != nil {
			return err
		}
	}
	if j.json {
		return printJSON(result)
	}
	return text(os.Stdout)
}

func (j *judging) onPairs(ctx context.Context, first int) error {
	sets, err := readSets(j.file, first)
	if err != nil {
		return err
	}
	var all []tune.JudgeScores
	err = j.each(ctx, func(name string, x models.Filter, threshold float64) error {
		js, err := j.judge(ctx, name, x, sets, "questions")
		if err = errors.Join(err, x.Close()); err == nil {
			all = append(all, tune.JudgeScores{Judge: name, FilterScores: tune.Scores(js, threshold)})
		}
		return err
	})
	if err != nil {
		return err
	}
	return j.print(all, func() ([]byte, error) { return tune.Report(filepath.Base(j.file), all) }, func(w io.Writer) error { return tune.WriteScores(w, all) })
}

func (j *judging) onAnswers(ctx context.Context, first int) error {
	if j.s.llmPath == "" && j.s.llmURL == "" {
		return usagef("answers need a language model: --llm or --llm-url")
	}
	if j.s.filter != "" {
		return usagef("--filter is not used here: the filters to compare are --judge")
	}
	qs, err := (&questionFlags{file: j.questions, first: first}).fromFile()
	if err != nil {
		return err
	}
	if err := j.s.openRetrieval(j.app); err != nil {
		return err
	}
	if err := j.s.openGenerator(j.app); err != nil {
		return err
	}
	var p progress
	defer p.done()
	run := tune.Answering{Pipeline: &j.s.pipe, Options: j.o, Journal: j.journal, Progress: func(done, total int) { p.update("questions", done, total) }}
	err = j.each(ctx, func(name string, x models.Filter, threshold float64) error {
		j.s.use(x)
		threshold = min(max(threshold, 1e-9), 1) // chosen ones may lie outside: keep all, or only certainty
		run.Judges = append(run.Judges, tune.AnswerJudge{Name: name, Filter: x, Threshold: threshold})
		return nil
	})
	if err != nil {
		return err
	}
	outcomes, err := run.Run(ctx, qs)
	if err != nil {
		return err
	}
	p.done()
	scores, err := tune.CompareAnswers(run.Arms(), outcomes)
	if err != nil {
		return err
	}
	r := tune.AnswerComparison{Questions: len(qs), Model: j.s.pipe.Generator.Name(), Settings: j.o, Arms: scores}
	return j.print(r, func() ([]byte, error) { return tune.AnswerReport(filepath.Base(j.questions), r) }, func(w io.Writer) error { return tune.WriteAnswers(w, r) })
}

// readSets reads labelled pairs by question.
func readSets(path string, first int) ([]tune.Set, error) {
	rs, err := label.ReadRecords(path)
	if err != nil {
		return nil, err
	}
	sets, err := tune.Sets(rs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(sets) == 0 {
		return nil, fmt.Errorf("%s: no records", path)
	}
	if first > 0 && len(sets) > first {
		sets = sets[:first]
	}
	return sets, nil
}
