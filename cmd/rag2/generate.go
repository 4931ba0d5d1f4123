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

// generate prints completions.
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
			return eachLine(c, 1, func(line int, batch []chatLine) error {
				ms, err := batch[0].messages()
				if err != nil {
					return fmt.Errorf("line %d: %w", line, err)
				}
				r, err := s.pipe.Generator.Chat(c.Context(), ms, opt)
				if err != nil {
					return fmt.Errorf("line %d: %w", line, err)
				}
				o := map[string]any{"text": r.Text, "tokens": r.Tokens, "finish_reason": r.FinishReason, "prompt_tokens": r.PromptTokens, "model": r.Model}
				if opt.Logprobs {
					o["logprobs"] = r.Logprobs
				}
				return writeLine(c, o)
			})
		},
	}
	s.llmFlags(c)
	f := c.Flags()
	f.IntVar(&opt.MaxTokens, "max-new-tokens", 512, "new tokens at most")
	f.Float64Var(&opt.Temperature, "temperature", 0, "0 = greedy")
	f.Float64Var(&opt.TopP, "top-p", 0, "nucleus of sampling (default 1)")
	f.Uint64Var(&opt.Seed, "seed", 0, "seed of sampling")
	f.StringSliceVar(&opt.Stop, "stop", nil, "end before any of these")
	f.BoolVar(&opt.Logprobs, "logprobs", false, "print the tokens' log-probabilities")
	return c
}
