package pipeline

import (
	"time"

	"rag2/models"
)

// timer measures a stage.
type timer time.Time

func startTimer() timer     { return timer(time.Now()) }
func (t timer) ms() float64 { return float64(time.Since(time.Time(t)).Microseconds()) / 1000 }

// Stage names, in the order they run.
const (
	StageRationale = "rationale"
	StageEncode    = "encode"
	StageRetrieve  = "retrieve"
	StageRerank    = "rerank"
	StageFilter    = "filter"
	StageAnswer    = "answer"
	StageCite      = "cite"
)

// StageTrace is one stage's account.
type StageTrace struct {
	Name    string  `json:"stage"`
	Skipped string  `json:"skipped,omitempty"` // why it did not run
	Model   string  `json:"model,omitempty"`
	Millis  float64 `json:"ms"`
	In      int     `json:"in"`  // snippets, or prompt tokens of a generation
	Out     int     `json:"out"` // snippets, or new tokens
	Cut     int     `json:"truncated,omitempty"`
	Note    string  `json:"note,omitempty"`
}

// Snippet is a retrieved passage on its way through the stages.
type Snippet struct {
	N          int             `json:"n,omitempty"` // its number in the answer prompt, 1-based; 0 = not kept
	ID         string          `json:"id"`
	Corpus     string          `json:"corpus"`
	Doc        string          `json:"doc"`
	Title      string          `json:"title,omitempty"`
	Text       string          `json:"text"`
	Section    string          `json:"section,omitempty"`
	Journal    string          `json:"journal,omitempty"`
	Year       int             `json:"year,omitempty"`
	URL        string          `json:"url,omitempty"`
	Retrieval  float32         `json:"retrieval_score"` // inner product
	CorpusRank int             `json:"corpus_rank"`     // 1-based, within its corpus
	Rerank     *float32        `json:"rerank_score,omitempty"`
	Verdict    *models.Verdict `json:"verdict,omitempty"`
	Dropped    string          `json:"dropped,omitempty"` // by which stage and why
}

// Trace is the whole course of one question.
type Trace struct {
	Settings   Options           `json:"settings"`
	Prompts    string            `json:"prompts"` // hash of the templates
	Models     map[string]string `json:"models"`  // role → name or fingerprint
	Rationale  string            `json:"rationale,omitempty"`
	RationaleQ string            `json:"rationale_option,omitempty"`
	Query      string            `json:"query"`
	QueryKind  string            `json:"query_kind"`
	Corpora    []CorpusTrace     `json:"corpora"`
	Snippets   []Snippet         `json:"snippets"` // all that were retrieved, kept ones first
	Stages     []StageTrace      `json:"stages"`
	Millis     float64           `json:"ms"`
}
