package models

import (
	"context"
	"fmt"

	"rag2/models/bert"
	"rag2/models/tokenizer"
	"rag2/tensor"
)

// BERTCrossEncoder implements CrossEncoder with a BERT sequence classifier of one
// label (MedCPT-Cross-Encoder and its like): the pair [query, text] with token
// types 0 and 1, cut longest-first, gives one raw logit.
type BERTCrossEncoder struct {
	m           *bert.Model
	t           tokenizer.Tokenizer
	limit       int
	fingerprint string
}

var _ CrossEncoder = (*BERTCrossEncoder)(nil)

// OpenCrossEncoder loads a cross-encoder; maxTokens limits the pair with its three
// special tokens (0 = 512, and never more than the model's positions).
func OpenCrossEncoder(e *tensor.Engine, dir string, maxTokens int) (*BERTCrossEncoder, error) {
	return OpenCrossEncoderOn(e, dir, maxTokens, directory)
}

// OpenCrossEncoderOn is OpenCrossEncoder where dir may also hold a LoRA adapter in the
// PEFT library's format; find then gives the model below it.
func OpenCrossEncoderOn(e *tensor.Engine, dir string, maxTokens int, find Resolver) (*BERTCrossEncoder, error) {
	if maxTokens == 0 {
		maxTokens = 512
	}
	if maxTokens < minPairTokens {
		return nil, fmt.Errorf("cross-encoder: a limit of %d tokens; a pair takes at least %d", maxTokens, minPairTokens)
	}
	m, t, dirs, err := openClassifier(e, dir, find)
	if err != nil {
		return nil, err
	}
	if m.Out() != 1 {
		m.Close()
		return nil, fmt.Errorf("%s: cross-encoder has %d labels, one is needed", dir, m.Out())
	}
	c := &BERTCrossEncoder{m: m, t: t, limit: min(maxTokens, m.Config.Positions)}
	if c.fingerprint, err = fingerprint(dirs, "cross", fmt.Sprint(c.limit)); err != nil {
		m.Close()
		return nil, err
	}
	return c, nil
}

// Score implements CrossEncoder. A text's score does not depend on the others.
func (c *BERTCrossEncoder) Score(ctx context.Context, query string, texts []string) ([]float32, Report, error) {
	encs := make([]tokenizer.Encoding, len(texts))
	for i, s := range texts {
		encs[i] = c.t.EncodePair(query, s, c.limit)
	}
	rows, err := forward(ctx, c.m, encs, defaultBatchTokens, 1)
	if err != nil {
		return nil, Report{}, fmt.Errorf("cross-encoder: %w", err)
	}
	out := make([]float32, len(rows))
	for i, r := range rows {
		out[i] = r[0]
	}
	return out, report(encs), nil
}

// Fingerprint implements CrossEncoder.
func (c *BERTCrossEncoder) Fingerprint() string { return c.fingerprint }

// Close implements CrossEncoder; it waits for running calls.
func (c *BERTCrossEncoder) Close() error { c.m.Close(); return nil }
