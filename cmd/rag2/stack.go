package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"rag2/hnsw"
	"rag2/models"
	"rag2/models/registry"
	"rag2/pipeline"
	"rag2/pipeline/llm"
	"rag2/tensor"

	"github.com/spf13/cobra"
)

// stack is the models of a command, with the flags that choose them.
type stack struct {
	encoder, articles string
	queryTokens       int
	articleTokens     int
	batchTokens       int
	devices           int
	crossEncoder      string
	filter            string
	llmPath           string
	llmURL, llmModel  string
	llmContext        int
	llmTimeout        time.Duration
	llmRetries        int
	corpora           []string
	prompts           string
	warm              string

	engine *tensor.Engine
	enc    models.Encoder
	pipe   pipeline.Pipeline
	opened []interface{ Close() error }
}

// Descriptions of flags that several commands have.
const (
	encoderUsage         = "encoder: a model of `rag2 models list` or a directory"
	warmUsage            = "parts of an index to read ahead when it is opened: none, graph, codes, all"
	efUsage              = "width of the graph search (default the index's own)"
	exactUsage           = "compare with every vector instead of walking the graph"
	shardUsage           = "i/n: the i-th of n shares of the work only"
	llmUsage             = "language model run here: a model, a directory or a .gguf file"
	llmContextUsage      = "context of the language model in tokens (default the model's own; 8192 for servers)"
	corporaUsage         = "corpora to ask (default all); NAME=PART+PART joins shards into one corpus"
	pairsUsage           = "questions with the texts that answer them, JSONL as `reranker bioasq` writes it, .gz too"
	groupsUsage          = "groups of right and wrong texts, JSONL as `reranker mine` writes it, .gz too"
	recordsUsage         = "records, a JSON array as `filter export` and `filter gold` write it"
	datasetUsage         = "value of dataset_name"
	devUsage             = "held-out data in the form of the other: the best weights on it are kept, or thresholds and weights chosen"
	rerankRetrievalUsage = "weight of the retrieval score beside the cross-encoder's in the order; `reranker eval` finds one on --held-out"
	crossEncoderUsage    = "cross-encoder that reranks: a model or a directory (default none)"
)

func (s *stack) encoderFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.encoder, "encoder", "minilm", encoderUsage)
	f.StringVar(&s.articles, "article-encoder", "", "directory of the article encoder, where it is another network than the query encoder")
	f.IntVar(&s.articleTokens, "article-max-tokens", 0, "tokens of a passage at most (default the model's, 512); part of what an index is made with")
	f.IntVar(&s.batchTokens, "batch-tokens", 0, "tokens of a batch of the encoder, padding included (default 4096; GPUs like more)")
	f.IntVar(&s.devices, "devices", 0, "devices that the encoder's batches are spread over (default every GPU, else one)")
	f.IntVar(&s.queryTokens, "query-max-tokens", 512, "tokens of a query at most; the rest is cut and counted")
}

func (s *stack) retrievalFlags(c *cobra.Command) {
	s.encoderFlags(c)
	f := c.Flags()
	f.StringSliceVar(&s.corpora, "corpora", nil, corporaUsage)
	f.StringVar(&s.warm, "warm", "none", warmUsage)
	f.StringVar(&s.crossEncoder, "cross-encoder", "", crossEncoderUsage)
	f.StringVar(&s.filter, "filter", "", judgeUsage+" (default none)")
	s.modelFlags(c)
	f.StringVar(&s.prompts, "prompts", "", "directory of prompt templates that replace the built-in ones")
}

// modelFlags choose the language model.
func (s *stack) modelFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.llmPath, "llm", "", llmUsage)
	f.StringVar(&s.llmURL, "llm-url", "", "base URL of an OpenAI-compatible server, instead of --llm; its key is read from RAG2_LLM_API_KEY or OPENAI_API_KEY")
	f.StringVar(&s.llmModel, "llm-model", "", "name of the server's model")
	f.IntVar(&s.llmContext, "llm-context", 0, llmContextUsage)
	f.DurationVar(&s.llmTimeout, "llm-timeout", 2*time.Minute, "time that one request to the server may take")
	f.IntVar(&s.llmRetries, "llm-retries", 2, "retries of requests that failed for a passing reason")
}

// parseShard reads i/n.
func parseShard(s string) (i, n int, err error) {
	a, b, _ := strings.Cut(s, "/")
	i, err = strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if err != nil || err2 != nil || i < 1 || i > n {
		return 0, 0, usagef("--shard %q; i/n with i from 1 to n", s)
	}
	return i, n, nil
}

// given refuses flags that are there and empty: an unset variable in a job's script would
// otherwise start all of the work, or keep none of it.
func given(c *cobra.Command, flags ...string) error {
	for _, n := range flags {
		if f := c.Flags().Lookup(n); f.Changed && f.Value.String() == "" {
			return usagef("--%s is empty; give it a value or leave it out", n)
		}
	}
	return nil
}

// closeFunc is a Close method that cannot fail.
type closeFunc func()

// Close calls f.
func (f closeFunc) Close() error { f(); return nil }

func (s *stack) use(x interface{ Close() error }) { s.opened = append(s.opened, x) }

