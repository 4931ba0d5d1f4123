package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"rag2/models"
	"rag2/pipeline/tune"

	"github.com/spf13/cobra"
)

// benchCommand holds what measures an installation.
func (a *app) benchCommand() *cobra.Command {
	return group("bench", "measure what settings cost", a.quality())
}

// qualityJob is what quality compares.
type qualityJob struct {
	passages, queries []models.Article
	k                 int
	encoder           string
	llm               string
}

// qualityRow is a row of its table.
type qualityRow struct {
	Engine  string              `json:"engine"`
	Vectors *tune.VectorQuality `json:"vectors,omitempty"`
	Scores  *tune.ScoreQuality  `json:"scores,omitempty"`
}

// quality prints what engines of lower precision cost in accuracy.
func (a *app) quality() *cobra.Command {
	var j qualityJob
	var passages, queries, reference string
	var engines []string
	var first int
	c := &cobra.Command{
		Use:   "quality --passages FILE",
		Short: "accuracy of engines with fewer bits, beside a reference engine",
		Long: `Encodes passages and queries (JSON lines with "text", "content" or "question", "title" if any, .gz too) with --encoder on the
reference engine and on each of --engines, and prints the cosine of their vectors, the share of the reference's k best passages that are
found, and how many hits hold 99 % of them. With --llm, the log-probabilities of the passages' tokens are compared instead.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if passages == "" || (j.llm == "") == (queries == "") || j.k < 1 || first < 0 || len(engines) == 0 {
				return usagef("--passages and --engines are needed, and --queries or --llm; --top is at least 1")
			}
			var err error
			if j.passages, err = tune.ReadTexts(passages, first); err != nil {
				return err
			}
			if queries != "" {
				if j.queries, err = tune.ReadTexts(queries, 0); err != nil {
					return err
				}
			}
			return a.compareEngines(c, j, reference, engines)
		},
	}
	f := c.Flags()
	f.StringVar(&j.encoder, "encoder", "minilm", encoderUsage)
	f.StringVar(&j.llm, "llm", "", llmUsage)
	f.StringVar(&passages, "passages", "", "texts to encode or to score, JSONL, .gz too")
	f.StringVar(&queries, "queries", "", "texts to search with, JSONL, .gz too")
	f.IntVar(&first, "passages-first", 0, "take this many passages only")
	f.IntVar(&j.k, "top", 10, "best passages that are compared")
	f.StringVar(&reference, "reference", "native", "engine to compare with")
	f.StringSliceVar(&engines, "engines", []string{"native:bf16", "native:f16", "native:int8"}, "engines to compare")
	return c
}

func (a *app) compareEngines(c *cobra.Command, j qualityJob, reference string, engines []string) error {
	q0, p0, s0, err := a.qualityRun(c, j, reference)
	if err != nil {
		return err
	}
	var rows []qualityRow
	for _, e := range append([]string{reference}, engines...) {
		q, p, s := q0, p0, s0
		if e != reference {
			if q, p, s, err = a.qualityRun(c, j, e); err != nil {
				return fmt.Errorf("%s: %w", e, err)
			}
		}
		row := qualityRow{Engine: e}
		if j.llm != "" {
			x, err := tune.CompareScores(s0, s)
			if err != nil {
				return fmt.Errorf("%s: %w", e, err)
			}
			row.Scores = &x
		} else {
			x := tune.CompareVectors(q0, p0, q, p, j.k)
			row.Vectors = &x
		}
		rows = append(rows, row)
	}
	if a.json {
		return printJSON(rows)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if j.llm != "" {
		fmt.Fprintln(w, "ENGINE\tTOKENS\tPERPLEXITY\tMEAN |ΔLOGPROB|\tMAX")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%d\t%.4f\t%.2g\t%.2g\n", r.Engine, r.Scores.Tokens, r.Scores.Perplexity, r.Scores.MeanDiff, r.Scores.MaxDiff)
		}
		return w.Flush()
	}
	fmt.Fprintf(w, "%d passages, %d queries\n", len(j.passages), len(j.queries))
	fmt.Fprintf(w, "ENGINE\tMIN COSINE\tMEAN\tRECALL@%d\t99 %% OF THEM WITHIN\n", j.k)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.5f\t%.5f\t%.4f\t%d\n", r.Engine, r.Vectors.MinCosine, r.Vectors.MeanCosine, r.Vectors.Recall, r.Vectors.Depth)
	}
	return w.Flush()
}

// qualityRun encodes or scores on one engine.
func (a *app) qualityRun(c *cobra.Command, j qualityJob, engine string) (queries, passages [][]float32, scores [][]float64, err error) {
	on := *a
	on.engine = engine
	s := &stack{encoder: j.encoder, queryTokens: 512, llmPath: j.llm}
	defer s.close()
	if j.llm == "" {
		if err = s.openEncoder(&on); err != nil {
			return
		}
		texts := make([]string, len(j.queries))
		for i, q := range j.queries {
			texts[i] = q.Body
		}
		if queries, _, err = s.enc.EncodeQueries(c.Context(), texts); err == nil {
			passages, _, err = s.enc.EncodeArticles(c.Context(), j.passages)
		}
		return
	}
	if err = s.openGenerator(&on); err != nil {
		return
	}
	scorer, ok := s.pipe.Generator.(models.TokenScorer)
	if !ok {
		return nil, nil, nil, fmt.Errorf("%s gives no log-probabilities of given tokens", s.pipe.Generator.Name())
	}
	var p progress
	defer p.done()
	for i, t := range j.passages {
		_, lp, err := scorer.ScoreContinuation(c.Context(), []models.Message{{Role: "user", Content: t.Title}}, t.Body)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("passage %d: %w", i+1, err)
		}
		scores = append(scores, lp)
		p.update(engine+": passages", i+1, len(j.passages))
	}
	return
}
