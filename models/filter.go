package models

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"rag2/models/t5"
	"rag2/models/tokenizer"
	"rag2/tensor"
)

// The two tokens that the rationale-guided filter was taught to answer with.
const (
	LabelHelpful    = "[HELPFUL]"
	LabelNotHelpful = "[NOT_HELPFUL]"
)

// ErrNoLabel reports a checkpoint whose vocabulary lacks a label token: it was never
// trained as a filter, and any verdict would be noise.
var ErrNoLabel = errors.New("the vocabulary lacks a label token")

// ErrTooLong reports a question that leaves no room for evidence.
var ErrTooLong = errors.New("the question is too long")

// Parts of the filter's input, with the evidence after the first and the question
// after the second.
const (
	filterHead = "Given the following evidence, determine whether it helps answer the provided question.\n\nEvidence: "
	filterTail = "\n\nQuestion: "
)

// Limits of the filter's input, in tokens with the end token.
const (
	filterTokens    = 512  // evidence is cut to this, unless the question needs more:
	filterEvidence  = 64   // at least so much evidence is kept,
	FilterMaxTokens = 1024 // up to here; package train refuses more
)

// filterVersion is part of fingerprints and changes with the template or the limits.
const filterVersion = "1"

// FilterText is the filter's input for one snippet; question is the stem with its
// options.
func FilterText(question, snippet string) string {
	return filterHead + snippet + filterTail + question
}

// ParseFilterText is the way back from FilterText; ok is false for a text that was not
// made by it. The question is what follows the last of the template's separators.
func ParseFilterText(text string) (question, snippet string, ok bool) {
	rest, ok := strings.CutPrefix(text, filterHead)
	i := strings.LastIndex(rest, filterTail)
	if !ok || i < 0 {
		return "", "", false
	}
	return rest[i+len(filterTail):], rest[:i], true
}

// EncodeFilter encodes FilterText with the end token. Over-long evidence is cut at its
// end, the question never: the limit is 512 tokens or what the question and the
// template need plus 64 for evidence, whichever is more, up to 1,024; beyond that the
// error is ErrTooLong.
func EncodeFilter(t tokenizer.Tokenizer, question, snippet string) (tokenizer.Encoding, error) {
	e := t.EncodeSingle(FilterText(question, snippet), 0)
	if len(e.IDs) <= filterTokens {
		return e, nil
	}
	// Words are encoded one by one, so that the parts are those of the whole.
	head := t.AppendPlain(nil, filterHead)
	evidence := t.AppendPlain(nil, snippet)
	tail := t.EncodeSingle(filterTail+question, 0).IDs // with the end token
	base := len(head) + len(tail)
	limit := max(filterTokens, base+filterEvidence)
	if limit > FilterMaxTokens {
		return tokenizer.Encoding{}, fmt.Errorf("%w: with the template it takes %d tokens, %d are possible beside %d of evidence: %s",
			ErrTooLong, base, FilterMaxTokens-filterEvidence, filterEvidence, short(question))
	}
	if len(e.IDs) <= limit {
		return e, nil
	}
	keep := min(limit-base, len(evidence))
	ids := append(append(head, evidence[:keep]...), tail...)
	return tokenizer.Encoding{IDs: ids, TypeIDs: make([]int32, len(ids)), Truncated: len(evidence) - keep}, nil
}

// short is the beginning of a text, quoted, for errors.
func short(s string) string {
	r := []rune(s)
	if len(r) > 60 {
		return fmt.Sprintf("%q …", string(r[:60]))
	}
	return fmt.Sprintf("%q", s)
}

// T5Filter implements Filter with a T5 that was trained to answer one of two label
// tokens (stage 4 of the method): each snippet is judged alone, and the verdict is
// the softmax over the labels' logits at the first decoder step.
type T5Filter struct {
	m           *t5.Model
	t           tokenizer.Tokenizer
	labels      []int32 // helpful, not helpful
	fingerprint string
}

var _ Filter = (*T5Filter)(nil)

// OpenFilter loads a filter: a Transformers directory of a T5 whose vocabulary holds
// [HELPFUL] and [NOT_HELPFUL], else the error is ErrNoLabel.
func OpenFilter(e *tensor.Engine, dir string) (*T5Filter, error) {
	t, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	f := &T5Filter{t: t}
	for _, l := range []string{LabelHelpful, LabelNotHelpful} {
		id, ok := t.TokenID(l)
		if !ok {
			return nil, fmt.Errorf("filter: %s: %w: %s; train the filter first", dir, ErrNoLabel, l)
		}
		f.labels = append(f.labels, id)
	}
	if f.m, err = t5.Open(e, dir); err != nil {
		return nil, err
	}
	// T5's embedding has more rows than its tokenizer has tokens, never fewer.
	if v := f.m.Config.Vocab; t.VocabSize() > v || int(max(f.labels[0], f.labels[1])) >= v {
		f.m.Close()
		return nil, fmt.Errorf("filter: %s: the tokenizer has %d tokens, the model %d: its embeddings were not resized for the labels", dir, t.VocabSize(), v)
	}
	if f.fingerprint, err = fingerprint([]string{dir}, "filter", filterVersion, FilterText("{question}", "{snippet}")); err != nil {
		f.m.Close()
		return nil, err
	}
	return f, nil
}

// Judge implements Filter. Verdicts are in the order of the snippets and do not depend
// on each other. A logit that is no number is ErrNotFinite, never a verdict.
func (f *T5Filter) Judge(ctx context.Context, question string, snippets []string) ([]Verdict, Report, error) {
	encs := make([]tokenizer.Encoding, len(snippets))
	for i, s := range snippets {
		var err error
		if encs[i], err = EncodeFilter(f.t, question, s); err != nil {
			return nil, Report{}, fmt.Errorf("filter: snippet %d: %w", i, err)
		}
	}
	rows, err := inBatches(ctx, encs, FilterMaxTokens, 2, defaultBatchTokens, 1, func(_ int, ids, _, lens []int32, batch, length int) ([]float32, error) {
		return f.m.FirstStep(ids, lens, f.labels, batch, length)
	})
	if err != nil {
		return nil, Report{}, fmt.Errorf("filter: %w", err)
	}
	out := make([]Verdict, len(rows))
	for i, r := range rows {
		if r[0] == 0 && r[1] == 0 { // a norm of infinity leaves nothing
			return nil, Report{}, fmt.Errorf("filter: snippet %d: both logits are 0, a value overflowed on the way: %w", i, ErrNotFinite)
		}
		out[i] = Verdict{Helpful: r[0] > r[1], P: 1 / (1 + math.Exp(float64(r[1])-float64(r[0])))}
	}
	return out, report(encs), nil
}

// Fingerprint implements Filter.
func (f *T5Filter) Fingerprint() string { return f.fingerprint }

// Compilations counts the graphs compiled so far.
func (f *T5Filter) Compilations() int { return f.m.Compilations() }

// Close implements Filter; it waits for running calls.
func (f *T5Filter) Close() error { f.m.Close(); return nil }
