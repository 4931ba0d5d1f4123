package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"rag2/models"
	"rag2/pipeline/llm"
)

// State says how far an answer can be trusted.
type State string

// The states. Of several that apply the first in this order is given.
const (
	Unanswered      State = "unanswered"          // the model named no option, or wrote nothing
	WithoutEvidence State = "without evidence"    // no snippet was kept, or none is cited
	Disagree        State = "rationales disagree" // the option reasoned out before retrieval is another one
	Supported       State = "supported"
)

// Answer is the result of Ask.
type Answer struct {
	Question   Question   `json:"question"`
	State      State      `json:"state"`
	Option     string     `json:"option,omitempty"` // key; "" = unanswered or open question
	OptionText string     `json:"option_text,omitempty"`
	Text       string     `json:"text"`
	Citations  []Citation `json:"citations"`
	Foreign    int        `json:"foreign_citations"` // removed: they named no kept snippet
	// Probabilities of the options under the answer prompt, where the model gives
	// log-probabilities. They sum to 1 and are not calibrated.
	Probabilities map[string]float64 `json:"option_probabilities,omitempty"`
	Notes         []string           `json:"notes"`
	Trace         *Trace             `json:"trace"`
}

// Ask answers a question.
func (p *Pipeline) Ask(ctx context.Context, q Question, o Options, obs Observer) (*Answer, error) {
	if err := p.canAnswer(ctx, q, o); err != nil {
		return nil, err
	}
	r, err := p.start(q, o, obs)
	if err != nil {
		return nil, err
	}
	t := startTimer()
	if err := r.retrieve(ctx); err != nil {
		return nil, err
	}
	a := &Answer{Question: q, Trace: r.trace, Citations: []Citation{}}
	if err := r.stage(StageAnswer, func(st *StageTrace) error { return r.answer(ctx, st, a) }); err != nil {
		return nil, err
	}
	if err := r.stage(StageCite, func(st *StageTrace) error { return r.cite(ctx, st, a) }); err != nil {
		return nil, err
	}
	kept := len(r.trace.Kept())
	switch {
	case strings.TrimSpace(a.Text) == "" || len(q.Options) > 0 && a.Option == "":
		a.State = Unanswered
	case kept == 0 || len(a.Citations) == 0:
		a.State = WithoutEvidence
		if kept > 0 {
			r.notes = append(r.notes, "no sentence of the answer could be tied to a snippet")
		}
	case r.trace.RationaleQ != "" && a.Option != "" && r.trace.RationaleQ != a.Option:
		a.State = Disagree
	default:
		a.State = Supported
	}
	if r.trace.RationaleQ != "" && a.Option != "" && r.trace.RationaleQ != a.Option {
		r.notes = append(r.notes, fmt.Sprintf("the rationale written before retrieval chose %s", r.trace.RationaleQ))
	}
	a.Notes = append([]string{}, r.notes...)
	r.trace.Millis = t.ms()
	return a, nil
}

// canAnswer says whether there is a language model that gives what the answer mode needs.
func (p *Pipeline) canAnswer(ctx context.Context, q Question, o Options) error {
	if p.Generator == nil {
		return fmt.Errorf("language model: %w: an answer needs one", ErrNotConfigured)
	}
	if o.Mode != AnswerLogprob {
		return nil
	}
	if _, ok := p.Generator.(models.TokenScorer); !ok || len(q.Options) == 0 {
		return fmt.Errorf("%w: answer mode %q needs options and a model that gives log-probabilities of given tokens", ErrOptions, o.Mode)
	}
	if remote, ok := p.Generator.(interface{ ProbeScores(context.Context) error }); ok {
		if err := remote.ProbeScores(ctx); err != nil {
			return fmt.Errorf("answer mode %q: %w", o.Mode, err)
		}
	}
	return nil
}

// answer fits the prompt into the context, then asks the model or scores the options.
func (r *run) answer(ctx context.Context, st *StageTrace, a *Answer) error {
	dropped := 0
	var prompt string
	for {
		kept := r.trace.Kept()
		d := promptData{Question: r.q.Render(), Options: len(r.q.Options) > 0}
		for _, s := range kept {
			d.Snippets = append(d.Snippets, promptSnippet{s.N, s.Title, s.Text})
		}
		var err error
		if prompt, err = r.Prompts.render("answer", d); err != nil {
			return err
		}
		n, _ := r.Generator.CountTokens([]models.Message{{Role: "user", Content: prompt}})
		if len(kept) == 0 || n+r.o.AnswerTokens <= r.Generator.ContextLength() {
			break
		}
		last := &r.trace.Snippets[len(kept)-1]
		last.N, last.Dropped = 0, "the model's context is full"
		dropped++
	}
	if dropped > 0 {
		st.Note = fmt.Sprintf("%d lowest-ranked snippets did not fit the model's context and were left out", dropped)
		r.notes = append(r.notes, st.Note)
	}
	if r.o.Mode == AnswerText {
		c, err := r.generate(ctx, StageAnswer, prompt, r.o.AnswerTokens)
		if err != nil {
			return err
		}
		st.Model, st.In, st.Out = c.Model, c.PromptTokens, c.NewTokens
		if c.FinishReason == "length" {
			r.notes = append(r.notes, fmt.Sprintf("the answer was cut at %d tokens", c.NewTokens))
		}
		a.Text = strings.TrimSpace(c.Text)
		if r.o.Extraction == "mirage" && len(r.q.Options) > 0 {
			a.Option = ExtractMIRAGE(a.Text)
		} else {
			a.Option, _ = Extract(a.Text, r.q.Options)
		}
	}
	if err := r.score(ctx, prompt, a); err != nil {
		return err
	}
	if r.o.Mode == AnswerLogprob {
		for _, o := range r.q.Options {
			if a.Option == "" || a.Probabilities[o.Key] > a.Probabilities[a.Option] {
				a.Option = o.Key
			}
		}
		st.Model, st.In = r.Generator.Name(), len(r.q.Options)
	}
	if o, ok := r.q.Option(a.Option); ok {
		a.OptionText = o.Text
		if r.o.Mode == AnswerLogprob {
			a.Text = "(" + o.Key + ") " + o.Text
		}
	} else {
		a.Option = ""
	}
	return nil
}

