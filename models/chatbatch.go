package models

import (
	"context"
	"fmt"

	"rag2/models/llama"
)

// BatchJob is one conversation of a batch.
type BatchJob struct {
	Messages []Message
	Options  GenerateOptions
	// Score are token ids whose log-probabilities behind the prompt are wanted beside
	// the answer, as SequenceScorer.ScoreTokens gives them.
	Score []int
	// ScoreOnly: no answer is generated.
	ScoreOnly bool
}

// BatchResult is what a job gave. Err concerns the job alone: ErrContext.
type BatchResult struct {
	Completion Completion
	Score      []float64
	Err        error
}

// BatchGenerator is implemented by generators that decode several conversations
// together, which costs little more than one of them.
type BatchGenerator interface {
	// ChatBatch answers the jobs, at most width of them at a time (0 = 8), and calls
	// done for each as it ends, from the calling goroutine; an error of done ends the
	// batch. An answer is the one that Chat gives. The tokens with which all prompts
	// begin are read once and their key-value cache is shared.
	ChatBatch(ctx context.Context, jobs []BatchJob, width int, done func(i int, r BatchResult) error) error
}

var _ BatchGenerator = (*Llama)(nil)

// defaultWidth is the number of conversations decoded together.
const defaultWidth = 8

// leastPrefix is the number of common tokens from which sharing them pays.
const leastPrefix = 16

// ChatBatch implements BatchGenerator.
func (g *Llama) ChatBatch(ctx context.Context, jobs []BatchJob, width int, done func(i int, r BatchResult) error) error {
	if width <= 0 {
		width = defaultWidth
	}
	prompts, targets := make([][]int32, len(jobs)), make([][]int32, len(jobs))
	for i, j := range jobs {
		var err error
		if prompts[i], err = g.prompt(j.Messages); err != nil {
			return fmt.Errorf("conversation %d: %w", i, err)
		}
		if len(prompts[i]) == 0 {
			return fmt.Errorf("conversation %d: its prompt is empty", i)
		}
		if targets[i], err = g.targets(j.Score); err != nil {
			return fmt.Errorf("conversation %d: %w", i, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &chatBatch{g: g, jobs: jobs, prompts: prompts, targets: targets, done: done}
	if n := commonPrefix(prompts); len(jobs) > 1 && n >= leastPrefix && n < g.context {
		b.prefix = g.model.NewSession()
		defer b.prefix.Close()
		if _, err := b.prefix.Feed(ctx, prompts[0][:n]); err != nil {
			return err
		}
	}
	var err error
	if b.reader, err = b.session(); err != nil {
		return err
	}
	defer b.reader.Close()
	b.batch = g.model.NewBatch(b.prefix)
	defer b.batch.Close()
	for next := 0; next < len(jobs) || len(b.live) > 0; {
		for len(b.live) < width && next < len(jobs) {
			if err := b.admit(ctx, next); err != nil {
				return err
			}
			next++
		}
		if err := b.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// commonPrefix is the number of tokens with which all prompts begin, at least one less
// than any has.
func commonPrefix(prompts [][]int32) int {
	if len(prompts) == 0 {
		return 0
	}
	n := len(prompts[0]) - 1
	for _, p := range prompts[1:] {
		n = min(n, len(p)-1)
		for i := range n {
			if p[i] != prompts[0][i] {
				n = i
				break
			}
		}
	}
	return n
}

// chatBatch is one ChatBatch.
type chatBatch struct {
	g       *Llama
	jobs    []BatchJob
	prompts [][]int32
	targets [][]int32 // to score
	done    func(int, BatchResult) error
	prefix  *llama.Session
	reader  *llama.Session // reads prompts, one after another
	batch   *llama.Batch
	live    []*liveJob
}

type liveJob struct {
	i      int
	d      *decoding
	score  []float64
	stream *llama.Stream
}

func (b *chatBatch) session() (*llama.Session, error) {
	if b.prefix == nil {
		return b.g.model.NewSession(), nil
	}
	return b.prefix.Continue()
}

// admit reads the prompt of job i and lets it join the batch.
func (b *chatBatch) admit(ctx context.Context, i int) error {
	g, job, ids := b.g, &b.jobs[i], b.prompts[i]
	opt := job.Options
	if opt.MaxTokens == 0 {
		opt.MaxTokens = 512
	}
	c := Completion{Model: g.name, PromptTokens: len(ids), FinishReason: "length"}
	room := g.context - len(ids)
	if room < 1 || room < len(job.Score) {
		return b.done(i, BatchResult{Completion: c, Err: fmt.Errorf("%w: %d tokens of %d", ErrContext, len(ids)+max(1, len(job.Score)), g.context)})
	}
	rest := ids
	if b.prefix != nil {
		rest = ids[len(b.prefix.Tokens()):]
	}
	live := &liveJob{i: i, d: g.decoding(c, opt, room)}
	s := b.reader
	s.Rewind(0)
	if len(job.Score) > 0 {
		var err error
		if live.score, err = scoreBehind(ctx, s, rest, b.targets[i]); err != nil {
			return err
		}
		s.Rewind(len(rest) - 1)
		rest = rest[len(rest)-1:]
	}
	if job.ScoreOnly {
		return b.done(i, BatchResult{Completion: c, Score: live.score})
	}
	logits, err := s.Feed(ctx, rest)
	if err != nil {
		return err
	}
	if live.d.push(logits) {
		return b.end(live)
	}
	if live.stream, err = b.batch.Join(s); err != nil {
		return err
	}
	b.live = append(b.live, live)
	return nil
}

func (b *chatBatch) end(l *liveJob) error {
	if l.stream != nil {
		l.stream.Leave()
	}
	return b.done(l.i, BatchResult{Completion: l.d.c, Score: l.score})
}

// step adds a token to every live answer.
func (b *chatBatch) step(ctx context.Context) error {
	if len(b.live) == 0 {
		return nil
	}
	streams, ids := make([]*llama.Stream, len(b.live)), make([]int32, len(b.live))
	for i, l := range b.live {
		streams[i], ids[i] = l.stream, l.d.out[len(l.d.out)-1]
	}
	logits, err := b.batch.Step(ctx, streams, ids)
	if err != nil {
		return err
	}
	live := b.live[:0]
	for i, l := range b.live {
		if !l.d.push(logits[i]) {
			live = append(live, l)
			continue
		}
		if err := b.end(l); err != nil {
			return err
		}
	}
	b.live = live
	return nil
}
