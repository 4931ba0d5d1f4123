package models

import (
	"context"
	"fmt"

	"rag2/models/llama"
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
	target, err := g.targets(ids)
	if err != nil {
		return nil, err
	}
	return g.scoreIDs(ctx, messages, target)
}

// targets are ids to score, checked.
func (g *Llama) targets(ids []int) ([]int32, error) {
	target := make([]int32, len(ids))
	for i, id := range ids {
		if id < 0 || id >= g.model.Config.Vocab {
			return nil, fmt.Errorf("score: token %d is outside the vocabulary of %d", id, g.model.Config.Vocab)
		}
		target[i] = int32(id)
	}
	return target, nil
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
	if n := len(ids) + len(target); n > g.context {
		return nil, fmt.Errorf("%w: %d tokens of %d", ErrContext, n, g.context)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return scoreBehind(ctx, g.session, ids[g.session.Reuse(ids):], target)
}

// scoreBehind feeds a prompt, whose tokens but the last only fill the cache, and
// gives log P of target behind it.
func scoreBehind(ctx context.Context, s *llama.Session, prompt, target []int32) ([]float64, error) {
	last := len(prompt) - 1
	if last > 0 {
		if _, err := s.Feed(ctx, prompt[:last]); err != nil {
			return nil, err
		}
	}
	logp, err := s.Score(ctx, append([]int32{prompt[last]}, target[:len(target)-1]...), target)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(logp))
	for i, v := range logp {
		out[i] = float64(v)
	}
	return out, nil
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
