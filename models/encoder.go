package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"rag2/models/bert"
	"rag2/models/tokenizer"
	"rag2/tensor"
)

// ErrZeroVector reports an embedding without direction.
var ErrZeroVector = errors.New("embedding is the zero vector")

// ErrNotFinite reports NaN or infinity where the network should give numbers.
var ErrNotFinite = errors.New("not a finite number")

// A single text takes at least [CLS], one token and [SEP]; a pair one more [SEP].
const (
	minSingleTokens = 3
	minPairTokens   = 5
)

// EncoderSpec says which networks make the two sides of a bi-encoder.
type EncoderSpec struct {
	QueryDir   string // directory of the query encoder
	ArticleDir string // directory of the article encoder; "" = QueryDir (one tower)
	// Pooling is "cls", "mean", or "" to follow 1_Pooling/config.json of a
	// sentence-transformers model, and CLS without one.
	Pooling string
	// Normalize scales vectors to unit length: "yes", "no", or "" to follow
	// modules.json of a sentence-transformers model, and no without one (MedCPT's
	// vectors are compared as they are).
	Normalize     string
	QueryTokens   int // limit per query, special tokens included; 0 = 512
	ArticleTokens int // limit per article; 0 = 512
	// PairArticles encodes an article as the sentence pair [title, body], as MedCPT
	// was trained; without a title the pair is ["", body]. Otherwise title and body
	// are one text: see JoinTitle.
	PairArticles bool
	BatchTokens  int // padded tokens per batch; 0 = 4096
	// Devices of the engine that batches are spread over, each with a copy of the weights;
	// 0 = 1.
	Devices int
}

// Validate lists everything that is wrong with the spec.
func (s EncoderSpec) Validate() error {
	var errs []error
	if s.QueryDir == "" {
		errs = append(errs, errors.New("no directory of the query encoder"))
	}
	if s.Pooling != "" && s.Pooling != "cls" && s.Pooling != "mean" {
		errs = append(errs, fmt.Errorf("pooling %q; cls or mean", s.Pooling))
	}
	if s.Normalize != "" && s.Normalize != "yes" && s.Normalize != "no" {
		errs = append(errs, fmt.Errorf("normalize %q; yes or no", s.Normalize))
	}
	if s.QueryTokens != 0 && s.QueryTokens < minSingleTokens {
		errs = append(errs, fmt.Errorf("a limit of %d tokens per query; at least %d", s.QueryTokens, minSingleTokens))
	}
	least := minSingleTokens
	if s.PairArticles {
		least = minPairTokens
	}
	if s.ArticleTokens != 0 && s.ArticleTokens < least {
		errs = append(errs, fmt.Errorf("a limit of %d tokens per article; at least %d", s.ArticleTokens, least))
	}
	if s.BatchTokens < 0 {
		errs = append(errs, fmt.Errorf("batches of %d tokens", s.BatchTokens))
	}
	if s.Devices < 0 {
		errs = append(errs, fmt.Errorf("%d devices", s.Devices))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("encoder: %w", err)
	}
	return nil
}

// JoinTitle is the text of an article for encoders that take one text: "title. body",
// without a second full stop after a title that ends a sentence itself; the one that
// is not empty when the other is.
func JoinTitle(title, body string) string {
	title, body = strings.TrimSpace(title), strings.TrimSpace(body)
	if title == "" || body == "" {
		return title + body
	}
	if last, _ := utf8.DecodeLastRuneInString(title); strings.ContainsRune(".?!…:", last) {
		return title + " " + body
	}
	return title + ". " + body
}

// BiEncoder implements Encoder with one or two BERT networks.
type BiEncoder struct {
	spec             EncoderSpec
	query, article   *bert.Model
	queryT, articleT tokenizer.Tokenizer
	fingerprint      string
}

var _ Encoder = (*BiEncoder)(nil)

// OpenEncoder loads a bi-encoder onto an engine. registry.Store.EncoderSpec makes specs of known
// models.
func OpenEncoder(e *tensor.Engine, spec EncoderSpec) (*BiEncoder, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.ArticleDir == "" {
		spec.ArticleDir = spec.QueryDir
	}
	if spec.QueryTokens == 0 {
		spec.QueryTokens = 512
	}
	if spec.ArticleTokens == 0 {
		spec.ArticleTokens = 512
	}
	if spec.BatchTokens == 0 {
		spec.BatchTokens = defaultBatchTokens
	}
	if spec.Devices == 0 {
		spec.Devices = 1
	}
	if n := e.Devices(); spec.Devices > n {
		return nil, fmt.Errorf("encoder: %d devices, engine %s has %d", spec.Devices, e.Name(), n)
	}
	head, err := pooling(spec)
	if err != nil {
		return nil, err
	}
	spec.Pooling = string(head)
	if spec.Normalize == "" {
		if spec.Normalize, err = normalized(spec.QueryDir); err != nil {
			return nil, err
		}
	}
	b := &BiEncoder{spec: spec}
	if b.query, b.queryT, err = openBERT(e, spec.QueryDir, head, spec.PairArticles && spec.ArticleDir == spec.QueryDir); err != nil {
		return nil, err
	}
	b.article, b.articleT = b.query, b.queryT
	if spec.ArticleDir != spec.QueryDir {
		if b.article, b.articleT, err = openBERT(e, spec.ArticleDir, head, spec.PairArticles); err != nil {
			b.query.Close()
			return nil, err
		}
		if b.article.Out() != b.query.Out() {
			b.Close()
			return nil, fmt.Errorf("query encoder has %d dimensions, article encoder %d", b.query.Out(), b.article.Out())
		}
	}
	b.spec.QueryTokens = min(b.spec.QueryTokens, b.query.Config.Positions)
	b.spec.ArticleTokens = min(b.spec.ArticleTokens, b.article.Config.Positions)
	// Only what changes article vectors is part of the fingerprint of an index.
	dirs := []string{spec.QueryDir, spec.ArticleDir}
	if b.fingerprint, err = fingerprint(dirs, "encoder", spec.Pooling, "normalize "+spec.Normalize, fmt.Sprint(b.spec.ArticleTokens), fmt.Sprint(spec.PairArticles)); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// pooling follows the spec, or the sentence-transformers file of the query encoder.
func pooling(spec EncoderSpec) (bert.Head, error) {
	if spec.Pooling != "" {
		return bert.Head(spec.Pooling), nil
	}
	b, err := os.ReadFile(filepath.Join(spec.QueryDir, "1_Pooling", "config.json"))
	if errors.Is(err, os.ErrNotExist) {
		return bert.CLS, nil
	}
	var p struct {
		CLS  bool `json:"pooling_mode_cls_token"`
		Mean bool `json:"pooling_mode_mean_tokens"`
	}
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("pooling of %s: %w", spec.QueryDir, err)
	case p.Mean && !p.CLS:
		return bert.Mean, nil
	case p.CLS && !p.Mean:
		return bert.CLS, nil
	}
	return "", fmt.Errorf("pooling of %s: 1_Pooling/config.json asks for neither cls nor mean alone", spec.QueryDir)
}

