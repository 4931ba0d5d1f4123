package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rag2/models"
)

// ErrNoScores reports a server that cannot give the log-probabilities of given text; the
// error says what it lacks.
var ErrNoScores = errors.New("language model server cannot score given text")

// scorer is how a server scores, found once by probing.
type scorer struct {
	mu     sync.Mutex
	known  bool
	err    error
	tokens bool // the server has /tokenize for messages (vLLM): prompts are sent as ids
	plain  bool // /tokenize takes content (llama.cpp) rather than prompt
	shape  string
	zero   bool // max_tokens 0 is taken
}

// Shapes of requests, in the order in which they are tried.
const (
	shapePrompt = "prompt_logprobs" // vLLM
	shapeEcho   = "echo"            // OpenAI's old completions: vLLM, llama.cpp
)

// maxBody bounds an answer.
const maxBody = 64 << 20

// post sends JSON to a path below BaseURL, or below its parent for a path that begins
// with "../". Errors hold what the server says and never the request.
func (r *Remote) post(ctx context.Context, path string, body, into any) (status int, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	base := strings.TrimSuffix(r.o.BaseURL, "/")
	if rest, up := strings.CutPrefix(path, "../"); up {
		base, path = strings.TrimSuffix(base, "/v1"), rest
	}
	for try := 0; ; try++ {
		status, err = r.postOnce(ctx, base+"/"+path, b, into)
		if err == nil || !errors.Is(err, ErrUnavailable) || try >= max(r.o.Retries, 0) {
			return status, err
		}
		select {
		case <-ctx.Done():
			return status, ctx.Err()
		case <-time.After(time.Duration(200<<try) * time.Millisecond):
		}
	}
}

func (r *Remote) postOnce(ctx context.Context, url string, b []byte, into any) (int, error) {
	ctx2, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx2, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.o.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+r.o.APIKey)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, r.explain(ctx, err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return res.StatusCode, fmt.Errorf("%w: the answer of %s was cut", ErrUnavailable, r.o.BaseURL)
	}
	if res.StatusCode != http.StatusOK {
		var e struct {
			Error   json.RawMessage `json:"error"`
			Message string          `json:"message"`
		}
		_ = json.Unmarshal(out, &e)
		kind := ErrRefused
		if res.StatusCode == 429 || res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented {
			kind = ErrUnavailable
		}
		return res.StatusCode, fmt.Errorf("%w: %s answered %d: %s", kind, r.o.BaseURL, res.StatusCode, shorten(e.Message+string(e.Error)))
	}
	if err := json.Unmarshal(out, into); err != nil {
		return res.StatusCode, fmt.Errorf("%w: %s answered what is no JSON of the expected form", ErrRefused, r.o.BaseURL)
	}
	return res.StatusCode, nil
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return s
}

// tokenLogprob is a prompt token; LP is nil for the first one.
type tokenLogprob struct {
	Text string
	LP   *float64
}

// completion is the part of an answer that holds log-probabilities, in any of the
// shapes that servers use.
type completion struct {
	Choices []struct {
		Logprobs *struct {
			Tokens   []string   `json:"tokens"`
			Logprobs []*float64 `json:"token_logprobs"`
			Content  []struct { // the chat shape
				Token   string   `json:"token"`
				Logprob *float64 `json:"logprob"`
			} `json:"content"`
		} `json:"logprobs"`
		Prompt []json.RawMessage `json:"prompt_logprobs"`
	} `json:"choices"`
	Prompt []json.RawMessage `json:"prompt_logprobs"`
	Usage  struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
}

