package main

import (
	"fmt"
	"os"

	"rag2/models"

	"github.com/spf13/cobra"
)

// embedBatch is the number of lines that are encoded together, sorted by length.
const embedBatch = 256

// embed prints the vectors of texts.
func (a *app) embed() *cobra.Command {
	s := &stack{}
	var articles bool
	c := &cobra.Command{
		Use:   "embed",
		Short: `vectors of texts: JSON lines {"text"}, or {"title","text"} with --article, in; {"vector"} out`,
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			defer s.close()
			if err := s.openEncoder(a); err != nil {
				return err
			}
			type in struct {
				Title string `json:"title"`
				Text  string `json:"text"`
			}
			var total models.Report
			err := eachLine(c, embedBatch, func(first int, batch []in) error {
				var vs [][]float32
				var rep models.Report
				var err error
				if articles {
					as := make([]models.Article, len(batch))
					for i, x := range batch {
						as[i] = models.Article{Title: x.Title, Body: x.Text}
					}
					vs, rep, err = s.enc.EncodeArticles(c.Context(), as)
				} else {
					qs := make([]string, len(batch))
					for i, x := range batch {
						if x.Title != "" {
							return usagef("line %d or later: a query has no title; --article embeds articles", first)
						}
						qs[i] = x.Text
					}
					vs, rep, err = s.enc.EncodeQueries(c.Context(), qs)
				}
				if err != nil {
					return fmt.Errorf("lines from %d: %w", first, err)
				}
				total.Tokens += rep.Tokens
				total.Truncated += rep.Truncated
				for _, v := range vs {
					if err := writeLine(c, map[string]any{"vector": v}); err != nil {
						return err
					}
				}
				return nil
			})
			if total.Truncated > 0 {
				fmt.Fprintf(os.Stderr, "rag2: %d texts were cut to the encoder's limit\n", total.Truncated)
			}
			return err
		},
	}
	s.encoderFlags(c)
	c.Flags().BoolVar(&articles, "article", false, "embed articles instead of queries")
	return c
}
