package llama

import (
	"context"
	"fmt"
)

// Session is one sequence with its key-value cache.
type Session struct {
	m      *Model
	prefix *Session // nil, or a sequence that this one continues
	tokens []int32  // behind the prefix
	cache  *kvCache
	in     input
}

// NewSession starts an empty sequence.
func (m *Model) NewSession() *Session { return &Session{m: m} }

// Continue starts a sequence behind the tokens of s, whose cache it shares: s must not
// change nor be closed while the new session or a batch of such is used. s itself
// continues nothing and is not empty.
func (s *Session) Continue() (*Session, error) {
	if s.prefix != nil || len(s.tokens) == 0 {
		return nil, fmt.Errorf("llama: a prefix is a sequence of its own with one token at least")
	}
	return &Session{m: s.m, prefix: s}, nil
}

// shared is the number of tokens in the prefix.
func (s *Session) shared() int {
	if s.prefix == nil {
		return 0
	}
	return len(s.prefix.tokens)
}

// Tokens is what the cache holds, without a prefix.
func (s *Session) Tokens() []int32 { return s.tokens }

// Rewind keeps the first n tokens of the sequence.
func (s *Session) Rewind(n int) { s.tokens = s.tokens[:min(n, len(s.tokens))] }

// Reuse rewinds to the longest prefix that the sequence shares with want and
// returns its length. At most len(want)-1 tokens are kept, so that feeding the
// rest yields logits.
func (s *Session) Reuse(want []int32) int {
	n := 0
	for n < len(s.tokens) && n < len(want)-1 && s.tokens[n] == want[n] {
		n++
	}
	s.Rewind(n)
	return n
}

// Close frees the cache.
func (s *Session) Close() {
	s.in.close(s.m.backend)
	s.cache.close()
	s.cache, s.tokens = nil, nil
}

// reserve makes room for n tokens, keeping those that are there.
func (s *Session) reserve(n int) error {
	if s.cache != nil && n <= s.cache.capacity {
		return nil
	}
	c, err := s.m.newCache(1, roomFor(n))
	if err != nil {
		return err
	}
	if s.cache != nil {
		c.copySlot(0, s.cache, 0, len(s.tokens))
		s.cache.close()
	}
	s.cache = c
	return nil
}

// Feed appends tokens and returns the logits that follow the last one [vocab].
func (s *Session) Feed(ctx context.Context, tokens []int32) ([]float32, error) {
	return s.feed(ctx, tokens, nil)
}

// Score appends tokens and returns log P(targets[i] | sequence up to tokens[i]),
// natural logarithm, one per token.
func (s *Session) Score(ctx context.Context, tokens, targets []int32) ([]float32, error) {
	if len(tokens) != len(targets) {
		return nil, fmt.Errorf("llama: %d tokens, %d targets", len(tokens), len(targets))
	}
	if err := s.m.check(targets, 0); err != nil {
		return nil, err
	}
	return s.feed(ctx, tokens, targets)
}