// close closes what was opened, last first.
func (s *stack) close() {
	for i := len(s.opened) - 1; i >= 0; i-- {
		if err := s.opened[i].Close(); err != nil {
			fmt.Fprintln(os.Stderr, "rag2: closing:", err)
		}
	}
	s.opened = nil
}

// modelDir finds a model by name or path.
func (a *app) modelDir(name string) (string, error) {
	st, err := a.store(nil)
	if err != nil {
		return "", err
	}
	return st.Resolve(name)
}

// repository is the name of a model that others can find it by: its repository's, where it
// is a known one.
func (a *app) repository(name string) string {
	if ps, err := registry.Find(name); err == nil && len(ps) == 1 {
		return ps[0].Repo
	}
	return name
}

func (s *stack) openEngine(a *app) (err error) {
	if s.engine == nil {
		if s.engine, err = a.open(); err == nil {
			s.use(closeFunc(s.engine.Close))
		}
	}
	return err
}

func (s *stack) openEncoder(a *app) error {
	st, err := a.store(nil)
	if err != nil {
		return err
	}
	spec, err := st.EncoderSpec(s.encoder)
	if err != nil {
		return err
	}
	if s.articleTokens > 0 {
		spec.ArticleTokens = s.articleTokens
	}
	spec.QueryTokens, spec.BatchTokens, spec.Devices = s.queryTokens, s.batchTokens, s.devices
	if s.articles != "" {
		spec.PairArticles = true
		if spec.ArticleDir, err = a.modelDir(s.articles); err != nil {
			return err
		}
	}
	if err := s.openEngine(a); err != nil {
		return err
	}
	if strings.HasPrefix(s.engine.Name(), "xla:cuda") && spec.Devices == 0 {
		spec.Devices = s.engine.Devices()
	}
	e, err := models.OpenEncoder(s.engine, spec)
	if err != nil {
		return err
	}
	s.enc = e
	s.use(e)
	return nil
}

// openRetrieval opens encoder, cross-encoder and corpora.
func (s *stack) openRetrieval(a *app) error {
	err := hnsw.OpenOptions{Warm: s.warm}.Validate()
	if err != nil {
		return usageError{err}
	}
	if s.pipe.Prompts, err = pipeline.LoadPrompts(s.prompts); err != nil {
		return err
	}
	specs := s.corpora
	if len(specs) == 0 {
		if specs, err = a.names(nil); err != nil {
			return err
		}
	}
	for _, spec := range specs { // names are checked before models are loaded
		for _, part := range parts(spec) {
			if _, err := a.data().Manifest(part); err != nil {
				return err
			}
		}
	}
	if err := s.openEncoder(a); err != nil {
		return err
	}
	s.pipe.Encoder = s.enc
	for _, spec := range specs {
		var rs []pipeline.Retriever
		for _, part := range parts(spec) {
			c, err := a.data().Open(part, s.enc.Fingerprint(), s.warm)
			if err != nil {
				return err
			}
			s.use(c)
			rs = append(rs, pipeline.Local{Corpus: c})
		}
		r := rs[0]
		if name, _, ok := strings.Cut(spec, "="); ok {
			if r, err = pipeline.NewShards(name, rs...); err != nil {
				return err
			}
		}
		s.pipe.Corpora = append(s.pipe.Corpora, r)
	}
	if s.crossEncoder != "" {
		dir, err := a.modelDir(s.crossEncoder)
		if err != nil {
			return err
		}
		x, err := models.OpenCrossEncoderOn(s.engine, dir, 0, a.modelDir)
		if err != nil {
			return err
		}
		s.use(x)
		s.pipe.CrossEncoder = x
	}
	if s.filter != "" {
		x, err := s.openJudge(a, s.filter)
		if err != nil {
			return err
		}
		s.use(x)
		s.pipe.Filter = x
	}
	return nil
}

// parts are the corpora of "NAME" or "NAME=PART+PART".
func parts(spec string) []string {
	if _, list, ok := strings.Cut(spec, "="); ok {
		return strings.Split(list, "+")
	}
	return []string{spec}
}

// openGenerator opens the language model, if one is chosen.
func (s *stack) openGenerator(a *app) error {
	switch {
	case s.pipe.Generator != nil: // the filter opened it
	case s.llmPath != "" && s.llmURL != "":
		return usageError{errors.New("--llm and --llm-url exclude each other")}
	case s.llmURL != "":
		key := os.Getenv("RAG2_LLM_API_KEY")
		if key == "" {
			key = os.Getenv("OPENAI_API_KEY")
		}
		retries := s.llmRetries
		if retries == 0 {
			retries = -1
		}
		g, err := llm.New(llm.Options{BaseURL: s.llmURL, Model: s.llmModel, APIKey: key, Timeout: s.llmTimeout, Retries: retries, Context: s.llmContext})
		if err != nil {
			return usageError{err}
		}
		s.pipe.Generator = g
		s.use(g)
	case s.llmPath != "":
		dir, err := a.modelDir(s.llmPath)
		if err != nil {
			return err
		}
		if err := s.openEngine(a); err != nil {
			return err
		}
		g, err := models.OpenGenerator(s.engine, dir, s.llmContext)
		if err != nil {
			return err
		}
		s.pipe.Generator = g
		s.use(g)
	}
	return nil
}
