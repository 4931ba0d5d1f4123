package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"rag2/pipeline"

	"github.com/spf13/cobra"
)

// questionFlags choose what is asked.
type questionFlags struct {
	options []string
	file    string
	id      string
	first   int
}

func (f *questionFlags) define(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.options, "option", nil, "an option as KEY=TEXT; repeat it")
	c.Flags().StringVar(&f.file, "file", "", "JSONL file of questions {\"question\", \"options\"}, .gz too")
	c.Flags().StringVar(&f.id, "id", "", "take the question with this id from --file")
	c.Flags().IntVar(&f.first, "first", 0, "take this many questions (default all)")
}

// read gives the questions of the call.
func (f *questionFlags) read(args []string) ([]pipeline.Question, error) {
	switch {
	case f.file != "" && len(args) > 0:
		return nil, usagef("a question and --file exclude each other")
	case f.file != "":
		return f.fromFile()
	case len(args) == 0:
		return nil, usagef("no question; give one in quotes, - for standard input, or --file")
	}
	text := strings.Join(args, " ")
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	q := pipeline.ParseQuestion(text)
	for _, o := range f.options {
		k, v, ok := strings.Cut(o, "=")
		if !ok {
			return nil, usagef("option %q; write KEY=TEXT", o)
		}
		q.Options = append(q.Options, pipeline.Option{Key: strings.ToUpper(strings.TrimSpace(k)), Text: strings.TrimSpace(v)})
	}
	return []pipeline.Question{q}, q.Validate()
}

func (f *questionFlags) fromFile() ([]pipeline.Question, error) {
	h, err := os.Open(f.file)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var r io.Reader = h
	if strings.HasSuffix(f.file, ".gz") {
		z, err := gzip.NewReader(h)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.file, err)
		}
		r = z
	}
	var out []pipeline.Question
	b := bufio.NewReaderSize(r, 1<<16)
	for line := 1; ; line++ {
		row, err := b.ReadBytes('\n')
		if len(row) > 1<<20 {
			return nil, fmt.Errorf("%s:%d: a question of %d bytes", f.file, line, len(row))
		}
		if row = bytes.TrimSpace(bytes.TrimPrefix(row, []byte("\ufeff"))); len(row) > 0 {
			var q pipeline.Question
			jerr := json.Unmarshal(row, &q)
			if jerr == nil {
				jerr = q.Validate()
			}
			if jerr != nil {
				return nil, fmt.Errorf("%s:%d: %w", f.file, line, jerr)
			}
			if q.ID == "" {
				q.ID = fmt.Sprintf("%04d", line-1)
			}
			if f.id == "" || f.id == q.ID {
				out = append(out, q)
			}
		}
		if f.first > 0 && len(out) == f.first || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", f.file, line, err)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no question%s", f.file, map[bool]string{true: " with id " + f.id}[f.id != ""])
	}
	return out, nil
}

// years is a range of years as a flag: 2015-2020, 2015-, -2020 or 2015.
type years struct{ from, to *int }

func (y years) Type() string { return "years" }

func (y years) String() string {
	if y.from == nil || *y.from == 0 && *y.to == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", *y.from, *y.to)
}

// Set reads a range.
func (y years) Set(s string) error {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		b = a
	}
	for _, x := range []struct {
		s  string
		to *int
	}{{a, y.from}, {b, y.to}} {
		*x.to = 0
		if x.s == "" {
			continue
		}
		n, err := strconv.Atoi(x.s)
		if err != nil || n < 1 || n > 9999 {
			return fmt.Errorf("%q is no range of years; write 2015-2020, 2015-, -2020 or 2015", s)
		}
		*x.to = n
	}
	if *y.from == 0 && *y.to == 0 || *y.to > 0 && *y.from > *y.to {
		return fmt.Errorf("%q is no range of years", s)
	}
	return nil
}

// optionFlags defines the pipeline's options.
func optionFlags(c *cobra.Command, o *pipeline.Options, query string) {
	f := c.Flags()
	f.IntVar(&o.K, "k", 8, "snippets that the answer rests on")
	f.IntVar(&o.PerCorpusK, "per-corpus-k", 0, "passages asked of every corpus (default by --preset)")
	f.StringVar(&o.Preset, "preset", "paper", "paper: each corpus gives ⌈k/corpora⌉; authors: each gives k")
	f.StringVar(&o.Query, "query", query, "what is searched for: rationale, question, question+rationale, query2doc")
	f.StringVar(&o.RerankQuery, "rerank-query", "question", "what the cross-encoder compares with: question, rationale")
	f.Float64Var(&o.RerankRetrieval, "rerank-retrieval", 0, rerankRetrievalUsage)
	f.Float64Var(&o.Threshold, "filter-threshold", 0.5, "probability of HELPFUL from which the filter keeps a snippet")
	f.BoolVar(&o.KeepBest, "keep-best", false, "keep the best snippet when the filter drops all")
	f.BoolVar(&o.Exact, "exact", false, exactUsage)
	f.IntVar(&o.Ef, "ef", 0, efUsage)
	f.Var(years{&o.Only.FromYear, &o.Only.ToYear}, "years", "find only passages of these years: 2015-2020, 2015-, -2020 or 2015")
	f.StringArrayVar(&o.Only.Journals, "journal", nil, "find only passages of this journal, publisher or book; repeat it for several")
	f.StringArrayVar(&o.Only.MeSH, "mesh", nil, "find only passages with this MeSH descriptor; repeat it for several")
	f.StringSliceVar(&o.Only.IDs, "ids", nil, "find only these documents or passages, by id")
	f.IntVar(&o.RationaleTokens, "rationale-tokens", 512, "tokens of the rationale at most")
}

