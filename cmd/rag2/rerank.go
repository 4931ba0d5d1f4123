package main

import (
	"cmp"
	"slices"

	"rag2/models"

	"github.com/spf13/cobra"
)

// rerank prints cross-encoder scores.
func (a *app) rerank() *cobra.Command {
	s := &stack{}
	var limit int
	c := &cobra.Command{
		Use:   "rerank",
		Short: `cross-encoder scores: JSON lines {"query","texts"} in, {"scores","order"} out`,
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			defer s.close()
			if s.crossEncoder == "" {
				return usagef("no --cross-encoder is named")
			}
			dir, err := a.modelDir(s.crossEncoder)
			if err != nil {
				return err
			}
			if err := s.openEngine(a); err != nil {
				return err
			}
			x, err := models.OpenCrossEncoderOn(s.engine, dir, limit, a.modelDir)
			if err != nil {
				return err
			}
			s.use(x)
			type in struct {
				Query string   `json:"query"`
				Texts []string `json:"texts"`
			}
			return eachLine(c, 1, func(_ []int, batch []in) error {
				scores, rep, err := x.Score(c.Context(), batch[0].Query, batch[0].Texts)
				if err != nil {
					return err
				}
				order := make([]int, len(scores))
				for i := range order {
					order[i] = i
				}
				slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
				return writeLine(c, map[string]any{"scores": scores, "order": order, "truncated": rep.Truncated})
			})
		},
	}
	c.Flags().StringVar(&s.crossEncoder, "cross-encoder", "", crossEncoderUsage)
	c.Flags().IntVar(&limit, "max-tokens", 0, "tokens at most, special ones included")
	return c
}
