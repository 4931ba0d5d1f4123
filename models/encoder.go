package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"rag2/models/bert"
	"rag2/models/tokenizer"
	"rag2/tensor"
)

// ErrZeroVector reports an embedding without direction.
var ErrZeroVector = errors.New("embedding is the zero vector")

// EncoderSpec says which networks make the two sides of a bi-encoder.
type EncoderSpec struct {
	QueryDir   string // directory of the query encoder
	ArticleDir string // directory of the article encoder; "" = QueryDir (one tower)
	// Pooling is "cls", "mean", or "" to follow 1_Pooling/config.json of a
	// sentence-transformers model, and CLS without one.
	Pooling       string
	QueryTokens   int // limit per query, special tokens included; 0 = 512
	ArticleTokens int // limit per article; 0 = 512
	// PairArticles encodes an article as the sentence pair [title, body], as
	// MedCPT was trained. Otherwise title and body are one text, "title. body".
	PairArticles bool
}

// BiEncoder implements Encoder with one or two BERT networks.
type BiEncoder struct {
	spec             EncoderSpec
	query, article   *bert.Model
	queryT, articleT tokenizer.Tokenizer
	fingerprint      string
}

var _ Encoder = (*BiEncoder)(nil)

// OpenEncoder loads a bi-encoder onto an engine.
func OpenEncoder(e *tensor.Engine, spec EncoderSpec) (*BiEncoder, error) {
	if spec.ArticleDir == "" {
		spec.ArticleDir = spec.QueryDir
	}
	if spec.QueryTokens == 0 {
		spec.QueryTokens = 512
	}
	if spec.ArticleTokens == 0 {
		spec.ArticleTokens = 512
	}
	head, err := pooling(spec)
	if err != nil {
		return nil, err
	}
	spec.Pooling = string(head)
	b := &BiEncoder{spec: spec}
	if b.query, b.queryT, err = openBERT(e, spec.QueryDir, head); err != nil {
		return nil, err
	}
	b.article, b.articleT = b.query, b.queryT
	if spec.ArticleDir != spec.QueryDir {
		if b.article, b.articleT, err = openBERT(e, spec.ArticleDir, head); err != nil {
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
	if b.fingerprint, err = fingerprint(dirs, spec.Pooling, fmt.Sprint(b.spec.ArticleTokens), fmt.Sprint(spec.PairArticles)); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func pooling(spec EncoderSpec) (bert.Head, error) {
	switch spec.Pooling {
	case "cls":
		return bert.CLS, nil
	case "mean":
		return bert.Mean, nil
	case "":
	default:
		return "", fmt.Errorf("pooling %q; cls or mean", spec.Pooling)
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

func openBERT(e *tensor.Engine, dir string, head bert.Head) (*bert.Model, tokenizer.Tokenizer, error) {
	t, err := tokenizer.Load(dir)
	if err != nil {
		return nil, nil, err
	}
	m, err := bert.Open(e, dir, head)
	if err != nil {
		return nil, nil, err
	}
	if t.VocabSize() > m.Config.Vocab {
		m.Close()
		return nil, nil, fmt.Errorf("%s: the tokenizer has %d tokens, the model %d", dir, t.VocabSize(), m.Config.Vocab)
	}
	return m, t, nil
}

// fingerprint hashes settings and, of every weights file, config, tokenizer, its
// size and its first and last MiB: enough to tell checkpoints apart without
// reading gigabytes.
func fingerprint(dirs []string, settings ...string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q", settings)
	for _, d := range dirs {
		files, err := filepath.Glob(filepath.Join(d, "*"))
		if err != nil {
			return "", err
		}
		for _, p := range files {
			name := filepath.Base(p)
			if name != "config.json" && name != "tokenizer.json" && !strings.HasSuffix(name, ".safetensors") {
				continue
			}
			if err := hashEnds(h, p, name); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func hashEnds(h io.Writer, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	const end = 1 << 20
	fmt.Fprintf(h, "%q %d", name, st.Size())
	if _, err := io.CopyN(h, f, min(end, st.Size())); err != nil {
		return err
	}
	if st.Size() > end {
		if _, err := f.Seek(-end, io.SeekEnd); err != nil {
			return err
		}
		_, err = io.Copy(h, f)
	}
	return err
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
		text := a.Body
		if a.Title != "" {
			text = strings.TrimSuffix(a.Title, ".") + ". " + a.Body
		}
		encs[i] = b.articleT.EncodeSingle(text, b.spec.ArticleTokens)
	}
	return b.encode(ctx, b.article, encs, "article")
}

func (b *BiEncoder) encode(ctx context.Context, m *bert.Model, encs []tokenizer.Encoding, what string) ([][]float32, Report, error) {
	rows, err := forward(ctx, m, encs)
	if err != nil {
		return nil, Report{}, fmt.Errorf("encode %s: %w", what, err)
	}
	for i, r := range rows {
		zero := true
		for _, v := range r {
			if v != 0 {
				zero = false
				break
			}
		}
		if zero {
			return nil, Report{}, fmt.Errorf("encode %s %d: %w", what, i, ErrZeroVector)
		}
	}
	return rows, report(encs), nil
}

// Close frees both networks.
func (b *BiEncoder) Close() error {
	if b.article != nil && b.article != b.query {
		b.article.Close()
	}
	b.query.Close()
	return nil
}

// BERTCrossEncoder implements CrossEncoder with a BERT sequence classifier of one label.
type BERTCrossEncoder struct {
	m           *bert.Model
	t           tokenizer.Tokenizer
	limit       int
	fingerprint string
}

var _ CrossEncoder = (*BERTCrossEncoder)(nil)

// OpenCrossEncoder loads a cross-encoder; maxTokens limits the pair (0 = 512).
func OpenCrossEncoder(e *tensor.Engine, dir string, maxTokens int) (*BERTCrossEncoder, error) {
	if maxTokens == 0 {
		maxTokens = 512
	}
	m, t, err := openBERT(e, dir, bert.Classifier)
	if err != nil {
		return nil, err
	}
	if m.Out() != 1 {
		m.Close()
		return nil, fmt.Errorf("%s: cross-encoder has %d labels, one is needed", dir, m.Out())
	}
	c := &BERTCrossEncoder{m: m, t: t, limit: min(maxTokens, m.Config.Positions)}
	if c.fingerprint, err = fingerprint([]string{dir}, "cross", fmt.Sprint(c.limit)); err != nil {
		m.Close()
		return nil, err
	}
	return c, nil
}

// Score implements CrossEncoder.
func (c *BERTCrossEncoder) Score(ctx context.Context, query string, texts []string) ([]float32, Report, error) {
	encs := make([]tokenizer.Encoding, len(texts))
	for i, s := range texts {
		encs[i] = c.t.EncodePair(query, s, c.limit)
	}
	rows, err := forward(ctx, c.m, encs)
	if err != nil {
		return nil, Report{}, fmt.Errorf("cross-encoder: %w", err)
	}
	out := make([]float32, len(rows))
	for i, r := range rows {
		out[i] = r[0]
	}
	return out, report(encs), nil
}

// Fingerprint implements CrossEncoder.
func (c *BERTCrossEncoder) Fingerprint() string { return c.fingerprint }

// Close implements CrossEncoder.
func (c *BERTCrossEncoder) Close() error { c.m.Close(); return nil }