// answerFlags defines how an option is found.
func answerFlags(c *cobra.Command, o *pipeline.Options) {
	f := c.Flags()
	f.StringVar(&o.Mode, "answer-mode", "text", "text: the model writes; logprob: the options are scored")
	f.StringVar(&o.Extraction, "extraction", "strict", "strict: no stated option is unanswered; mirage: MIRAGE's rule, for comparison")
	f.IntVar(&o.AnswerTokens, "answer-tokens", 512, "tokens of the answer at most")
}

func (a *app) search() *cobra.Command {
	var s stack
	var o pipeline.Options
	var qf questionFlags
	c := &cobra.Command{
		Use:   "search [QUESTION]",
		Short: "show the passages that a question retrieves",
		RunE: func(c *cobra.Command, args []string) error {
			qs, err := qf.read(args)
			if err != nil {
				return err
			}
			defer s.close()
			if err := s.openRetrieval(a); err != nil {
				return err
			}
			if err := s.openGenerator(a); err != nil {
				return err
			}
			for _, q := range qs {
				t, err := s.pipe.Retrieve(c.Context(), q, o, observer(false))
				if err != nil {
					return named(q, len(qs), err)
				}
				if a.json {
					err = printLine(len(qs), struct {
						ID string `json:"id,omitempty"`
						*pipeline.Trace
					}{q.ID, t})
				} else {
					err = pipeline.WriteTrace(os.Stdout, t)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	s.retrievalFlags(c)
	optionFlags(c, &o, pipeline.QueryQuestion)
	qf.define(c)
	return c
}

func (a *app) ask() *cobra.Command {
	var s stack
	var o pipeline.Options
	var qf questionFlags
	var trace bool
	c := &cobra.Command{
		Use:   "ask [QUESTION]",
		Short: "answer a question with cited evidence",
		Example: `  rag2 ask "Which vitamin is low after years of metformin? A) B12 B) C" --llm smollm2
  rag2 ask - --llm-url http://127.0.0.1:8080/v1 --llm-model llama-3-8b < question.txt
  rag2 ask --file medqa.jsonl.gz --first 10 --llm smollm2 --json > answers.jsonl`,
		RunE: func(c *cobra.Command, args []string) error {
			qs, err := qf.read(args)
			if err != nil {
				return err
			}
			if s.llmPath == "" && s.llmURL == "" {
				return usagef("an answer needs a language model: --llm or --llm-url")
			}
			defer s.close()
			if err := s.openRetrieval(a); err != nil {
				return err
			}
			if err := s.openGenerator(a); err != nil {
				return err
			}
			var p progress
			for i, q := range qs {
				if len(qs) > 1 {
					p.update("questions", i, len(qs))
				}
				ans, err := s.pipe.Ask(c.Context(), q, o, observer(len(qs) == 1))
				if err != nil {
					p.done()
					return named(q, len(qs), err)
				}
				if a.json {
					err = printLine(len(qs), ans)
				} else {
					err = pipeline.WriteAnswer(os.Stdout, ans)
					if err == nil && trace {
						fmt.Println()
						err = pipeline.WriteTrace(os.Stdout, ans.Trace)
					}
				}
				if err != nil {
					return err
				}
			}
			p.done()
			return nil
		},
	}
	s.retrievalFlags(c)
	optionFlags(c, &o, pipeline.QueryRationale)
	qf.define(c)
	answerFlags(c, &o)
	f := c.Flags()
	f.Float64Var(&o.Attribution, "attribution", 0.6, "least cosine of a sentence and a snippet that makes a citation; negative = none")
	f.BoolVar(&trace, "trace", false, "print every stage and snippet after the answer")
	return c
}

// named says which question of several failed.
func named(q pipeline.Question, of int, err error) error {
	if of > 1 && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("question %s: %w", q.ID, err)
	}
	return err
}

// observer shows stages on a terminal.
func observer(show bool) pipeline.Observer {
	if !show || !onTerminal() {
		return pipeline.Observer{}
	}
	return pipeline.Observer{Stage: func(name string) { fmt.Fprintf(os.Stderr, "· %s\n", name) }}
}

// printLine prints indented JSON, or one line each when there are several.
func printLine(of int, v any) error {
	if of == 1 {
		return printJSON(v)
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// usageArgs turns a fault of the arguments into a usage error.
func usageArgs(f cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := f(c, args); err != nil {
			return usageError{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
		}
		return nil
	}
}
