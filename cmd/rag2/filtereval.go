package main

import (
	"fmt"
	"os"
	"path/filepath"

	"rag2/internal/atomicfile"
	"rag2/models"
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

func (a *app) filterEval() *cobra.Command {
	var s stack
	var file, dev, out string
	var judges []string
	var first int
	c := &cobra.Command{
		Use:   "eval --records RECORDS.json --judge MODEL...",
		Short: "judge filters on labelled pairs: accuracy, F1, AUROC, calibration, beside the majority label",
		Long: `Every judge gets the same pairs. Its threshold is chosen on --held-out, or is 0.5. Intervals
are 95 % bootstraps over questions; "gain" is the accuracy minus that of always saying the
more frequent label, on the same samples. --out writes a page with reliability diagrams.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" || len(judges) == 0 || first < 0 {
				return usagef("--records and at least one --judge are needed")
			}
			sets, err := readSets(file, first)
			if err != nil {
				return err
			}
			var held []tune.Set
			if dev != "" {
				if held, err = readSets(dev, first); err != nil {
					return err
				}
			}
			defer s.close()
			var all []tune.JudgeScores
			for _, name := range judges {
				f, err := s.openJudge(a, name)
				if err != nil {
					return fmt.Errorf("judge %s: %w", name, err)
				}
				var p progress
				run := func(sets []tune.Set, what string) ([]tune.Judged, error) {
					return tune.Judge(c.Context(), f, sets, func(done, total int) { p.update(name+", "+what, done, total) })
				}
				x := tune.JudgeScores{Judge: name}
				threshold := 0.5
				if len(held) > 0 {
					js, err := run(held, "held-out questions")
					if err != nil {
						return err
					}
					threshold = tune.BestThreshold(js)
				}
				js, err := run(sets, "questions")
				p.done()
				if err == nil {
					err = f.Close()
				}
				if err != nil {
					return err
				}
				x.FilterScores = tune.Scores(js, threshold)
				all = append(all, x)
			}
			if out != "" {
				page, err := tune.Report(filepath.Base(file), all)
				if err != nil {
					return err
				}
				if err := atomicfile.WriteFile(out, page); err != nil {
					return err
				}
			}
			if a.json {
				return printJSON(all)
			}
			return tune.WriteScores(os.Stdout, all)
		},
	}
	f := c.Flags()
	f.StringVar(&file, "records", "", recordsUsage)
	f.StringVar(&dev, "held-out", "", devUsage)
	f.StringVar(&out, "out", "", "where to write")
	f.StringArrayVar(&judges, "judge", nil, judgeUsage+"; repeat it")
	f.IntVar(&first, "first", 0, "take this many questions (default all)")
	s.modelFlags(c)
	return c
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
