package label

import (
	"context"
	"errors"
	"fmt"

	"rag2/models"
	"rag2/pipeline"
)

// together is the number of conversations that a model running here leads at a time.
const together = 8

// rationales writes those of several questions together; what does not fit is left to
// question.
func (r *labelRun) rationales(ctx context.Context, items []Item) error {
	r.written = map[string]models.Completion{}
	var ids []string
	var jobs []models.BatchJob
	for _, it := range items {
		if r.j.questions[it.Question.ID] != nil {
			continue
		}
		prompt, err := r.Prompts.RationalePrompt(it.Question)
		if err != nil {
			return fmt.Errorf("question %s: %w", it.Question.ID, err)
		}
		o, _, err := r.options(prompt, r.o.RationaleTokens)
		if err != nil {
			continue
		}
		ids, jobs = append(ids, it.Question.ID), append(jobs, models.BatchJob{Messages: user(prompt), Options: o})
	}
	return r.batch.ChatBatch(ctx, jobs, together, func(i int, res models.BatchResult) error {
		if res.Err != nil {
			return fmt.Errorf("question %s: %w", ids[i], res.Err)
		}
		r.written[ids[i]] = res.Completion
		return nil
	})
}

// pairs does the missing pairs of a question together: each is what pair gives.
func (r *labelRun) pairs(ctx context.Context, question pipeline.Question, q *Question, snippets []Snippet, missing []int, finish func(n int, p Pair) error) error {
	type part struct {
		n           int
		score, chat bool
	}
	var parts []part
	var jobs []models.BatchJob
	open := map[int]int{} // parts of a pair that are to come
	add := func(p part, j models.BatchJob) {
		parts, jobs = append(parts, p), append(jobs, j)
		open[p.n]++
	}
	done := make([]Pair, len(snippets))
	for _, n := range missing {
		p := &done[n]
		*p = Pair{Kind: "pair", Question: q.ID, Snippet: snippets[n], Unscored: q.Unscored}
		prompt, context, err := r.pairPrompts(question, p.Snippet)
		if err != nil {
			return fmt.Errorf("snippet %d: %w", n, err)
		}
		o, tokens, err := r.options(prompt, r.o.AnswerTokens)
		if errors.Is(err, models.ErrContext) {
			if err := finish(n, p.failed()); err != nil {
				return err
			}
			continue
		}
		chat := models.BatchJob{Messages: user(prompt), Options: o}
		switch {
		case p.Unscored != "":
		case context != prompt:
			add(part{n: n, score: true}, models.BatchJob{Messages: user(context), Score: q.Tokens, ScoreOnly: true})
		case tokens+len(q.Tokens) > r.Generator.ContextLength():
			if err := r.scored(nil, models.ErrContext, nil, nil, &p.Unscored); err != nil {
				return err
			}
		default:
			chat.Score = q.Tokens
		}
		add(part{n: n, score: chat.Score != nil, chat: true}, chat)
	}
	return r.batch.ChatBatch(ctx, jobs, together, func(i int, res models.BatchResult) error {
		x, p := parts[i], &done[parts[i].n]
		if x.score {
			if err := r.scored(res.Score, res.Err, &p.Logprobs, &p.PPL, &p.Unscored); err != nil {
				return fmt.Errorf("snippet %d: %w", x.n, err)
			}
		}
		if x.chat {
			if res.Err != nil {
				return fmt.Errorf("snippet %d: %w", x.n, res.Err)
			}
			p.answer(res.Completion, question)
			p.Right = p.Option != "" && p.Option == q.Gold
		}
		if open[x.n]--; open[x.n] > 0 {
			return nil
		}
		return finish(x.n, *p)
	})
}
