package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"rag2/models/chat"
	"rag2/models/llama"
	"rag2/models/tokenizer"
	"rag2/tensor"
	"rag2/tensor/simd"
)

// ErrContext reports a prompt that leaves no room in the model's context.
var ErrContext = errors.New("prompt does not fit the model's context")

// Llama implements Generator and TokenScorer with a network of the Llama family.
// Calls are served one at a time; a prompt that begins like the previous one
// reuses its key-value cache.
type Llama struct {
	fingerprint string
	name        string
	model       *llama.Model
	tok         tokenizer.Tokenizer
	template    *chat.Template
	stop        map[int32]bool
	context     int

	mu      sync.Mutex
	session *llama.Session
}

var (
	_ Generator   = (*Llama)(nil)
	_ TokenScorer = (*Llama)(nil)
)

// OpenGenerator loads a Hugging Face directory or a GGUF file (or a directory that
// holds one). maxContext lowers the model's context length (0 = the model's own).
func OpenGenerator(e *tensor.Engine, path string, maxContext int) (*Llama, error) {
	m, w, err := llama.Open(e, path)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	g := &Llama{name: filepath.Base(w.Path()), model: m, stop: map[int32]bool{}, context: m.Config.Context, session: m.NewSession()}
	if maxContext > 0 {
		g.context = min(g.context, maxContext)
	}
	if err := g.openVocabulary(path, w.Format() == "gguf", w.Path(), w.Meta()); err != nil {
		m.Close()
		return nil, err
	}
	return g, nil
}

func (g *Llama) openVocabulary(path string, gguf bool, file string, meta map[string]any) error {
	var source, bos, eos string
	var err error
	if gguf {
		if g.tok, err = tokenizer.FromGGUF(file, meta); err != nil {
			return err
		}
		source, _ = meta["tokenizer.chat_template"].(string)
		id := func(key string) string {
			if v, ok := meta[key].(uint32); ok {
				return g.tok.Token(int32(v))
			}
			return ""
		}
		bos, eos = id("tokenizer.ggml.bos_token_id"), id("tokenizer.ggml.eos_token_id")
	} else {
		if g.tok, err = tokenizer.Load(path); err != nil {
			return err
		}
		g.name = filepath.Base(path)
		if source, bos, eos, err = readTokenizerConfig(path); err != nil {
			return err
		}
	}
	if g.fingerprint, err = fingerprint([]string{path}, "generator", source); err != nil {
		return err
	}
	for _, s := range []string{eos, "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "</s>"} {
		if id, ok := g.tok.TokenID(s); ok && s != "" {
			g.stop[id] = true
		}
	}
	if g.tok.VocabSize() > g.model.Config.Vocab {
		return fmt.Errorf("%s: the tokenizer has %d tokens, the model %d", file, g.tok.VocabSize(), g.model.Config.Vocab)
	}
	if source == "" {
		return fmt.Errorf("%s: no chat template; instruction-tuned models carry one", file)
	}
	if g.template, err = chat.Parse(source, bos, eos); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// readTokenizerConfig reads the chat template and the names of the boundary tokens.
func readTokenizerConfig(dir string) (template, bos, eos string, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return "", "", "", fmt.Errorf("chat template: %w", err)
	}
	var j struct {
		Template json.RawMessage `json:"chat_template"`
		BOS      json.RawMessage `json:"bos_token"`
		EOS      json.RawMessage `json:"eos_token"`
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return "", "", "", fmt.Errorf("%s/tokenizer_config.json: %w", dir, err)
	}
	str := func(raw json.RawMessage) string {
		var s string
		var o struct{ Content string }
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
		_ = json.Unmarshal(raw, &o)
		return o.Content
	}
	template = str(j.Template)
	if t, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); err == nil {
		template = string(t)
	}
	return template, str(j.BOS), str(j.EOS), nil
}

// prompt renders messages and opens the assistant's turn.
func (g *Llama) prompt(messages []Message) ([]int32, error) {
	turns := make([]chat.Turn, len(messages))
	for i, m := range messages {
		turns[i] = chat.Turn{Role: m.Role, Content: m.Content}
	}
	parts, err := g.template.Render(turns)
	if err != nil {
		return nil, err
	}
	return chat.Encode(g.tok, parts), nil
}

