package models

import "context"

// Article is what a bi-encoder embeds on the document side: MedCPT takes the
// pair [title, body]; a passage without a title is the pair ["", body].
type Article struct {
	Title, Body string
}

// Report counts what happened to the inputs of one call.
type Report struct {
	Tokens    int // tokens fed to the network, special tokens included, padding excluded
	Truncated int // inputs that lost tokens to the length limit
}

// Encoder maps texts to vectors, of unit length only where the model asks for it. Rows of the
// result are in input order. A zero, NaN or infinite vector is an error.
type Encoder interface {
	Dim() int
	EncodeQueries(ctx context.Context, queries []string) ([][]float32, Report, error)
	EncodeArticles(ctx context.Context, articles []Article) ([][]float32, Report, error)
	// Fingerprint identifies weights, pooling and lengths; it is stored beside
	// the vectors and compared when an index is opened.
	Fingerprint() string
	Close() error
}

// CrossEncoder scores (query, text) pairs. Scores are raw logits: order by
// them, never threshold them.
type CrossEncoder interface {
	Score(ctx context.Context, query string, texts []string) ([]float32, Report, error)
	Fingerprint() string
	Close() error
}

// Verdict is a filter's judgement of one snippet.
type Verdict struct {
	Helpful bool    `json:"helpful"`
	P       float64 `json:"p_helpful"` // softmax over the two label logits
}

// Filter judges each snippet alone against the question (stem and options
// already rendered by the caller).
type Filter interface {
	Judge(ctx context.Context, question string, snippets []string) ([]Verdict, Report, error)
	Fingerprint() string
	Close() error
}

// Message is one turn of a chat.
type Message struct {
	Role    string `json:"role"` // "system", "user", "assistant"
	Content string `json:"content"`
}

// GenerateOptions steer decoding. The zero value is greedy, the model's own
// stop tokens, and at most 512 new tokens.
type GenerateOptions struct {
	MaxTokens   int               // 0 = 512
	Temperature float64           // 0 = greedy
	TopP        float64           // 0 = 1
	Seed        uint64            // used when Temperature > 0
	Stop        []string          // generation ends before any of these
	Logprobs    bool              // fill Completion.Logprobs
	OnToken     func(text string) // streaming; called from the generating goroutine
}

// Completion is a generator's answer.
type Completion struct {
	Text         string
	Tokens       []int     // nil for remote models
	Logprobs     []float64 // natural log, one per token, when asked for and available
	FinishReason string    // "stop", "length"
	PromptTokens int
	NewTokens    int
	Model        string
}

// Generator is a chat LLM: ours, or an OpenAI-compatible endpoint.
type Generator interface {
	Chat(ctx context.Context, messages []Message, opt GenerateOptions) (Completion, error)
	// CountTokens returns the prompt length of messages in the model's own
	// tokens, or an estimate with exact=false when the tokenizer is remote.
	CountTokens(messages []Message) (n int, exact bool)
	ContextLength() int // tokens; prompt and completion together
	Name() string
	Close() error
}

// TokenScorer is implemented by generators that can return the log-probability
// of given continuation tokens (perplexity labels, option scoring).
type TokenScorer interface {
	// ScoreContinuation returns log P(t_i | prompt, t_<i), natural log, for the
	// tokens of continuation appended after the rendered chat prompt (the
	// assistant turn opened). Tokenised once, at a fixed boundary.
	ScoreContinuation(ctx context.Context, messages []Message, continuation string) (tokens []int, logprobs []float64, err error)
}