// prompt gives the tokens of the prompt ids; those that were generated behind them are dropped.
func (c *completion) prompt(zero bool, ids []int) ([]tokenLogprob, error) {
	if len(c.Choices) == 0 {
		return nil, errors.New("the answer has no choice")
	}
	ch := c.Choices[0]
	raw := ch.Prompt
	if raw == nil {
		raw = c.Prompt
	}
	var out []tokenLogprob
	switch {
	case raw != nil:
		if len(raw) != len(ids) {
			return nil, fmt.Errorf("log-probabilities of %d tokens for a prompt of %d", len(raw), len(ids))
		}
		for i, e := range raw {
			t, err := vllmToken(e, ids[i])
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		}
		return out, nil
	case ch.Logprobs == nil:
		return nil, errors.New("the answer has no log-probabilities")
	case len(ch.Logprobs.Content) > 0:
		for _, t := range ch.Logprobs.Content {
			out = append(out, tokenLogprob{t.Token, t.Logprob})
		}
	default:
		if len(ch.Logprobs.Tokens) != len(ch.Logprobs.Logprobs) {
			return nil, errors.New("tokens and log-probabilities differ in number")
		}
		for i, t := range ch.Logprobs.Tokens {
			out = append(out, tokenLogprob{t, ch.Logprobs.Logprobs[i]})
		}
	}
	n := c.Usage.Prompt
	if n == 0 { // not told: one token was generated, or none
		if n = len(out); !zero {
			n--
		}
	}
	if n < 1 || n > len(out) || n == len(out) && !zero && c.Usage.Completion > 0 {
		return nil, fmt.Errorf("log-probabilities of %d tokens for a prompt of %d: the prompt is not echoed", len(out), n)
	}
	return out[:n], nil
}