// score gives the options' probabilities: softmax over the summed log-probabilities
// of "The answer is (X)" as the whole of the model's turn.
func (r *run) score(ctx context.Context, prompt string, a *Answer) error {
	scorer, ok := r.Generator.(models.TokenScorer)
	if !ok || len(r.q.Options) == 0 {
		return nil
	}
	msgs := []models.Message{{Role: "user", Content: prompt}}
	sums := make([]float64, len(r.q.Options))
	for i, o := range r.q.Options {
		_, lp, err := scorer.ScoreContinuation(ctx, msgs, "The answer is ("+o.Key+")")
		if errors.Is(err, llm.ErrNoScores) && r.o.Mode != AnswerLogprob {
			return nil // a server that only chats
		}
		if err != nil {
			return err
		}
		for _, v := range lp {
			sums[i] += v
		}
	}
	top, total := slices.Max(sums), 0.0
	for i := range sums {
		sums[i] = math.Exp(sums[i] - top)
		total += sums[i]
	}
	a.Probabilities = map[string]float64{}
	for i, o := range r.q.Options {
		a.Probabilities[o.Key] = sums[i] / total
	}
	return nil
}

// cite cleans the model's citations and ties sentences without one to snippets.
func (r *run) cite(ctx context.Context, st *StageTrace, a *Answer) error {
	kept := r.trace.Kept()
	var used []int
	a.Text, used, a.Foreign = Cite(a.Text, len(kept))
	for _, n := range used {
		a.Citations = append(a.Citations, Citation{N: n, ID: kept[n-1].ID, Corpus: kept[n-1].Corpus, By: "model"})
	}
	if a.Foreign > 0 {
		r.notes = append(r.notes, fmt.Sprintf("%d citations named no snippet and were removed", a.Foreign))
	}
	st.In, st.Out = len(kept), len(a.Citations)
	if r.o.Attribution < 0 {
		st.Note = "attribution is switched off"
		return nil
	}
	if len(kept) == 0 || a.Text == "" {
		return nil
	}
	err := r.attribute(ctx, a, kept, used)
	st.Out = len(a.Citations)
	return err
}

// attribute ties sentences that the model left without a citation to the snippet that
// is closest, where it is close enough.
func (r *run) attribute(ctx context.Context, a *Answer, kept []Snippet, used []int) error {
	parts := sentences(a.Text)
	var at []int
	var texts []string
	for i, s := range parts {
		key, _ := Extract(s, r.q.Options)
		words := len(strings.Fields(s))
		if reCitation.MatchString(s) || words < minSentence || key != "" && words < 2*minSentence {
			continue
		}
		at, texts = append(at, i), append(texts, strings.TrimSpace(s))
	}
	// A text that names the option and no reason: what is tied is the question with that
	// answer, and only to snippets that do not fit another option better.
	bare := len(texts) == 0 && len(used) == 0 && a.Option != ""
	if bare {
		for _, o := range r.q.Options {
			at, texts = append(at, len(parts)-1), append(texts, strings.TrimSpace(r.q.Stem)+" "+o.Text)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	sv, _, err := r.Encoder.EncodeQueries(ctx, texts)
	if err != nil {
		return err
	}
	arts := make([]models.Article, len(kept))
	for i, s := range kept {
		arts[i] = models.Article{Title: s.Title, Body: s.Text}
	}
	kv, _, err := r.Encoder.EncodeArticles(ctx, arts)
	if err != nil {
		return err
	}
	cos := func(i, j int) float64 { return cosine(sv[i], kv[j]) }
	for i := range sv {
		if bare && r.q.Options[i].Key != a.Option {
			continue
		}
		best, top, other := -1, -1.0, ""
		for j := range kv {
			c := cos(i, j)
			if c <= top {
				continue
			}
			if bare {
				if rival := r.rival(i, func(o int) float64 { return cos(o, j) }); rival >= 0 {
					if other == "" && c >= r.o.Attribution {
						other = fmt.Sprintf("snippet %d fits option %s better than the answer", j+1, r.q.Options[rival].Key)
					}
					continue
				}
			}
			best, top = j, c
		}
		if best < 0 || top < r.o.Attribution {
			if other != "" {
				r.notes = append(r.notes, other)
			}
			continue
		}
		body := strings.TrimRight(parts[at[i]], " \n")
		parts[at[i]] = fmt.Sprintf("%s [%d]%s", body, best+1, parts[at[i]][len(body):])
		k := slices.IndexFunc(a.Citations, func(c Citation) bool { return c.N == best+1 })
		if k < 0 {
			a.Citations = append(a.Citations, Citation{N: best + 1, ID: kept[best].ID, Corpus: kept[best].Corpus, By: "attribution", Cosine: math.Round(top*1e4) / 1e4})
		}
	}
	a.Text = strings.Join(parts, "")
	return nil
}

// rival is the option that is closer to a snippet than option i, or -1.
func (r *run) rival(i int, cos func(option int) float64) int {
	best := i
	for o := range r.q.Options {
		if cos(o) > cos(best) {
			best = o
		}
	}
	if best == i {
		return -1
	}
	return best
}
