package models

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"rag2/models/bert"
	"rag2/models/tokenizer"
	"rag2/tensor"
)

// BERTFilter implements Filter with a BERT sequence classifier of two labels that reads
// the pair [question, snippet], cut longest-first: the encoder to compare the method's T5
// with.
type BERTFilter struct {
	m           *bert.Model
	t           tokenizer.Tokenizer
	limit       int
	helpful     int // the label's column
	fingerprint string
}

var _ Filter = (*BERTFilter)(nil)

// OpenBERTFilter loads a BERT whose config.json names the labels [HELPFUL] and
// [NOT_HELPFUL] in id2label, else the error is ErrNoLabel. find resolves the base of a
// LoRA adapter.
func OpenBERTFilter(e *tensor.Engine, dir string, find Resolver) (*BERTFilter, error) {
	m, t, dirs, err := openClassifier(e, dir, find)
	if err != nil {
		return nil, err
	}
	f := &BERTFilter{m: m, t: t, limit: min(512, m.Config.Positions), helpful: -1}
	path := filepath.Join(dir, "config.json")
	var c struct {
		Labels map[string]string `json:"id2label"`
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	for i := range 2 {
		if c.Labels[fmt.Sprint(i)] == LabelHelpful && c.Labels[fmt.Sprint(1-i)] == LabelNotHelpful {
			f.helpful = i
		}
	}
	if err == nil && (f.helpful < 0 || m.Out() != 2) {
		err = fmt.Errorf("%w: id2label is %v; %s and %s are needed", ErrNoLabel, c.Labels, LabelNotHelpful, LabelHelpful)
	}
	if err == nil {
		f.fingerprint, err = fingerprint(dirs, "bert filter", fmt.Sprint(f.limit))
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("filter: %s: %w", path, err)
	}
	return f, nil
}

// OpenFilterOn opens what dir holds: a T5 or a BERT. find resolves the base of a LoRA
// adapter.
func OpenFilterOn(e *tensor.Engine, dir string, find Resolver) (Filter, error) {
	if _, err := bert.ReadConfig(dir); err == nil {
		return OpenBERTFilter(e, dir, find)
	}
	return OpenFilter(e, dir)
}

// Judge implements Filter. Verdicts do not depend on each other.
func (f *BERTFilter) Judge(ctx context.Context, question string, snippets []string) ([]Verdict, Report, error) {
	encs := make([]tokenizer.Encoding, len(snippets))
	for i, s := range snippets {
		encs[i] = f.t.EncodePair(question, s, f.limit)
	}
	rows, err := forward(ctx, f.m, encs, defaultBatchTokens, 1)
	if err != nil {
		return nil, Report{}, fmt.Errorf("filter: %w", err)
	}
	out := make([]Verdict, len(rows))
	for i, r := range rows {
		d := float64(r[f.helpful]) - float64(r[1-f.helpful])
		out[i] = Verdict{Helpful: d > 0, P: 1 / (1 + math.Exp(-d))}
	}
	return out, report(encs), nil
}

// Fingerprint implements Filter.
func (f *BERTFilter) Fingerprint() string { return f.fingerprint }

// Close implements Filter; it waits for running calls.
func (f *BERTFilter) Close() error { f.m.Close(); return nil }
