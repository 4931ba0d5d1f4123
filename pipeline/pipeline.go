package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rag2/models"
	"rag2/pipeline/home"
)

// Pipeline holds the models and corpora of the method. Encoder and Corpora are
// needed; Generator is needed by every query kind but "question" and by Ask; a stage
// whose model is nil is skipped, and the trace says so.
type Pipeline struct {
	Encoder      models.Encoder
	CrossEncoder models.CrossEncoder
	Filter       models.Filter
	Generator    models.Generator
	Corpora      []Retriever
	Prompts      *Prompts // nil = built in
}

// ErrNotConfigured reports a part that the call needs and the pipeline lacks.
var ErrNotConfigured = errors.New("not configured")

// Observer is told how a question gets on; nil functions are not called.
type Observer struct {
	Stage func(name string)        // a stage begins
	Token func(stage, text string) // a piece of generated text, in order
}

// run is one question on its way.
type run struct {
	*Pipeline
	q     Question
	o     Options
	obs   Observer
	trace *Trace
	notes []string
	given *models.Completion // the rationale, where the caller has it already
}

func (p *Pipeline) start(q Question, o Options, obs Observer) (*run, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if p.Encoder == nil {
		return nil, fmt.Errorf("encoder: %w", ErrNotConfigured)
	}
	if len(p.Corpora) == 0 {
		return nil, fmt.Errorf("corpora: %w: none is given; `rag2 corpus add` and `rag2 index build` make them", ErrNotConfigured)
	}
	o, err := o.Defaults(len(p.Corpora))
	if err != nil {
		return nil, err
	}
	if p.Generator == nil && (o.Query != QueryQuestion || o.RerankQuery == "rationale" && p.CrossEncoder != nil) {
		return nil, fmt.Errorf("language model: %w: query kind %q needs one; use the kind %q", ErrNotConfigured, o.Query, QueryQuestion)
	}
	r := &run{Pipeline: p, q: q, o: o, obs: obs}
	if r.Prompts == nil {
		c := *p
		if c.Prompts, err = LoadPrompts(""); err != nil {
			return nil, err
		}
		r.Pipeline = &c
	}
	r.trace = &Trace{Settings: o, Prompts: r.Prompts.Hash(), QueryKind: o.Query, Models: map[string]string{"encoder": p.Encoder.Fingerprint()}, Snippets: []Snippet{}}
	if p.CrossEncoder != nil {
		r.trace.Models["cross-encoder"] = p.CrossEncoder.Fingerprint()
	}
	if p.Filter != nil {
		r.trace.Models["filter"] = p.Filter.Fingerprint()
	}
	if p.Generator != nil {
		r.trace.Models["llm"] = p.Generator.Name()
	}
	return r, nil
}

// Retrieve runs the stages up to the filter and returns the trace: its Snippets
// with N > 0 are what an answer would rest on.
func (p *Pipeline) Retrieve(ctx context.Context, q Question, o Options, obs Observer) (*Trace, error) {
	return p.retrieveGiven(ctx, q, nil, o, obs)
}

// RetrieveGiven is Retrieve with a rationale that the language model has already
// written to the rationale prompt.
func (p *Pipeline) RetrieveGiven(ctx context.Context, q Question, rationale models.Completion, o Options) (*Trace, error) {
	return p.retrieveGiven(ctx, q, &rationale, o, Observer{})
}

func (p *Pipeline) retrieveGiven(ctx context.Context, q Question, given *models.Completion, o Options, obs Observer) (*Trace, error) {
	r, err := p.start(q, o, obs)
	if err != nil {
		return nil, err
	}
	r.given = given
	t := startTimer()
	if err := r.retrieve(ctx); err != nil {
		return nil, err
	}
	r.trace.Millis = t.ms()
	return r.trace, nil
}

// stage runs f as a stage and adds its account to the trace.
func (r *run) stage(name string, f func(st *StageTrace) error) error {
	if r.obs.Stage != nil {
		r.obs.Stage(name)
	}
	st := StageTrace{Name: name}
	t := startTimer()
	if err := f(&st); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	st.Millis = t.ms()
	r.trace.Stages = append(r.trace.Stages, st)
	return nil
}

