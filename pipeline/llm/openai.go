// Package llm talks to OpenAI-compatible servers (OpenAI, vLLM, llama.cpp, Ollama)
// through the official Go client.
package llm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"rag2/models"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// Errors of a remote model.
var (
	ErrUnavailable = errors.New("language model server is not available")
	ErrRefused     = errors.New("language model server refused the request")
)

// Options describe an endpoint.
type Options struct {
	BaseURL string // e.g. "http://127.0.0.1:8080/v1"
	Model   string
	APIKey  string        // sent to BaseURL alone; never logged
	Timeout time.Duration // one try; 0 = 2 minutes
	Retries int           // of connection faults, 429 and 5xx; 0 = 2, negative = none
	Context int           // tokens of the model's context; 0 = 8192
}

// Remote implements models.Generator.
type Remote struct {
	o     Options
	c     openai.Client
	score scorer
}

var (
	_ models.Generator   = (*Remote)(nil)
	_ models.TokenScorer = (*Remote)(nil)
)

// New makes a client; it sends nothing.
func New(o Options) (*Remote, error) {
	if o.BaseURL == "" || o.Model == "" {
		return nil, fmt.Errorf("an endpoint needs a base URL and a model name")
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.Retries == 0 {
		o.Retries = 2
	}
	if o.Context == 0 {
		o.Context = 8192
	}
	key := o.APIKey
	if key == "" {
		key = "none" // local servers ask for no key, the client for some value
	}
	return &Remote{o: o, c: openai.NewClient(option.WithBaseURL(o.BaseURL), option.WithAPIKey(key),
		option.WithMaxRetries(max(o.Retries, 0)), option.WithRequestTimeout(o.Timeout))}, nil
}

// Chat implements models.Generator.
func (r *Remote) Chat(ctx context.Context, messages []models.Message, opt models.GenerateOptions) (models.Completion, error) {
	if opt.MaxTokens == 0 {
		opt.MaxTokens = 512
	}
	p := openai.ChatCompletionNewParams{Model: r.o.Model, MaxTokens: openai.Int(int64(opt.MaxTokens)), Temperature: openai.Float(opt.Temperature)}
	for _, m := range messages {
		switch m.Role {
		case "system":
			p.Messages = append(p.Messages, openai.SystemMessage(m.Content))
		case "assistant":
			p.Messages = append(p.Messages, openai.AssistantMessage(m.Content))
		default:
			p.Messages = append(p.Messages, openai.UserMessage(m.Content))
		}
	}
	if opt.TopP > 0 {
		p.TopP = openai.Float(opt.TopP)
	}
	if opt.Temperature > 0 {
		p.Seed = openai.Int(int64(opt.Seed))
	}
	if len(opt.Stop) > 0 {
		p.Stop.OfStringArray = opt.Stop
	}
	if opt.Logprobs {
		p.Logprobs = openai.Bool(true)
	}
	if opt.OnToken != nil && !opt.Logprobs {
		return r.stream(ctx, p, opt.OnToken)
	}
	res, err := r.c.Chat.Completions.New(ctx, p)
	if err != nil {
		return models.Completion{}, r.explain(ctx, err)
	}
	if len(res.Choices) == 0 {
		return models.Completion{}, fmt.Errorf("%w: %s answered without a choice", ErrRefused, r.o.BaseURL)
	}
	ch := res.Choices[0]
	c := models.Completion{Text: ch.Message.Content, FinishReason: string(ch.FinishReason), Model: res.Model,
		PromptTokens: int(res.Usage.PromptTokens), NewTokens: int(res.Usage.CompletionTokens)}
	for _, t := range ch.Logprobs.Content {
		c.Logprobs = append(c.Logprobs, t.Logprob)
	}
	if opt.OnToken != nil {
		opt.OnToken(c.Text)
	}
	return c, nil
}

func (r *Remote) stream(ctx context.Context, p openai.ChatCompletionNewParams, on func(string)) (models.Completion, error) {
	s := r.c.Chat.Completions.NewStreaming(ctx, p)
	defer s.Close()
	c := models.Completion{Model: r.o.Model}
	for s.Next() {
		chunk := s.Current()
		if chunk.Model != "" {
			c.Model = chunk.Model
		}
		for _, ch := range chunk.Choices {
			if ch.Delta.Content != "" {
				c.Text += ch.Delta.Content
				c.NewTokens++
				on(ch.Delta.Content)
			}
			if ch.FinishReason != "" {
				c.FinishReason = ch.FinishReason
			}
		}
	}
	if err := s.Err(); err != nil {
		return c, r.explain(ctx, err)
	}
	if c.FinishReason == "" {
		return c, fmt.Errorf("%w: the answer of %s was cut", ErrUnavailable, r.o.BaseURL)
	}
	return c, nil
}

// explain says what failed without repeating the prompt.
func (r *Remote) explain(ctx context.Context, err error) error {
	if cerr := ctx.Err(); cerr != nil {
		return cerr
	}
	var api *openai.Error
	if errors.As(err, &api) {
		kind := ErrRefused
		if api.StatusCode == 429 || api.StatusCode >= 500 {
			kind = ErrUnavailable
		}
		return fmt.Errorf("%w: %s answered %d: %s", kind, r.o.BaseURL, api.StatusCode, api.Message)
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %s did not answer within %s", ErrUnavailable, r.o.BaseURL, r.o.Timeout)
	}
	return fmt.Errorf("%w: %s: %v", ErrUnavailable, r.o.BaseURL, err)
}

// CountTokens estimates: four bytes a token and a few for each message.
func (r *Remote) CountTokens(messages []models.Message) (int, bool) {
	n := 0
	for _, m := range messages {
		n += len(m.Content)/4 + 8
	}
	return n, false
}

// ContextLength implements models.Generator.
func (r *Remote) ContextLength() int { return r.o.Context }

// Name implements models.Generator.
func (r *Remote) Name() string { return r.o.Model }

// Close implements models.Generator.
func (r *Remote) Close() error { return nil }