// Chat implements Generator.
func (g *Llama) Chat(ctx context.Context, messages []Message, opt GenerateOptions) (Completion, error) {
	ids, err := g.prompt(messages)
	if err != nil {
		return Completion{}, err
	}
	if opt.MaxTokens == 0 {
		opt.MaxTokens = 512
	}
	c := Completion{Model: g.name, PromptTokens: len(ids), FinishReason: "length"}
	room := g.context - len(ids)
	if room < 1 {
		return c, fmt.Errorf("%w: %d tokens of %d", ErrContext, len(ids), g.context)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.session.Reuse(ids)
	logits, err := g.session.Feed(ctx, ids[n:])
	if err != nil {
		return c, err
	}
	d := g.decoding(c, opt, room)
	for !d.push(logits) {
		if logits, err = g.session.Feed(ctx, d.out[len(d.out)-1:]); err != nil {
			return d.c, err
		}
	}
	return d.c, nil
}

// decoding is the growing answer to one prompt.
type decoding struct {
	g       *Llama
	c       Completion
	opt     GenerateOptions
	limit   int // new tokens
	sampler *sampler
	out     []int32
	told    string // to OnToken
}

func (g *Llama) decoding(c Completion, opt GenerateOptions, room int) *decoding {
	return &decoding{g: g, c: c, opt: opt, limit: min(opt.MaxTokens, room), sampler: newSampler(opt)}
}

// push takes the logits behind the prompt and the last token, and adds a token. It
// tells whether the answer, c, is done.
func (d *decoding) push(logits []float32) bool {
	done := false
	if id, logp := d.sampler.next(logits); d.g.stop[id] {
		d.c.FinishReason, done = "stop", true
	} else {
		d.out = append(d.out, id)
		if d.opt.Logprobs {
			d.c.Logprobs = append(d.c.Logprobs, logp)
		}
		done = len(d.out) >= d.limit
	}
	if !done && len(d.opt.Stop) == 0 && d.opt.OnToken == nil {
		return false
	}
	full := d.g.tok.Decode(d.out)
	if cut := stopAt(full, d.opt.Stop); cut >= 0 {
		full, d.c.FinishReason, done = full[:cut], "stop", true
	}
	d.c.Text = full
	if d.opt.OnToken != nil {
		if safe := streamable(full, done); len(safe) > len(d.told) {
			d.opt.OnToken(safe[len(d.told):])
			d.told = safe
		}
	}
	if done {
		d.c.NewTokens = len(d.out)
		for _, id := range d.out {
			d.c.Tokens = append(d.c.Tokens, int(id))
		}
	}
	return done
}

// stopAt is the position of the first stop string in text, or -1.
func stopAt(text string, stop []string) int {
	at := -1
	for _, s := range stop {
		if i := strings.Index(text, s); s != "" && i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	return at
}

// streamable is the part of text whose last character is complete: decoding shows
// unfinished UTF-8 as U+FFFD.
func streamable(text string, done bool) string {
	if done {
		return text
	}
	return strings.TrimRight(text, string(utf8.RuneError))
}

// CountTokens implements Generator.
func (g *Llama) CountTokens(messages []Message) (int, bool) {
	ids, err := g.prompt(messages)
	if err != nil {
		return 0, false
	}
	return len(ids), true
}

// ContextLength implements Generator.
func (g *Llama) ContextLength() int { return g.context }

// Fingerprint identifies weights, vocabulary and chat template; Name is a folder's or file's.
func (g *Llama) Fingerprint() string { return g.fingerprint }

// Name implements Generator.
func (g *Llama) Name() string { return g.name }

// Close implements Generator.
func (g *Llama) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.session.Close()
	g.model.Close()
	return nil
}

// sampler chooses the next token.
type sampler struct {
	opt GenerateOptions
	rng *rand.Rand
	idx []int32
}

func newSampler(opt GenerateOptions) *sampler {
	return &sampler{opt: opt, rng: rand.New(rand.NewPCG(opt.Seed, 0x9e3779b97f4a7c15))}
}

// next returns a token and its log-probability under the unmodified distribution.
func (s *sampler) next(logits []float32) (int32, float64) {
	best := simd.ArgMax(logits)
	if s.opt.Temperature <= 0 {
		if !s.opt.Logprobs {
			return int32(best), 0
		}
		return int32(best), logProb(logits, best)
	}
	// Nucleus: the most probable tokens whose mass reaches TopP.
	t, top := s.opt.Temperature, float64(logits[best])
	if s.idx == nil {
		s.idx = make([]int32, len(logits))
	}
	for i := range s.idx {
		s.idx[i] = int32(i)
	}
	slices.SortFunc(s.idx, func(a, b int32) int {
		if logits[a] != logits[b] {
			if logits[a] > logits[b] {
				return -1
			}
			return 1
		}
		return int(a - b)
	})
	total := 0.0
	for _, i := range s.idx {
		total += math.Exp((float64(logits[i]) - top) / t)
	}
	limit := total
	if s.opt.TopP > 0 && s.opt.TopP < 1 {
		limit = s.opt.TopP * total
	}
	mass, n := 0.0, 0
	for n < len(s.idx) && mass < limit {
		mass += math.Exp((float64(logits[s.idx[n]]) - top) / t)
		n++
	}
	u := s.rng.Float64() * mass
	for _, i := range s.idx[:n] {
		if u -= math.Exp((float64(logits[i]) - top) / t); u < 0 {
			return i, logProb(logits, int(i))
		}
	}
	i := s.idx[max(n-1, 0)]
	return i, logProb(logits, int(i))
}

// logProb is the log-softmax of logits at i.
func logProb(logits []float32, i int) float64 {
	top := slices.Max(logits)
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v - top))
	}
	return float64(logits[i]-top) - math.Log(sum)
}