// retrieve is rationale → encode → retrieve → rerank → filter.
func (r *run) retrieve(ctx context.Context) error {
	if err := r.stage(StageRationale, func(st *StageTrace) error { return r.rationale(ctx, st) }); err != nil {
		return err
	}
	var vector []float32
	err := r.stage(StageEncode, func(st *StageTrace) error {
		vs, rep, err := r.Encoder.EncodeQueries(ctx, []string{r.trace.Query})
		if err != nil {
			return err
		}
		st.In, st.Out, st.Cut, vector = rep.Tokens, r.Encoder.Dim(), rep.Truncated, vs[0]
		if rep.Truncated > 0 {
			st.Note = "the query was cut at the encoder's limit"
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = r.stage(StageRetrieve, func(st *StageTrace) error {
		hits, cs, err := Balanced(ctx, r.Corpora, vector, r.o.PerCorpusK, SearchOptions{Ef: r.o.Ef, Exact: r.o.Exact, Only: r.o.Only})
		if err != nil {
			return err
		}
		r.trace.Corpora = cs
		rank := map[string]int{}
		for _, h := range hits {
			rank[h.Corpus]++
			r.trace.Snippets = append(r.trace.Snippets, snippet(h, rank[h.Corpus]))
		}
		st.In, st.Out = len(r.Corpora), len(hits)
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.stage(StageRerank, func(st *StageTrace) error { return r.rerank(ctx, st) }); err != nil {
		return err
	}
	if err := r.stage(StageFilter, func(st *StageTrace) error { return r.filter(ctx, st) }); err != nil {
		return err
	}
	r.number()
	return nil
}

func snippet(h home.Hit, rank int) Snippet {
	return Snippet{ID: h.ID, Corpus: h.Corpus, Doc: h.Doc, Title: h.Title, Section: h.Section, Text: h.Text,
		Journal: h.Journal, Year: h.Year, URL: h.URL, Retrieval: h.Score, CorpusRank: rank}
}

// full is a snippet's text as rerankers and filters read it.
func (s *Snippet) full() string { return models.JoinTitle(s.Title, s.Text) }

// rationale makes the query text.
func (r *run) rationale(ctx context.Context, st *StageTrace) error {
	question := r.q.Render()
	r.trace.Query = question
	needed := r.o.Query == QueryRationale || r.o.Query == QueryQuestionRationale || r.o.RerankQuery == "rationale" && r.CrossEncoder != nil
	if !needed && r.o.Query != QueryDoc {
		st.Skipped = "the query is the question"
		return nil
	}
	name := "rationale"
	if r.o.Query == QueryDoc {
		name = "query2doc"
	}
	text, err := r.Prompts.render(name, promptData{Question: question, Options: len(r.q.Options) > 0})
	if err != nil {
		return err
	}
	var c models.Completion
	if r.given != nil && r.o.Query != QueryDoc {
		c = *r.given
	} else if c, err = r.generate(ctx, StageRationale, text, r.o.RationaleTokens); err != nil {
		return err
	}
	st.Model, st.In, st.Out = c.Model, c.PromptTokens, c.NewTokens
	if c.FinishReason == "length" {
		st.Note = "cut at the token limit"
	}
	if r.o.Query == QueryDoc {
		r.trace.Query = r.trace.Query + " " + strings.TrimSpace(c.Text)
		return nil
	}
	key, explanation := Extract(c.Text, r.q.Options)
	explanation = dropOptionLines(explanation, r.q.Options)
	r.trace.RationaleQ, r.trace.Rationale = key, explanation
	if explanation == "" {
		// The model gave an option and no reasons, or nothing at all.
		st.Note = "no explanation came; the question is the query"
		r.trace.QueryKind = QueryQuestion
		return nil
	}
	switch r.o.Query {
	case QueryRationale:
		r.trace.Query = explanation
	case QueryQuestionRationale:
		r.trace.Query += " " + explanation
	}
	return nil
}

// generate asks the language model for one turn.
func (r *run) generate(ctx context.Context, stage, prompt string, tokens int) (models.Completion, error) {
	msgs := []models.Message{{Role: "user", Content: prompt}}
	n, _ := r.Generator.CountTokens(msgs)
	room := r.Generator.ContextLength() - n
	if room < minRoom {
		return models.Completion{}, fmt.Errorf("%w: prompt of %d tokens, context of %d", models.ErrContext, n, r.Generator.ContextLength())
	}
	opt := models.GenerateOptions{MaxTokens: min(tokens, room)}
	if r.obs.Token != nil {
		opt.OnToken = func(s string) { r.obs.Token(stage, s) }
	}
	return r.Generator.Chat(ctx, msgs, opt)
}

// minRoom is the least number of tokens that an answer gets.
const minRoom = 16

// RerankScore is what the pool is ordered by: the cross-encoder's logit and weight times
// the retrieval score.
func RerankScore(logit, retrieval float32, weight float64) float64 {
	return float64(logit) + weight*float64(retrieval)
}

// rerank orders the pool and keeps K of it. Without a cross-encoder the order is that
// of the retrieval scores.
func (r *run) rerank(ctx context.Context, st *StageTrace) error {
	s := r.trace.Snippets
	st.In = len(s)
	if r.CrossEncoder == nil {
		st.Skipped = "no cross-encoder is configured; order by retrieval score"
	} else if len(s) > 0 {
		query := r.q.Render()
		if r.o.RerankQuery == "rationale" && r.trace.Rationale != "" {
			query = r.trace.Rationale
		}
		texts := make([]string, len(s))
		for i := range s {
			texts[i] = s[i].full()
		}
		scores, rep, err := r.CrossEncoder.Score(ctx, query, texts)
		if err != nil {
			return err
		}
		st.Cut = rep.Truncated
		for i := range s {
			s[i].Rerank = &scores[i]
		}
		if r.o.RerankRetrieval > 0 {
			st.Note = fmt.Sprintf("order by RERANK + %g × SCORE", r.o.RerankRetrieval)
		}
	}
	slices.SortStableFunc(s, func(a, b Snippet) int {
		if a.Rerank != nil && b.Rerank != nil {
			return cmp.Compare(RerankScore(*b.Rerank, b.Retrieval, r.o.RerankRetrieval), RerankScore(*a.Rerank, a.Retrieval, r.o.RerankRetrieval))
		}
		return cmp.Compare(b.Retrieval, a.Retrieval)
	})
	for i := range s {
		if i >= r.o.K {
			s[i].Dropped = fmt.Sprintf("rank %d of %d; final_k is %d", i+1, len(s), r.o.K)
		}
	}
	st.Out = min(len(s), r.o.K)
	return nil
}

// filter drops the snippets that the filter calls not helpful.
func (r *run) filter(ctx context.Context, st *StageTrace) error {
	var kept []*Snippet
	for i := range r.trace.Snippets {
		if s := &r.trace.Snippets[i]; s.Dropped == "" {
			kept = append(kept, s)
		}
	}
	st.In, st.Out = len(kept), len(kept)
	if r.Filter == nil {
		st.Skipped = "no filter is configured; all snippets are kept"
		return nil
	}
	if len(kept) == 0 {
		return nil
	}
	texts := make([]string, len(kept))
	for i, s := range kept {
		texts[i] = s.full()
	}
	vs, rep, err := r.Filter.Judge(ctx, r.q.Render(), texts)
	if err != nil {
		return err
	}
	st.Cut, st.Out = rep.Truncated, 0
	for i, s := range kept {
		vs[i].Helpful = vs[i].P >= r.o.Threshold
		s.Verdict = &vs[i]
		if vs[i].Helpful {
			st.Out++
			continue
		}
		s.Dropped = fmt.Sprintf("filter: P(helpful) = %.3f, below %.3g", vs[i].P, r.o.Threshold)
	}
	if st.Out == 0 {
		st.Note = "the filter dropped every snippet"
		if r.o.KeepBest {
			kept[0].Dropped, st.Out = "", 1
			st.Note += "; the best-ranked one is kept"
		}
		r.notes = append(r.notes, st.Note)
	}
	return nil
}

// number puts the kept snippets first and numbers them.
func (r *run) number() {
	slices.SortStableFunc(r.trace.Snippets, func(a, b Snippet) int {
		return cmp.Compare(min(len(a.Dropped), 1), min(len(b.Dropped), 1))
	})
	for i := range r.trace.Snippets {
		r.trace.Snippets[i].N = 0
		if r.trace.Snippets[i].Dropped == "" {
			r.trace.Snippets[i].N = i + 1
		}
	}
}

// Kept are the snippets that the answer rests on, in the order of their numbers.
func (t *Trace) Kept() []Snippet {
	n := 0
	for n < len(t.Snippets) && t.Snippets[n].N > 0 {
		n++
	}
	return t.Snippets[:n]
}