// normalized says whether modules.json of a sentence-transformers model ends with
// unit vectors.
func normalized(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "modules.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "no", nil
	}
	var modules []struct{ Type string }
	if err == nil {
		err = json.Unmarshal(b, &modules)
	}
	if err != nil {
		return "", fmt.Errorf("%s/modules.json: %w", dir, err)
	}
	for _, m := range modules {
		if strings.HasSuffix(m.Type, ".Normalize") {
			return "yes", nil
		}
	}
	return "no", nil
}

// openBERT loads a network and its tokenizer and checks that they fit each other;
// pairs says that a second token type will be used.
func openBERT(e *tensor.Engine, dir string, head bert.Head, pairs bool) (*bert.Model, tokenizer.Tokenizer, error) {
	t, err := tokenizer.Load(dir)
	if err != nil {
		return nil, nil, err
	}
	m, err := bert.Open(e, dir, head)
	if err != nil {
		return nil, nil, err
	}
	if err := fits(m, t, dir, pairs); err != nil {
		m.Close()
		return nil, nil, err
	}
	return m, t, nil
}

// fits tells whether a model can read what its tokenizer gives.
func fits(m *bert.Model, t tokenizer.Tokenizer, dir string, pairs bool) error {
	if t.VocabSize() > m.Config.Vocab {
		return fmt.Errorf("%s: the tokenizer has %d tokens, the model %d", dir, t.VocabSize(), m.Config.Vocab)
	}
	if pairs && m.Config.Types < 2 {
		return fmt.Errorf("%s: the model has one token type and cannot read pairs", dir)
	}
	return nil
}

// Dim implements Encoder.
func (b *BiEncoder) Dim() int { return b.query.Out() }

// Fingerprint implements Encoder.
func (b *BiEncoder) Fingerprint() string { return b.fingerprint }

// EncodeQueries implements Encoder.
func (b *BiEncoder) EncodeQueries(ctx context.Context, queries []string) ([][]float32, Report, error) {
	encs := make([]tokenizer.Encoding, len(queries))
	for i, q := range queries {
		encs[i] = b.queryT.EncodeSingle(q, b.spec.QueryTokens)
	}
	return b.encode(ctx, b.query, encs, "query")
}

// EncodeArticles implements Encoder.
func (b *BiEncoder) EncodeArticles(ctx context.Context, articles []Article) ([][]float32, Report, error) {
	encs := make([]tokenizer.Encoding, len(articles))
	for i, a := range articles {
		if b.spec.PairArticles {
			encs[i] = b.articleT.EncodePair(a.Title, a.Body, b.spec.ArticleTokens)
			continue
		}
		encs[i] = b.articleT.EncodeSingle(JoinTitle(a.Title, a.Body), b.spec.ArticleTokens)
	}
	return b.encode(ctx, b.article, encs, "article")
}

func (b *BiEncoder) encode(ctx context.Context, m *bert.Model, encs []tokenizer.Encoding, what string) ([][]float32, Report, error) {
	rows, err := forward(ctx, m, encs, b.spec.BatchTokens, b.spec.Devices)
	if err != nil {
		return nil, Report{}, fmt.Errorf("encode %s: %w", what, err)
	}
	for i, r := range rows {
		sum := 0.0
		for _, v := range r {
			sum += float64(v) * float64(v)
		}
		if sum == 0 {
			return nil, Report{}, fmt.Errorf("encode %s %d: %w", what, i, ErrZeroVector)
		}
		if b.spec.Normalize == "yes" {
			scale := 1 / math.Sqrt(sum)
			for j, v := range r {
				r[j] = float32(float64(v) * scale)
			}
		}
	}
	return rows, report(encs), nil
}

// Compilations counts the graphs compiled so far, of both networks.
func (b *BiEncoder) Compilations() int {
	n := b.query.Compilations()
	if b.article != b.query {
		n += b.article.Compilations()
	}
	return n
}

// Spec is the spec with its defaults filled in.
func (b *BiEncoder) Spec() EncoderSpec { return b.spec }

// Close frees both networks; it waits for running calls.
func (b *BiEncoder) Close() error {
	if b.article != nil && b.article != b.query {
		b.article.Close()
	}
	b.query.Close()
	return nil
}
