package models

import (
	"context"
	"fmt"
	"slices"
)

// SequenceScorer is implemented by generators that run here: they score tokens by
// their ids, so that a text that the model wrote is scored as it was written and never
// tokenised again.
type SequenceScorer interface {
	TokenScorer
	// ScoreTokens returns log P(ids[i] | prompt, ids[:i]), natural log, for ids
	// appended behind the rendered chat prompt (the assistant's turn opened).
	ScoreTokens(ctx context.Context, messages []Message, ids []int) ([]float64, error)
	// DecodeTokens is the text of ids.
	DecodeTokens(ids []int) string
	// Forget drops cached state: the next call's result is the same, bit by bit, as
	// that of a generator just opened.
	Forget()
}

var _ SequenceScorer = (*Llama)(nil)

// ScoreTokens implements SequenceScorer. An id outside the vocabulary is an error.
func (g *Llama) ScoreTokens(ctx context.Context, messages []Message, ids []int) ([]float64, error) {
	target := make([]int32, len(ids))
	for i, id := range ids {
		if id < 0 || id >= g.model.Config.Vocab {
			return nil, fmt.Errorf("score: token %d is outside the vocabulary of %d", id, g.model.Config.Vocab)
		}
		target[i] = int32(id)
	}
	return g.scoreIDs(ctx, messages, target)
}

// ScoreContinuation implements TokenScorer.
func (g *Llama) ScoreContinuation(ctx context.Context, messages []Message, continuation string) ([]int, []float64, error) {
	target := g.tok.AppendPlain(nil, continuation)
	lp, err := g.scoreIDs(ctx, messages, target)
	if err != nil {
		return nil, nil, err
	}
	tokens := make([]int, len(target))
	for i, id := range target {
		tokens[i] = int(id)
	}
	return tokens, lp, nil
}

func (g *Llama) scoreIDs(ctx context.Context, messages []Message, target []int32) ([]float64, error) {
	ids, err := g.prompt(messages)
	if err != nil {
		return nil, err
	}
	if len(target) == 0 {
		return nil, fmt.Errorf("score: the continuation is empty")
	}
	all := append(slices.Clone(ids), target...)
	if len(all) > g.context {
		return nil, fmt.Errorf("%w: %d tokens of %d", ErrContext, len(all), g.context)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Everything before the prompt's last token only fills the cache.
	n := g.session.Reuse(ids)
	if len(ids)-1 > n {
		if _, err := g.session.Feed(ctx, ids[n:len(ids)-1]); err != nil {
			return nil, err
		}
	}
	logp, err := g.session.Score(ctx, all[len(ids)-1:len(all)-1], target)
	if err != nil {
		return nil, err
	}
	lp := make([]float64, len(target))
	for i := range target {
		lp[i] = float64(logp[i])
	}
	return lp, nil
}

// DecodeTokens implements SequenceScorer.
func (g *Llama) DecodeTokens(ids []int) string {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return g.tok.Decode(out)
}

// Forget implements SequenceScorer.
func (g *Llama) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.session.Close()
}
