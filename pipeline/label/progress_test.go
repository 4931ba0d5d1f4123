package label

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"rag2/models"
	"rag2/pipeline"
)

// remote hides that the fake runs here.
type remote struct{ f *fake }

func (r remote) Chat(ctx context.Context, m []models.Message, o models.GenerateOptions) (models.Completion, error) {
	c, err := r.f.Chat(ctx, m, o)
	c.Tokens, c.PromptTokens = nil, len(m[0].Content)
	return c, err
}
func (r remote) CountTokens(m []models.Message) (int, bool) { return r.f.CountTokens(m) }
func (r remote) ContextLength() int                         { return r.f.ContextLength() }
func (r remote) Name() string                               { return r.f.Name() }
func (r remote) Close() error                               { return nil }
func (r remote) ScoreContinuation(ctx context.Context, m []models.Message, s string) ([]int, []float64, error) {
	return r.f.ScoreContinuation(ctx, m, s)
}

// The total is known from the start and corrected where retrieval gives fewer; a resumed
// run first tells what its journal holds and ends with the account of an unbroken one.
func TestProgress(t *testing.T) {
	its := items(12)
	for i := range its {
		its[i].Snippets = nil
	}
	run := func(g models.Generator, out string) (all []Progress, err error) {
		l := &Labeler{Generator: g, Prompts: prompts(t), Expected: 3, Progress: func(p Progress) { all = append(all, p) }}
		l.Retrieve = func(_ context.Context, q pipeline.Question, _ models.Completion) ([]Snippet, error) {
			s := items(1)[0].Snippets
			if q.ID == "7" {
				s = s[:2]
			}
			return s, nil
		}
		_, err = l.Run(t.Context(), its, Options{Concurrency: 1}, out)
		return all, err
	}
	dir := t.TempDir()
	whole, err := run(batching{&fake{}}, filepath.Join(dir, "whole"))
	if err != nil {
		t.Fatal(err)
	}
	end := whole[len(whole)-1]
	if first := whole[0]; first != (Progress{Total: 36}) || end.Done != 35 || end.Total != 35 || end.Written == 0 {
		t.Errorf("from %+v to %+v", first, end)
	}
	for i := 1; i < len(whole); i++ {
		if a, b := whole[i-1], whole[i]; b.Total > a.Total || b.Done < a.Done || b.Read < a.Read || b.Written < a.Written {
			t.Errorf("after %+v came %+v", a, b)
		}
	}
	out := filepath.Join(dir, "stopped")
	part, err := run(batching{&fake{limit: 40}}, out)
	if !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	rest, err := run(batching{&fake{}}, out)
	if err != nil {
		t.Fatal(err)
	}
	if had := part[len(part)-1]; had.Done == 0 || rest[0] != had {
		t.Errorf("the journal held %+v, the resumed run began with %+v", had, rest[0])
	}
	if last := rest[len(rest)-1]; last != end {
		t.Errorf("resumed: %+v, in one go: %+v", last, end)
	}
	// A server reads prompts twice.
	far, err := run(remote{&fake{}}, filepath.Join(dir, "far"))
	if err != nil {
		t.Fatal(err)
	}
	prompts, scored := 0, 0
	f, err := Read(filepath.Join(dir, "far"))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range f.Questions {
		prompts, scored = prompts+q.PromptTokens, scored+len(q.Tokens)
		for _, p := range q.Pairs {
			prompts, scored = prompts+p.PromptTokens, scored+len(q.Tokens)
		}
	}
	if last := far[len(far)-1]; last.Read != 2*prompts+scored || prompts == 0 {
		t.Errorf("%d tokens read; prompts have %d, scored texts %d", last.Read, prompts, scored)
	}
}
