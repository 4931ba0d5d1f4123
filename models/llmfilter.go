package models

import (
	"context"
	"fmt"
	"math"
	"strings"
)

// LLMFilter implements Filter with a language model that is asked, without training: the
// verdict is the softmax over the log-probabilities of the answers Yes and No. With Joint
// it sees the whole snippet set, numbered, and is asked about one number after the other;
// otherwise each snippet alone.
type LLMFilter struct {
	g     Generator
	s     TokenScorer
	joint bool
}

var _ Filter = (*LLMFilter)(nil)

// llmFilterVersion is part of fingerprints and changes with the prompts.
const llmFilterVersion = "1"

// NewLLMFilter makes a filter of a generator that gives log-probabilities of given text.
// Closing the filter leaves the generator open.
func NewLLMFilter(g Generator, joint bool) (*LLMFilter, error) {
	s, ok := g.(TokenScorer)
	if !ok {
		return nil, fmt.Errorf("filter: %s gives no log-probabilities of given text", g.Name())
	}
	return &LLMFilter{g, s, joint}, nil
}

// Judge implements Filter. A snippet set that does not fit the context is ErrContext.
func (f *LLMFilter) Judge(ctx context.Context, question string, snippets []string) ([]Verdict, Report, error) {
	var rep Report
	out := make([]Verdict, len(snippets))
	var all strings.Builder // one text in front of every question, so that its cache is used
	if f.joint {
		all.WriteString("Question: " + question + "\n\nEvidence:\n")
		for i, s := range snippets {
			fmt.Fprintf(&all, "[%d] %s\n", i+1, s)
		}
	}
	for i, s := range snippets {
		prompt := FilterText(question, s) + "\n\nDoes the evidence help to answer the question? Answer Yes or No."
		if f.joint {
			prompt = all.String() + fmt.Sprintf("\nConsidering all the evidence together, is [%d] among the pieces that help to answer the question? Answer Yes or No.", i+1)
		}
		messages := []Message{{Role: "user", Content: prompt}}
		n, _ := f.g.CountTokens(messages)
		rep.Tokens += n
		var score [2]float64
		for k, answer := range []string{"Yes", "No"} {
			_, logprobs, err := f.s.ScoreContinuation(ctx, messages, answer)
			if err != nil {
				return nil, Report{}, fmt.Errorf("filter: snippet %d: %w", i, err)
			}
			for _, v := range logprobs {
				score[k] += v
			}
		}
		d := score[0] - score[1]
		if math.IsNaN(d) {
			return nil, Report{}, fmt.Errorf("filter: snippet %d: %w: log-probabilities %v", i, ErrNotFinite, score)
		}
		out[i] = Verdict{Helpful: d > 0, P: 1 / (1 + math.Exp(-d))}
	}
	return out, rep, nil
}

// Fingerprint implements Filter.
func (f *LLMFilter) Fingerprint() string {
	return fmt.Sprintf("llm filter %s joint=%v %s", llmFilterVersion, f.joint, f.g.Name())
}

// Close implements Filter.
func (f *LLMFilter) Close() error { return nil }
