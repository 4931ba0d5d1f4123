package pipeline

import (
	"context"
	"slices"
)

// resume is a run whose retrieval is done: its trace holds copies of t's snippets.
func (p *Pipeline) resume(q Question, t *Trace, o Options) (*run, error) {
	r, err := p.start(q, o, Observer{})
	if err != nil {
		return nil, err
	}
	r.trace.Query, r.trace.QueryKind, r.trace.Rationale, r.trace.RationaleQ = t.Query, t.QueryKind, t.Rationale, t.RationaleQ
	r.trace.Corpora, r.trace.Snippets = t.Corpora, slices.Clone(t.Snippets)
	return r, nil
}

// FilterGiven runs the filter stage on the kept snippets of a trace that was made without
// a filter, and gives the trace that Retrieve gives with it. t stays as it is.
func (p *Pipeline) FilterGiven(ctx context.Context, q Question, t *Trace, o Options) (*Trace, error) {
	r, err := p.resume(q, t, o)
	if err != nil {
		return nil, err
	}
	if err := r.stage(StageFilter, func(st *StageTrace) error { return r.filter(ctx, st) }); err != nil {
		return nil, err
	}
	r.number()
	return r.trace, nil
}

// AnswerGiven runs the answer stage on the kept snippets of a trace, none at all too. The
// answer has no citations and no state: the cite stage is left out. t stays as it is.
func (p *Pipeline) AnswerGiven(ctx context.Context, q Question, t *Trace, o Options) (*Answer, error) {
	if err := p.canAnswer(ctx, q, o); err != nil {
		return nil, err
	}
	r, err := p.resume(q, t, o)
	if err != nil {
		return nil, err
	}
	a := &Answer{Question: q, Trace: r.trace, Citations: []Citation{}}
	if err := r.stage(StageAnswer, func(st *StageTrace) error { return r.answer(ctx, st, a) }); err != nil {
		return nil, err
	}
	a.Notes = append([]string{}, r.notes...)
	return a, nil
}
