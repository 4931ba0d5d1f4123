package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"rag2/pipeline/home"
)

// Query kinds: what is searched for.
const (
	QueryRationale         = "rationale"          // the model's explanation
	QueryQuestion          = "question"           // the stem with its options
	QueryQuestionRationale = "question+rationale" // both
	QueryDoc               = "query2doc"          // the question and a passage written by the model (Wang et al., 2023)
)

// Answer modes: how the option is found.
const (
	AnswerText    = "text"    // the model writes an answer, the option is extracted
	AnswerLogprob = "logprob" // the options are scored by their log-probabilities
)

// Options steer Ask. They are echoed into the trace.
type Options struct {
	K          int `json:"final_k"`      // snippets kept after ranking; 0 = 8
	PerCorpusK int `json:"per_corpus_k"` // passages asked of every corpus; 0 = by Preset
	// Preset sets PerCorpusK: "paper" asks max(1, ⌈k/corpora⌉) of each so that the pool
	// is about k, "authors" asks k of each, as their code does. "" = paper.
	Preset      string `json:"preset"`
	Query       string `json:"query"`        // query kind; "" = rationale
	RerankQuery string `json:"rerank_query"` // "question" (the paper) or "rationale" (the authors' code); "" = question
	// RerankRetrieval is the weight of the retrieval score in RerankScore; 0 = the
	// cross-encoder alone, as in the method.
	RerankRetrieval float64 `json:"rerank_retrieval"`
	Mode            string  `json:"answer_mode"` // "" = text
	// Extraction is "strict" (nothing found = unanswered) or "mirage" (MIRAGE's rule,
	// which guesses A); "" = strict.
	Extraction string `json:"extraction"`
	// KeepBest keeps the best-ranked snippet when the filter drops all.
	KeepBest bool `json:"keep_best"`
	// Threshold is the probability of HELPFUL from which the filter keeps a snippet; 0 = 0.5.
	Threshold float64 `json:"filter_threshold"`
	// Attribution is the least cosine between a sentence and a snippet that makes a
	// citation where the model gave none; 0 = 0.6, negative = no attribution.
	Attribution     float64 `json:"attribution_threshold"`
	RationaleTokens int     `json:"rationale_tokens"` // new tokens at most; 0 = 512
	AnswerTokens    int     `json:"answer_tokens"`    // 0 = 512
	Exact           bool    `json:"exact"`            // exact search instead of the graph
	Ef              int     `json:"ef"`               // width of the graph search; 0 = the index's own
	// Only says which passages may be found.
	Only home.Filter `json:"only,omitzero"`
}

// Defaults fills what is zero. corpora is the number of corpora that are asked.
func (o Options) Defaults(corpora int) (Options, error) {
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	num := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.Preset, "paper")
	def(&o.Query, QueryRationale)
	def(&o.RerankQuery, "question")
	def(&o.Mode, AnswerText)
	def(&o.Extraction, "strict")
	num(&o.K, 8)
	num(&o.RationaleTokens, 512)
	num(&o.AnswerTokens, 512)
	if o.Threshold == 0 {
		o.Threshold = 0.5
	}
	if o.Attribution == 0 {
		o.Attribution = 0.6
	}
	var errs []error
	among := func(name, v string, all ...string) {
		if !slices.Contains(all, v) {
			errs = append(errs, fmt.Errorf("%s %q; one of %q", name, v, all))
		}
	}
	among("preset", o.Preset, "paper", "authors")
	among("query kind", o.Query, QueryRationale, QueryQuestion, QueryQuestionRationale, QueryDoc)
	among("rerank query", o.RerankQuery, "question", "rationale")
	among("answer mode", o.Mode, AnswerText, AnswerLogprob)
	among("extraction", o.Extraction, "strict", "mirage")
	for name, v := range map[string]int{"k": o.K, "per-corpus k": o.PerCorpusK, "rationale tokens": o.RationaleTokens, "answer tokens": o.AnswerTokens, "ef": o.Ef} {
		if v < 0 || v > 1_000_000 {
			errs = append(errs, fmt.Errorf("%s is %d", name, v))
		}
	}
	if !(o.Attribution <= 1) {
		errs = append(errs, fmt.Errorf("attribution threshold %g; a cosine is at most 1", o.Attribution))
	}
	if !(o.Threshold > 0 && o.Threshold <= 1) {
		errs = append(errs, fmt.Errorf("filter threshold %g; a probability above 0", o.Threshold))
	}
	if !(o.RerankRetrieval >= 0 && o.RerankRetrieval <= 1e6) {
		errs = append(errs, fmt.Errorf("weight %g of the retrieval score; 0 to 1e6 is possible", o.RerankRetrieval))
	}
	if f := o.Only; f.FromYear < 0 || f.ToYear < 0 || f.ToYear > 0 && f.FromYear > f.ToYear {
		errs = append(errs, fmt.Errorf("years %d to %d", f.FromYear, f.ToYear))
	}
	if err := errors.Join(errs...); err != nil {
		return o, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if o.PerCorpusK == 0 {
		o.PerCorpusK = o.K
		if o.Preset == "paper" {
			o.PerCorpusK = max(1, (o.K+corpora-1)/max(1, corpora))
		}
	}
	return o, nil
}

// ErrOptions reports settings that contradict themselves.
var ErrOptions = errors.New("invalid settings")
