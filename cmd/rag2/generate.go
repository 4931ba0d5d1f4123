package main

import (
	"fmt"

	"rag2/models"

	"github.com/spf13/cobra"
)

// chatLine is an input of generate and logprobs: a prompt, or a whole conversation.
type chatLine struct {
	Prompt       string           `json:"prompt"`
	Messages     []models.Message `json:"messages"`
	Continuation string           `json:"continuation"`
}

func (l chatLine) messages() ([]models.Message, error) {
	switch {
	case len(l.Messages) > 0 && l.Prompt == "":
		return l.Messages, nil
	case len(l.Messages) == 0 && l.Prompt != "":
		return []models.Message{{Role: "user", Content: l.Prompt}}, nil
	}
	return nil, usagef(`a line holds "prompt" or "messages"`)
}

// llmFlags choose a language model that runs here.
func (s *stack) llmFlags(c *cobra.Command) {
	c.Flags().StringVar(&s.llmPath, "llm", "smollm2", llmUsage)
	c.Flags().IntVar(&s.llmContext, "llm-context", 0, llmContextUsage)
}

// generateLines is the number of prompts that are read before they are answered, several
// at a time.
const generateLines = 64

// generate prints completions, in the order of the prompts.
func (a *app) generate() *cobra.Command {
	s := &stack{}
	var opt models.GenerateOptions
	c := &cobra.Command{
		Use:   "generate",
		Short: `completions: JSON lines {"prompt"} or {"messages"} in, {"text","tokens",…} out`,
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			defer s.close()
			if err := s.openGenerator(a); err != nil {
				return err
			}
			g, ok := s.pipe.Generator.(models.BatchGenerator)
			if !ok {
				return fmt.Errorf("%s does not run here", s.pipe.Generator.Name())
			}
			return eachLine(c, generateLines, func(lines []int, batch []chatLine) error {
				jobs := make([]models.BatchJob, len(batch))
				for i, l := range batch {
					ms, err := l.messages()
					if err != nil {
						return fmt.Errorf("line %d: %w", lines[i], err)
					}
					jobs[i] = models.BatchJob{Messages: ms, Options: opt}
				}
				results := make([]*models.BatchResult, len(batch))
				next := 0 // to be printed
				return g.ChatBatch(c.Context(), jobs, 0, func(i int, r models.BatchResult) error {
					for results[i] = &r; next < len(results) && results[next] != nil; next++ {
						r := results[next]
						if r.Err != nil {
							return fmt.Errorf("line %d: %w", lines[next], r.Err)
						}
						x := r.Completion
						o := map[string]any{"text": x.Text, "tokens": x.Tokens, "finish_reason": x.FinishReason, "prompt_tokens": x.PromptTokens, "model": x.Model}
						if opt.Logprobs {
							o["logprobs"] = x.Logprobs
						}
						if err := writeLine(c, o); err != nil {
							return err
						}
					}
					return nil
				})
			})
		},
	}
	s.llmFlags(c)
	f := c.Flags()
	f.IntVar(&opt.MaxTokens, "max-new-tokens", 512, "new tokens at most")
	f.Float64Var(&opt.Temperature, "temperature", 0, "0 = greedy")
	f.Float64Var(&opt.TopP, "top-p", 0, "nucleus of sampling (default 1)")
	f.Uint64Var(&opt.Seed, "seed", 0, "seed of what is drawn at random")
	f.StringSliceVar(&opt.Stop, "stop", nil, "end before any of these")
	f.BoolVar(&opt.Logprobs, "logprobs", false, "print the tokens' log-probabilities")
	return c
}