// vllmToken reads an entry of prompt_logprobs: null, or {id: {logprob, rank,
// decoded_token}} with the prompt's token and, from servers that give more than was asked
// for, likelier ones in any order.
func vllmToken(raw json.RawMessage, id int) (t tokenLogprob, err error) {
	var all map[string]struct {
		Logprob *float64 `json:"logprob"`
		Text    string   `json:"decoded_token"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return t, fmt.Errorf("prompt_logprobs: neither null nor an object of tokens: %w", err)
	}
	if all == nil {
		return t, nil
	}
	v, ok := all[strconv.Itoa(id)]
	if !ok {
		return t, fmt.Errorf("prompt_logprobs: %d tokens, but not the prompt's own (id %d)", len(all), id)
	}
	return tokenLogprob{v.Text, v.Logprob}, nil
}

// complete scores a prompt of ids by the chosen shape.
func (r *Remote) complete(ctx context.Context, s *scorer, ids []int) ([]tokenLogprob, int, error) {
	body := map[string]any{"model": r.o.Model, "prompt": ids, "temperature": 0, "max_tokens": 1}
	if s.zero {
		body["max_tokens"] = 0
	}
	if s.shape == shapeEcho {
		body["echo"], body["logprobs"] = true, 1
	} else {
		body["prompt_logprobs"] = 0
	}
	var c completion
	status, err := r.post(ctx, "completions", body, &c)
	if err != nil {
		return nil, status, err
	}
	ts, err := c.prompt(s.zero, ids)
	if err == nil && len(ts) != len(ids) {
		err = fmt.Errorf("log-probabilities of %d tokens for a prompt of %d", len(ts), len(ids))
	}
	return ts, status, err
}

// tokenize gives ids of a chat prompt with the assistant's turn opened, or of plain text.
func (r *Remote) tokenize(ctx context.Context, s *scorer, messages []models.Message, text string) ([]int, error) {
	var out struct {
		Tokens []int `json:"tokens"`
	}
	body := map[string]any{"model": r.o.Model}
	switch {
	case messages != nil && s.tokens:
		body["messages"], body["add_generation_prompt"] = messages, true
	case messages != nil:
		var t struct {
			Prompt string `json:"prompt"`
		}
		if _, err := r.post(ctx, "../apply-template", map[string]any{"messages": messages}, &t); err != nil {
			return nil, err
		}
		body["content"], body["add_special"], body["parse_special"] = t.Prompt, true, true
	case s.plain:
		body["content"], body["add_special"] = text, false
	default:
		body["prompt"], body["add_special_tokens"] = text, false
	}
	if _, err := r.post(ctx, "../tokenize", body, &out); err != nil {
		return nil, err
	}
	if len(out.Tokens) == 0 {
		return nil, fmt.Errorf("%w: %s/tokenize gave no ids", ErrRefused, r.o.BaseURL)
	}
	return out.Tokens, nil
}

// ProbeScores asks the server once whether and how it can score; the answer is kept,
// unless the server was not available. A server that cannot is ErrNoScores with what each attempt met.
func (r *Remote) ProbeScores(ctx context.Context) error {
	s := &r.score
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		s.err = r.probe(ctx, s)
		s.known = s.err == nil || errors.Is(s.err, ErrNoScores)
	}
	return s.err
}

func (r *Remote) probe(ctx context.Context, s *scorer) error {
	hello := []models.Message{{Role: "user", Content: "Hello"}}
	var why []string
	refused := func(what string, err error) error {
		if cerr := ctx.Err(); cerr != nil {
			return cerr
		}
		if errors.Is(err, ErrUnavailable) {
			return err // says nothing about what the server can do
		}
		why = append(why, what+": "+err.Error())
		return nil
	}
	s.tokens = true
	prompt, err := r.tokenize(ctx, s, hello, "")
	if err != nil {
		if err := refused("/tokenize of messages (vLLM)", err); err != nil {
			return err
		}
		s.tokens, s.plain = false, true
		if prompt, err = r.tokenize(ctx, s, hello, ""); err != nil {
			if err := refused("/apply-template and /tokenize (llama.cpp)", err); err != nil {
				return err
			}
			return fmt.Errorf("%w: %s gives no ids of a chat prompt: %s", ErrNoScores, r.o.BaseURL, strings.Join(why, "; "))
		}
	}
	text, err := r.tokenize(ctx, s, nil, "Hello, world.")
	if err != nil {
		if err := refused("/tokenize of text", err); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s", ErrNoScores, strings.Join(why, "; "))
	}
	all := append(slices.Clone(prompt), text...)
	for _, s.shape = range []string{shapePrompt, shapeEcho} {
		for _, s.zero = range []bool{true, false} {
			ts, status, err := r.complete(ctx, s, all)
			if err == nil {
				err = checked(ts, len(prompt))
			}
			if err == nil {
				return nil
			}
			if err := refused(fmt.Sprintf("completions with %s, max_tokens %d", s.shape, map[bool]int{true: 0, false: 1}[s.zero]), err); err != nil {
				return err
			}
			if status == http.StatusNotFound {
				break
			}
		}
	}
	return fmt.Errorf("%w: %s: %s", ErrNoScores, r.o.BaseURL, strings.Join(why, "; "))
}

// checked refuses log-probabilities that are none; the first token of all has none.
func checked(ts []tokenLogprob, from int) error {
	if from < 1 || from >= len(ts) {
		return errors.New("no token to score")
	}
	for i, t := range ts[from:] {
		if t.LP == nil || math.IsNaN(*t.LP) || *t.LP > 1e-3 {
			return fmt.Errorf("token %d has no log-probability", from+i)
		}
	}
	return nil
}

// ScoreContinuation implements models.TokenScorer. Prompt and continuation are tokenised
// apart, so that the continuation's ids are the same behind every prompt.
func (r *Remote) ScoreContinuation(ctx context.Context, messages []models.Message, continuation string) ([]int, []float64, error) {
	return r.scoreIDs(ctx, messages, continuation)
}

func (r *Remote) scoreIDs(ctx context.Context, messages []models.Message, continuation string) ([]int, []float64, error) {
	if err := r.ProbeScores(ctx); err != nil {
		return nil, nil, err
	}
	if continuation == "" {
		return nil, nil, errors.New("score: the continuation is empty")
	}
	s := &r.score
	prompt, err := r.tokenize(ctx, s, messages, "")
	if err != nil {
		return nil, nil, err
	}
	text, err := r.tokenize(ctx, s, nil, continuation)
	if err != nil {
		return nil, nil, err
	}
	if n := len(prompt) + len(text); n >= r.o.Context {
		return nil, nil, fmt.Errorf("%w: %d tokens of %d", models.ErrContext, n, r.o.Context)
	}
	ts, _, err := r.complete(ctx, s, append(slices.Clone(prompt), text...))
	if err == nil {
		err = checked(ts, len(prompt))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("score: %w", err)
	}
	lp := make([]float64, len(text))
	for i, t := range ts[len(prompt):] {
		lp[i] = *t.LP
	}
	return text, lp, nil
}
