package main

import (
	"fmt"
	"math"

	"rag2/models"

	"github.com/spf13/cobra"
)

// logprobs prints the log-probabilities of given continuations.
func (a *app) logprobs() *cobra.Command {
	s := &stack{}
	c := &cobra.Command{
		Use:   "logprobs",
		Short: `log-probabilities: JSON lines {"prompt" or "messages","continuation"} in, {"tokens","logprobs","perplexity"} out`,
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			defer s.close()
			if err := s.openGenerator(a); err != nil {
				return err
			}
			scorer, ok := s.pipe.Generator.(models.TokenScorer)
			if !ok {
				return fmt.Errorf("%s gives no log-probabilities of given tokens", s.pipe.Generator.Name())
			}
			return eachLine(c, 1, func(lines []int, batch []chatLine) error {
				ms, err := batch[0].messages()
				if err != nil {
					return fmt.Errorf("line %d: %w", lines[0], err)
				}
				tokens, lp, err := scorer.ScoreContinuation(c.Context(), ms, batch[0].Continuation)
				if err != nil {
					return fmt.Errorf("line %d: %w", lines[0], err)
				}
				sum := 0.0
				for _, x := range lp {
					sum += x
				}
				return writeLine(c, map[string]any{"tokens": tokens, "logprobs": lp, "perplexity": math.Exp(-sum / float64(len(lp)))})
			})
		},
	}
	s.llmFlags(c)
	return c
}
