package label

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"rag2/models"
	"rag2/pipeline"

	"golang.org/x/sync/errgroup"
)

// Scored texts.
const (
	ScoreRationale = "rationale" // the explanation written without the snippet
	ScoreQuestion  = "question"  // the question, behind a prompt that does not hold it
)

// Options steer a Labeler.
type Options struct {
	Scored     string   // "" = rationale
	Answers    string   // pipeline.AnswerText: written greedily and extracted; AnswerLogprob: options are scored; "" = text
	Population string   // of τ; "" = global
	Tau        *float64 // instead of the quartile
	// New tokens at most; 0 = 512.
	RationaleTokens, AnswerTokens int
	// Concurrency is the number of questions in work at once; 0 = 4. A model that runs
	// here takes one, and leads several conversations together where it can.
	Concurrency int
}

// Validate fills defaults and lists what is wrong.
func (o *Options) Validate() error {
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	def(&o.Scored, ScoreRationale)
	def(&o.Answers, pipeline.AnswerText)
	def(&o.Population, Global)
	for _, p := range []*int{&o.RationaleTokens, &o.AnswerTokens} {
		if *p == 0 {
			*p = 512
		}
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	var errs []error
	among := func(name, v string, all ...string) {
		if !slices.Contains(all, v) {
			errs = append(errs, fmt.Errorf("%s %q; one of %q", name, v, all))
		}
	}
	among("scored text", o.Scored, ScoreRationale, ScoreQuestion)
	among("answers", o.Answers, pipeline.AnswerText, pipeline.AnswerLogprob)
	among("population of τ", o.Population, Global, PerQuestion)
	if o.RationaleTokens < 1 || o.AnswerTokens < 1 || o.Concurrency < 1 {
		errs = append(errs, errors.New("numbers of tokens and concurrency are at least 1"))
	}
	if o.Tau != nil && (math.IsNaN(*o.Tau) || math.IsInf(*o.Tau, 0)) {
		errs = append(errs, errors.New("τ is not a finite number"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", pipeline.ErrOptions, err)
	}
	return nil
}

// Labeler makes labels with a language model.
type Labeler struct {
	Generator models.Generator // also a models.TokenScorer
	Prompts   *pipeline.Prompts
	// Retrieve finds candidates for questions without; rationale is the model's whole
	// text. Candidates describes it: it is part of the settings.
	Retrieve   func(ctx context.Context, q pipeline.Question, rationale models.Completion) ([]Snippet, error)
	Candidates string
	// Expected is the number of candidates that Retrieve gives for a question, as far as
	// that is known before; Progress counts with it.
	Expected int
	// Progress is told how the run gets on, first of all what the journal holds. nil is fine.
	Progress func(Progress)
}

// Progress is what a run has done, the journal's part included.
type Progress struct {
	Done, Total int // pairs; Total is expected where candidates are still to be retrieved
	// Tokens that the model read and wrote. A server reads the prompt of a pair twice, for
	// the scored text and for the answer, and once for each option that it scores; a model
	// that runs here reads it once.
	Read, Written int
}

// ErrNoScores reports a model that cannot give the log-probabilities of given tokens.
var ErrNoScores = errors.New("the model gives no log-probabilities of given text")

// prober is a remote model that must be asked whether it can score.
type prober interface {
	ProbeScores(ctx context.Context) error
}

// Run labels items and writes the label file out. Finished work is kept in
// out+".journal" until out is written; a journal of other settings or items is an error.
func (l *Labeler) Run(ctx context.Context, items []Item, o Options, out string) (*File, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if _, ok := l.Generator.(models.TokenScorer); !ok {
		return nil, fmt.Errorf("%s: %w", l.Generator.Name(), ErrNoScores)
	}
	if p, ok := l.Generator.(prober); ok {
		if err := p.ProbeScores(ctx); err != nil {
			return nil, err
		}
	}
	f := &File{Settings: Settings{Model: l.Generator.Name(), Prompts: l.Prompts.Hash(), Scored: o.Scored, Answers: o.Answers,
		RationaleTokens: o.RationaleTokens, AnswerTokens: o.AnswerTokens, Candidates: l.Candidates}}
	h := sha256.New()
	if err := json.NewEncoder(h).Encode([]any{f.Settings, items}); err != nil {
		return nil, err
	}
	j, err := openJournal(out+".journal", hex.EncodeToString(h.Sum(nil)))
	if err != nil {
		return nil, err
	}
	defer j.close()
	r := &labelRun{Labeler: l, o: o, j: j}
	if s, ok := l.Generator.(models.SequenceScorer); ok {
		r.seq, r.o.Concurrency = s, 1
		if r.batch, ok = l.Generator.(models.BatchGenerator); !ok || o.Answers != pipeline.AnswerText {
			r.batch = nil
		}
	}
	f.Questions = make([]Question, len(items))
	r.begin(items)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Concurrency)
	for i := range items {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if r.batch != nil && i%together == 0 {
				if err := r.rationales(gctx, items[i:min(i+together, len(items))]); err != nil {
					return err
				}
			}
			if err := r.item(gctx, items[i], &f.Questions[i]); err != nil {
				return fmt.Errorf("question %s: %w", items[i].Question.ID, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.Relabel(o.Tau, o.Population); err != nil {
		return nil, err
	}
	if err := f.Write(out); err != nil {
		return nil, err
	}
	j.close()
	return f, os.Remove(j.path)
}

// labelRun is one Run.
type labelRun struct {
	*Labeler
	o       Options
	j       *journal
	seq     models.SequenceScorer        // nil for remote models
	batch   models.BatchGenerator        // nil when conversations are led one by one
	written map[string]models.Completion // rationales of the questions at hand, by id

	mu  sync.Mutex
	now Progress
}

// begin counts what the journal holds and what is expected.
func (r *labelRun) begin(items []Item) {
	var p Progress
	for _, it := range items {
		q := r.j.questions[it.Question.ID]
		n := len(it.Snippets)
		switch {
		case n > 0:
		case q != nil:
			n = len(q.Retrieved)
		default:
			n = r.Expected
		}
		p.Total += n
		if q == nil {
			continue
		}
		p.add(r.spent(q, nil, len(it.Question.Options)))
		for k := range n {
			if x := r.j.pairs[pairKey{q.ID, k}]; x != nil {
				p.add(r.spent(q, x, len(it.Question.Options)))
			}
		}
	}
	r.tell(p)
}

// spent is what a question alone (p nil) or a pair of it took.
func (r *labelRun) spent(q *Question, p *Pair, options int) (t Progress) {
	prompt, scored := q.PromptTokens, q.PPL != nil
	if t.Written = q.NewTokens; p != nil {
		t.Done, t.Written = 1, p.NewTokens
		prompt, scored = p.PromptTokens, p.PPL != nil
	}
	t.Read = prompt
	if scored {
		t.Read += len(q.Tokens)
	}
	if r.seq == nil { // a request each
		if scored {
			t.Read += prompt
		}
		if r.o.Answers == pipeline.AnswerLogprob {
			t.Read += (options - 1) * prompt
		}
	}
	return t
}

func (p *Progress) add(more Progress) {
	p.Done, p.Total, p.Read, p.Written = p.Done+more.Done, p.Total+more.Total, p.Read+more.Read, p.Written+more.Written
}

// tell counts what was done and reports it.
func (r *labelRun) tell(more Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.add(more)
	if r.Progress != nil {
		r.Progress(r.now)
	}
}

// item does one question with its pairs.
func (r *labelRun) item(ctx context.Context, it Item, q *Question) error {
	if !r.j.question(it.Question.ID, q) {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.forget()
		var err error
		if *q, err = r.question(ctx, it); err != nil {
			return err
		}
		if err := r.j.add(entry{Question: q}); err != nil {
			return err
		}
		t := r.spent(q, nil, len(it.Question.Options))
		if len(it.Snippets) == 0 {
			t.Total = len(q.Retrieved) - r.Expected
		}
		r.tell(t)
	}
	snippets := it.Snippets
	if len(snippets) == 0 {
		snippets = q.Retrieved
	}
	q.Pairs = make([]Pair, len(snippets))
	var missing []int
	for n := range snippets {
		if !r.j.pair(q.ID, n, &q.Pairs[n]) {
			missing = append(missing, n)
		}
	}
	finish := func(n int, p Pair) error {
		p.N = n
		q.Pairs[n] = p
		if err := r.j.add(entry{Pair: &p}); err != nil {
			return err
		}
		r.tell(r.spent(q, &p, len(it.Question.Options)))
		return nil
	}
	if r.batch != nil {
		return r.pairs(ctx, it.Question, q, snippets, missing, finish)
	}
	for _, n := range missing {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.forget()
		p, err := r.pair(ctx, it.Question, q, snippets[n])
		if err != nil {
			return fmt.Errorf("snippet %d: %w", n, err)
		}
		if err := finish(n, p); err != nil {
			return err
		}
	}
	return nil
}

// forget makes what a local model gives independent of what it did before.
func (r *labelRun) forget() {
	if r.seq != nil {
		r.seq.Forget()
	}
}

func user(text string) []models.Message { return []models.Message{{Role: "user", Content: text}} }

// options are those of a greedy answer in the room that the context leaves behind a
// prompt of n tokens.
func (r *labelRun) options(prompt string, tokens int) (o models.GenerateOptions, n int, err error) {
	n, _ = r.Generator.CountTokens(user(prompt))
	room := r.Generator.ContextLength() - n
	if room < 16 {
		return o, n, fmt.Errorf("%w: prompt of %d tokens, context of %d", models.ErrContext, n, r.Generator.ContextLength())
	}
	return models.GenerateOptions{MaxTokens: min(tokens, room)}, n, nil
}

func (r *labelRun) chat(ctx context.Context, prompt string, tokens int) (models.Completion, error) {
	o, _, err := r.options(prompt, tokens)
	if err != nil {
		return models.Completion{}, err
	}
	return r.Generator.Chat(ctx, user(prompt), o)
}

// neutral is the prompt before a question that is scored itself.
const neutral = "Write a multiple choice question about medical knowledge."

// question writes the rationale and scores it without evidence.
func (r *labelRun) question(ctx context.Context, it Item) (Question, error) {
	q := Question{Kind: "question", ID: it.Question.ID, Question: it.Question.Render(), Gold: it.Question.Gold}
	prompt, err := r.Prompts.RationalePrompt(it.Question)
	if err != nil {
		return q, err
	}
	c, ok := r.written[q.ID]
	if !ok {
		if c, err = r.chat(ctx, prompt, r.o.RationaleTokens); err != nil {
			return q, err
		}
	}
	q.Output, q.Finish, q.PromptTokens, q.NewTokens = c.Text, c.FinishReason, c.PromptTokens, c.NewTokens
	var explanation string
	q.Option, explanation = pipeline.Extract(c.Text, it.Question.Options)
	if r.o.Answers == pipeline.AnswerLogprob {
		if q.Option, err = r.choose(ctx, prompt, it.Question); err != nil {
			return q, err
		}
	}
	q.Right = q.Option != "" && q.Option == q.Gold
	switch {
	case r.o.Scored == ScoreQuestion:
		q.Rationale = q.Question
	case r.seq != nil && len(c.Tokens) > 0:
		q.Tokens = r.cut(c, explanation)
		q.Rationale = r.seq.DecodeTokens(q.Tokens)
	default:
		q.Rationale = explanation
	}
	if strings.TrimSpace(q.Rationale) == "" {
		q.Tokens, q.Unscored = nil, "the model wrote no explanation"
	} else if err := r.score(ctx, &q, r.context(prompt), &q.Logprobs, &q.PPL, &q.Unscored); err != nil {
		return q, err
	}
	if len(it.Snippets) == 0 {
		if r.Retrieve == nil {
			return q, fmt.Errorf("it has no snippets and there are no corpora to retrieve them from")
		}
		if q.Retrieved, err = r.Retrieve(ctx, it.Question, c); err != nil {
			return q, err
		}
	}
	return q, nil
}

// context is the prompt before the scored text.
func (r *labelRun) context(prompt string) string {
	if r.o.Scored == ScoreQuestion {
		return neutral
	}
	return prompt
}

// cut keeps the generated tokens that lie within the explanation.
func (r *labelRun) cut(c models.Completion, explanation string) []int {
	start := strings.Index(c.Text, explanation)
	if explanation == "" || start < 0 {
		return nil
	}
	end, n := start+len(explanation), len(c.Tokens)
	for n > 0 && len(strings.TrimRight(r.seq.DecodeTokens(c.Tokens[:n]), " \n\t")) > end {
		n--
	}
	first := 0
	if strings.TrimSpace(c.Text[:start]) != "" { // the answer stands before it
		for first < n && len(r.seq.DecodeTokens(c.Tokens[:first+1])) <= start {
			first++
		}
	}
	return c.Tokens[first:n:n]
}

// pairPrompts are the prompt of a pair's answer and the one before the scored text.
func (r *labelRun) pairPrompts(question pipeline.Question, s Snippet) (prompt, context string, err error) {
	base, err := r.Prompts.RationalePrompt(question)
	if err != nil {
		return "", "", err
	}
	if prompt, err = r.Prompts.WithEvidence(base, s.Title, s.Text); err != nil || r.o.Scored != ScoreQuestion {
		return prompt, prompt, err
	}
	context, err = r.Prompts.WithEvidence(neutral, s.Title, s.Text)
	return prompt, context, err
}

// pair scores the question's rationale given a snippet and answers once more.
func (r *labelRun) pair(ctx context.Context, question pipeline.Question, q *Question, s Snippet) (Pair, error) {
	p := Pair{Kind: "pair", Question: q.ID, Snippet: s}
	prompt, context, err := r.pairPrompts(question, s)
	if err != nil {
		return p, err
	}
	p.Unscored = q.Unscored
	if p.Unscored == "" {
		if err := r.score(ctx, q, context, &p.Logprobs, &p.PPL, &p.Unscored); err != nil {
			return p, err
		}
	}
	if r.o.Answers == pipeline.AnswerLogprob {
		p.PromptTokens, _ = r.Generator.CountTokens(user(prompt))
		p.Option, err = r.choose(ctx, prompt, question)
	} else {
		var c models.Completion
		c, err = r.chat(ctx, prompt, r.o.AnswerTokens)
		p.answer(c, question)
	}
	if errors.Is(err, models.ErrContext) {
		return p.failed(), nil
	}
	p.Right = p.Option != "" && p.Option == q.Gold
	return p, err
}

func (p *Pair) answer(c models.Completion, question pipeline.Question) {
	p.Output, p.PromptTokens, p.NewTokens = c.Text, c.PromptTokens, c.NewTokens
	p.Option, _ = pipeline.Extract(c.Text, question.Options)
}

// failed is the pair where no answer was possible.
func (p *Pair) failed() Pair {
	return Pair{Kind: p.Kind, Question: p.Question, Snippet: p.Snippet, Failed: true, Unscored: "the evidence does not fit the model's context"}
}

// score fills log-probabilities and perplexity of q's scored text behind a prompt; q
// gets the ids or pieces where it has none yet, else they must be the same.
func (r *labelRun) score(ctx context.Context, q *Question, prompt string, lp *[]float32, ppl **float64, unscored *string) error {
	var v []float64
	var err error
	switch s := r.Generator.(type) {
	case models.SequenceScorer:
		if q.Tokens == nil { // a text that the model did not write is tokenised once
			if q.Tokens, v, err = s.ScoreContinuation(ctx, user(prompt), q.Rationale); err != nil {
				break
			}
		} else {
			v, err = s.ScoreTokens(ctx, user(prompt), q.Tokens)
		}
	case models.TokenScorer:
		var ids []int
		if ids, v, err = s.ScoreContinuation(ctx, user(prompt), q.Rationale); err != nil {
			break
		}
		if q.Tokens == nil {
			q.Tokens = ids
		} else if !slices.Equal(q.Tokens, ids) {
			*unscored = "the text was tokenised differently behind the evidence"
			return nil
		}
	}
	return r.scored(v, err, lp, ppl, unscored)
}

// scored takes what a model gave for a text.
func (r *labelRun) scored(v []float64, err error, lp *[]float32, ppl **float64, unscored *string) error {
	if errors.Is(err, models.ErrContext) {
		*unscored = "prompt and text do not fit the model's context"
		return nil
	}
	if err != nil {
		return err
	}
	*lp = make([]float32, len(v))
	for i := range v {
		if math.IsNaN(v[i]) || v[i] > 1e-3 {
			return fmt.Errorf("%s gave %v as a log-probability", r.Generator.Name(), v[i])
		}
		(*lp)[i] = float32(v[i])
	}
	for _, x := range *lp {
		if math.IsInf(float64(x), 0) {
			*lp, *unscored = nil, "a token has probability 0"
			return nil
		}
	}
	if *ppl = Perplexity(*lp); *ppl == nil {
		*unscored = "the perplexity is not finite"
	}
	return nil
}

// choose is the option whose statement has the highest log-probability.
func (r *labelRun) choose(ctx context.Context, prompt string, q pipeline.Question) (string, error) {
	best, top := "", math.Inf(-1)
	for _, o := range q.Options {
		sum := 0.0
		text := "The answer is (" + o.Key + ")"
		var lp []float64
		var err error
		if _, lp, err = r.Generator.(models.TokenScorer).ScoreContinuation(ctx, user(prompt), text); err != nil {
			return "", err
		}
		for _, v := range lp {
			sum += v
		}
		if sum > top {
			best, top = o.Key, sum
		}
	}
	return best, nil
}
