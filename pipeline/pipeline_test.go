package pipeline

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"rag2/internal/npy"
	"rag2/models"
	"rag2/pipeline/home"
	"rag2/pipeline/ingest"
	"rag2/pipeline/llm"
	"rag2/tensor"
	_ "rag2/tensor/native" // the default engine
)

const (
	demoDir = "../testdata/demo"
	tinyDir = "../testdata/bert/tiny"
)

// demoSources are the demo corpora, in the order in which they are asked.
var demoSources = []struct{ name, path string }{
	{"pubmed", "pubmed.xml"}, {"pmc", "pmc.xml"}, {"cpg", "guidelines.jsonl"}, {"textbooks", "textbook"},
}

// encoder opens an encoder on the engine that RAG2_ENGINE names, or the best one.
func encoder(t testing.TB, dir string, spec models.EncoderSpec) models.Encoder {
	t.Helper()
	name := os.Getenv("RAG2_ENGINE")
	if dir == tinyDir {
		name = "go"
	}
	e, err := tensor.Open(name, tensor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spec.QueryDir = dir
	enc, err := models.OpenEncoder(e, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { enc.Close(); e.Close() })
	return enc
}

// demoHome ingests and indexes the demo corpora.
func demoHome(t testing.TB, enc models.Encoder) home.Home {
	t.Helper()
	h := home.Home{Dir: t.TempDir()}
	for _, s := range demoSources {
		if _, err := ingest.Add(t.Context(), h, s.name, []string{filepath.Join(demoDir, s.path)}, ingest.AddOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := ingest.BuildIndex(t.Context(), h, s.name, enc, ingest.IndexOptions{EncoderName: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func openDemo(t testing.TB, h home.Home, enc models.Encoder) []Retriever {
	t.Helper()
	var rs []Retriever
	for _, s := range demoSources {
		c, err := h.Open(s.name, enc.Fingerprint(), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		rs = append(rs, Local{c})
	}
	return rs
}

// recorded is a language model that answers from a script, over HTTP as the real ones
// do. It keeps the prompts it got.
type recorded struct {
	*llm.Remote
	mu      sync.Mutex
	script  func(prompt string) string
	prompts []string
}

func recordedLLM(t testing.TB, context int, script func(prompt string) string) *recorded {
	t.Helper()
	r := &recorded{script: script}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		if !strings.HasSuffix(req.URL.Path, "/chat/completions") {
			http.NotFound(w, req) // it cannot score
			return
		}
		var in struct {
			Messages []struct{ Content string }
		}
		if err := json.Unmarshal(b, &in); err != nil || len(in.Messages) != 1 {
			t.Errorf("request %s: %v", b, err)
			return
		}
		r.mu.Lock()
		r.prompts = append(r.prompts, in.Messages[0].Content)
		text := r.script(in.Messages[0].Content)
		r.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"model": "recorded", "choices": []any{map[string]any{"finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text}}}})
	}))
	t.Cleanup(s.Close)
	var err error
	if r.Remote, err = llm.New(llm.Options{BaseURL: s.URL, Model: "recorded", Retries: -1, Context: context}); err != nil {
		t.Fatal(err)
	}
	return r
}

func isRationale(prompt string) bool {
	return strings.HasPrefix(prompt, "The following are multiple choice")
}

var metformin = Question{Stem: "Which is low after years of metformin?", Options: []Option{{"A", "Iron"}, {"B", "Vitamin B12"}}}

func TestAskStates(t *testing.T) {
	enc := encoder(t, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	p := &Pipeline{Encoder: enc, Corpora: openDemo(t, demoHome(t, enc), enc)}
	for _, c := range []struct {
		name, rationale, answer string
		q                       Question
		o                       Options
		state                   State
		option, text, note      string
		cited, foreign          int
	}{
		{"supported", "Metformin hinders absorption.\nThe answer is (B).", "B12 is absorbed in the ileum [1]. Another line [3].\nThe answer is (B).", metformin, Options{Attribution: -1}, Supported, "B", "", "", 2, 0},
		{"disagree", "Iron it is.\nThe answer is (A).", "B12 [2].\nThe answer is (B).", metformin, Options{Attribution: -1}, Disagree, "B", "", "chose A", 1, 0},
		{"no citation", "Hm.\nThe answer is (B).", "The answer is (B).", metformin, Options{Attribution: -1}, WithoutEvidence, "B", "", "tied to a snippet", 0, 0},
		{"foreign citation", "Hm.\nThe answer is (B).", "So [9]. The answer is (B).", metformin, Options{Attribution: -1}, WithoutEvidence, "B", "So. The answer is (B).", "named no snippet", 0, 1},
		{"unanswered", "Hm.", "It depends [1].", metformin, Options{Attribution: -1}, Unanswered, "", "", "", 1, 0},
		{"nothing written", "Hm.", "", metformin, Options{}, Unanswered, "", "", "", 0, 0},
		{"mirage guesses", "Hm.", "It depends.", metformin, Options{Extraction: "mirage", Attribution: -1}, WithoutEvidence, "A", "", "", 0, 0},
		{"open question", "Metformin hinders absorption.", "B12 falls [1].", Question{Stem: "What falls under metformin?"}, Options{Attribution: -1}, Supported, "", "B12 falls [1].", "", 1, 0},
		{"attribution", "Hm.\nThe answer is (B).", "The vitamin is low in many patients. The answer is (B).", metformin, Options{Attribution: 0.01}, Supported, "B", "", "", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := recordedLLM(t, 8192, func(p string) string {
				if isRationale(p) {
					return c.rationale
				}
				return c.answer
			})
			p := *p
			p.Generator = g
			a, err := p.Ask(t.Context(), c.q, c.o, Observer{})
			if err != nil {
				t.Fatal(err)
			}
			if a.State != c.state || a.Option != c.option || len(a.Citations) != c.cited || a.Foreign != c.foreign {
				t.Errorf("state %q option %q citations %v foreign %d notes %q", a.State, a.Option, a.Citations, a.Foreign, a.Notes)
			}
			if c.text != "" && a.Text != c.text {
				t.Errorf("text %q", a.Text)
			}
			if !strings.Contains(strings.Join(a.Notes, "\n"), c.note) {
				t.Errorf("notes %q lack %q", a.Notes, c.note)
			}
			for _, x := range a.Citations {
				if x.N < 1 || x.N > len(a.Trace.Kept()) || x.ID != a.Trace.Kept()[x.N-1].ID {
					t.Errorf("citation %+v names no kept snippet", x)
				}
			}
			var names []string
			for _, s := range a.Trace.Stages {
				names = append(names, s.Name)
			}
			if want := []string{StageRationale, StageEncode, StageRetrieve, StageRerank, StageFilter, StageAnswer, StageCite}; !slices.Equal(names, want) {
				t.Errorf("stages %v", names)
			}
			for _, s := range a.Trace.Stages[3:5] {
				if s.Skipped == "" {
					t.Errorf("%s has no model and does not say that it was skipped", s.Name)
				}
			}
			var out strings.Builder
			if err := errors.Join(WriteAnswer(&out, a), WriteTrace(&out, a.Trace)); err != nil || !strings.Contains(out.String(), string(c.state)) {
				t.Errorf("printed %q, %v", out.String(), err)
			}
		})
	}
}

// The rationale prompt is the paper's, to the letter, and is the first thing asked.
func TestRationalePromptAndQuery(t *testing.T) {
	enc := encoder(t, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	p := &Pipeline{Encoder: enc, Corpora: openDemo(t, demoHome(t, enc), enc)}
	const verbatim = "The following are multiple choice questions about medical knowledge. Solve them in a step-by-step fashion, starting by summarizing the available information. Output your explanation and single option from the given options as the final answer. Here is the question: Which is low after years of metformin? A) Iron B) Vitamin B12"
	reply := "Metformin hinders absorption.\nThe answer is (B)."
	g := recordedLLM(t, 8192, func(string) string { return reply })
	p.Generator = g
	for _, c := range []struct{ kind, query, used string }{
		{QueryRationale, "Metformin hinders absorption.", QueryRationale},
		{QueryQuestionRationale, metformin.Render() + " Metformin hinders absorption.", QueryQuestionRationale},
		{QueryDoc, metformin.Render() + " " + reply, QueryDoc},
		{QueryQuestion, metformin.Render(), QueryQuestion},
	} {
		g.prompts = nil
		tr, err := p.Retrieve(t.Context(), metformin, Options{Query: c.kind}, Observer{})
		if err != nil {
			t.Fatal(err)
		}
		if tr.Query != c.query || tr.QueryKind != c.used {
			t.Errorf("%s: query %q of kind %s", c.kind, tr.Query, tr.QueryKind)
		}
		switch {
		case c.kind == QueryQuestion && len(g.prompts) != 0:
			t.Errorf("%s asked the model", c.kind)
		case c.kind == QueryRationale && (len(g.prompts) != 1 || g.prompts[0] != verbatim):
			t.Errorf("prompts %q", g.prompts)
		}
	}
	reply = "B) Vitamin B12"
	tr, err := p.Retrieve(t.Context(), metformin, Options{}, Observer{})
	if err != nil || tr.Query != metformin.Render() || tr.QueryKind != QueryQuestion || tr.Stages[0].Note == "" {
		t.Errorf("an option without reasons: query %q of kind %s, %v", tr.Query, tr.QueryKind, err)
	}
}

func TestQuotas(t *testing.T) {
	enc := encoder(t, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	corpora := openDemo(t, demoHome(t, enc), enc)
	p := &Pipeline{Encoder: enc, Corpora: corpora}
	for _, c := range []struct {
		o         Options
		per, kept int
	}{
		{Options{}, 2, 8},
		{Options{K: 1}, 1, 1},
		{Options{K: 9}, 3, 9},
		{Options{K: 8, Preset: "authors"}, 8, 8},
		{Options{K: 8, PerCorpusK: 5}, 5, 8},
		{Options{K: 1000}, 250, 248},
	} {
		c.o.Query = QueryQuestion
		tr, err := p.Retrieve(t.Context(), metformin, c.o, Observer{})
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.Kept()) != c.kept {
			t.Errorf("%+v keeps %d, want %d", c.o, len(tr.Kept()), c.kept)
		}
		for _, x := range tr.Corpora {
			if x.Asked != c.per || x.Got != min(c.per, 62) || (x.Got < x.Asked) != (x.Note != "") {
				t.Errorf("%+v: %+v", c.o, x)
			}
		}
	}
	// Two corpora as shards of one get one quota, and the best of both by score.
	s, err := NewShards("both", corpora[0], corpora[1])
	if err != nil {
		t.Fatal(err)
	}
	p.Corpora = []Retriever{s, corpora[2]}
	tr, err := p.Retrieve(t.Context(), metformin, Options{K: 6, Query: QueryQuestion}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := enc.EncodeQueries(t.Context(), []string{metformin.Render()})
	if err != nil {
		t.Fatal(err)
	}
	var all []home.Hit
	for _, c := range corpora[:2] {
		hits, err := c.Search(t.Context(), v[0], 62, SearchOptions{Exact: true})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, hits...)
	}
	want, got := map[string]bool{}, 0
	for _, h := range topHits(all, 3) {
		want[h.ID] = true
	}
	for _, x := range tr.Snippets {
		if x.Corpus == "both" {
			if got++; !want[x.ID] {
				t.Errorf("%s is not among the three best of both shards", x.ID)
			}
		}
	}
	if got != 3 || tr.Corpora[0].Passages != 124 {
		t.Errorf("%d from the shards of %+v", got, tr.Corpora[0])
	}
}

func TestContextOverflowDropsTheLowestRanked(t *testing.T) {
	enc := encoder(t, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	p := &Pipeline{Encoder: enc, Corpora: openDemo(t, demoHome(t, enc), enc)}
	g := recordedLLM(t, 500, func(string) string { return "So [1]. The answer is (B)." })
	p.Generator = g
	a, err := p.Ask(t.Context(), metformin, Options{AnswerTokens: 100, RationaleTokens: 100, Attribution: -1}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	kept := a.Trace.Kept()
	if len(kept) == 0 || len(kept) >= 8 || !strings.Contains(strings.Join(a.Notes, "\n"), "did not fit") {
		t.Fatalf("%d kept, notes %q", len(kept), a.Notes)
	}
	last := g.prompts[len(g.prompts)-1]
	if !strings.Contains(last, metformin.Render()) {
		t.Error("the question was cut")
	}
	for _, s := range a.Trace.Snippets {
		if (s.N > 0) != strings.Contains(last, s.Text) {
			t.Errorf("snippet %d %s: in the prompt %v", s.N, s.ID, !(s.N > 0))
		}
		if s.N == 0 && s.Retrieval > kept[len(kept)-1].Retrieval {
			t.Errorf("%s was dropped before a lower one", s.ID)
		}
	}
	p.Generator = recordedLLM(t, 60, func(string) string { return "" })
	if _, err := p.Ask(t.Context(), metformin, Options{Query: QueryQuestion}, Observer{}); !errors.Is(err, models.ErrContext) {
		t.Errorf("a question longer than the context: %v", err)
	}
}

func TestBadCalls(t *testing.T) {
	enc := encoder(t, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	h := demoHome(t, enc)
	full := Pipeline{Encoder: enc, Corpora: openDemo(t, h, enc), Generator: recordedLLM(t, 8192, func(string) string { return "x" })}
	for _, c := range []struct {
		name string
		p    func(Pipeline) Pipeline
		q    Question
		o    Options
		err  error
		exit int
	}{
		{"empty question", nil, Question{}, Options{}, ErrQuestion, 2},
		{"blank question", nil, Question{Stem: " \n"}, Options{}, ErrQuestion, 2},
		{"one option", nil, Question{Stem: "x", Options: metformin.Options[:1]}, Options{}, ErrQuestion, 2},
		{"option twice", nil, Question{Stem: "x", Options: []Option{{"A", "a"}, {"A", "b"}}}, Options{}, ErrQuestion, 2},
		{"bad key", nil, Question{Stem: "x", Options: []Option{{"1", "a"}, {"2", "b"}}}, Options{}, ErrQuestion, 2},
		{"huge question", nil, Question{Stem: strings.Repeat("x ", maxQuestion)}, Options{}, ErrQuestion, 2},
		{"invalid UTF-8", nil, Question{Stem: "x\xff"}, Options{}, ErrQuestion, 2},
		{"query kind", nil, metformin, Options{Query: "answer"}, ErrOptions, 2},
		{"negative k", nil, metformin, Options{K: -1}, ErrOptions, 2},
		{"threshold", nil, metformin, Options{Attribution: 2}, ErrOptions, 2},
		{"log-probabilities of a server that has none", nil, metformin, Options{Mode: AnswerLogprob}, llm.ErrNoScores, 1},
		{"no model", func(p Pipeline) Pipeline { p.Generator = nil; return p }, metformin, Options{}, ErrNotConfigured, 1},
		{"no corpora", func(p Pipeline) Pipeline { p.Corpora = nil; return p }, metformin, Options{}, ErrNotConfigured, 1},
		{"no encoder", func(p Pipeline) Pipeline { p.Encoder = nil; return p }, metformin, Options{}, ErrNotConfigured, 1},
	} {
		p := full
		if c.p != nil {
			p = c.p(p)
		}
		_, err := p.Ask(t.Context(), c.q, c.o, Observer{})
		if !errors.Is(err, c.err) || FaultOf(err).Exit != c.exit {
			t.Errorf("%s: %v (exit %d)", c.name, err, FaultOf(err).Exit)
		}
	}
	if _, err := h.Open("pubmed", "another encoder", ""); !errors.Is(err, home.ErrStale) {
		t.Errorf("another encoder: %v", err)
	}
	if _, err := h.Open("nowhere", "", ""); !errors.Is(err, home.ErrNoCorpus) {
		t.Errorf("unknown corpus: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := full.Ask(ctx, metformin, Options{}, Observer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
}

func TestManyQuestionsAtOnce(t *testing.T) {
	enc := encoder(t, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	p := &Pipeline{Encoder: enc, Corpora: openDemo(t, demoHome(t, enc), enc), Generator: recordedLLM(t, 8192, func(string) string { return "So [1]. The answer is (B)." })}
	one, err := p.Ask(t.Context(), metformin, Options{Attribution: -1}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			a, err := p.Ask(t.Context(), metformin, Options{Attribution: -1}, Observer{})
			if err != nil || a.State != one.State || len(a.Trace.Snippets) != len(one.Trace.Snippets) || a.Trace.Snippets[0].ID != one.Trace.Snippets[0].ID {
				t.Errorf("%+v %v", a, err)
			}
		})
	}
	wg.Wait()
}

// demoQuestion is a question of the demo with the document that answers it.
type demoQuestion struct {
	Question
	Corpus, Doc string
}

func demoQuestions(t testing.TB) (out []demoQuestion) {
	t.Helper()
	f, err := os.Open(filepath.Join(demoDir, "questions.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var q Question
		var e struct{ Evidence struct{ Corpus, Doc string } }
		if err := errors.Join(json.Unmarshal(s.Bytes(), &q), json.Unmarshal(s.Bytes(), &e)); err != nil {
			t.Fatal(err)
		}
		out = append(out, demoQuestion{q, e.Evidence.Corpus, e.Evidence.Doc})
	}
	if len(out) != 20 {
		t.Fatalf("%d demo questions", len(out))
	}
	return out
}

// found counts the questions whose evidence is first in its corpus, and in the final k.
func found(t testing.TB, p *Pipeline, qs []demoQuestion, o Options) (first, final int) {
	t.Helper()
	for _, q := range qs {
		tr, err := p.Retrieve(t.Context(), q.Question, o, Observer{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range tr.Snippets {
			if s.Corpus == q.Corpus && s.Doc == q.Doc {
				if s.CorpusRank == 1 {
					first++
				}
				if s.N > 0 {
					final++
				}
			}
		}
	}
	return first, final
}

// rationales are what SmolLM2-135M-Instruct wrote for the demo questions; the file
// names model and prompts.
func rationales(t testing.TB) map[string]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(demoDir, "rationales.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Prompts string
		Texts   map[string]string
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r.Texts
}

// The demo's retrieval with real weights: the evidence is first in its corpus for 80 %
// of the questions and in the final k for 90 %; with shuffled vectors it is not.
func TestDemoRetrieval(t *testing.T) {
	dir := filepath.Join(os.Getenv("RAG2_MODELS_DIR"), "minilm")
	if os.Getenv("RAG2_MODELS_DIR") == "" {
		t.Skip("RAG2_MODELS_DIR is not set; make test sets it")
	}
	enc := encoder(t, dir, models.EncoderSpec{})
	h := demoHome(t, enc)
	qs := demoQuestions(t)
	p := &Pipeline{Encoder: enc, Corpora: openDemo(t, h, enc)}
	first, final := found(t, p, qs, Options{Query: QueryQuestion})
	t.Logf("query question: first in its corpus %d of 20, in final_k %d of 20", first, final)
	if first < 16 || final < 18 {
		t.Errorf("query question: first in its corpus %d of 20 (≥ 16), in final_k %d (≥ 18)", first, final)
	}
	texts := rationales(t)
	p.Generator = recordedLLM(t, 8192, func(prompt string) string {
		for _, q := range qs {
			if strings.Contains(prompt, q.Stem) {
				return texts[q.ID]
			}
		}
		return ""
	})
	rFirst, rFinal := found(t, p, qs, Options{Query: QueryRationale})
	t.Logf("query rationale (a model of 135 million parameters): first %d, in final_k %d", rFirst, rFinal)
	bFirst, bFinal := found(t, p, qs, Options{Query: QueryQuestionRationale})
	t.Logf("query question+rationale: first %d, in final_k %d", bFirst, bFinal)
	if rFinal < 14 || bFinal < 16 {
		t.Errorf("in final_k: rationale %d (≥ 14), question+rationale %d (≥ 16)", rFinal, bFinal)
	}

	for _, s := range demoSources {
		shuffle(t, h, s.name)
	}
	first, final = found(t, &Pipeline{Encoder: enc, Corpora: openDemo(t, h, enc)}, qs, Options{Query: QueryQuestion, Exact: true})
	t.Logf("shuffled vectors: first %d, in final_k %d", first, final)
	if first >= 16 || final >= 18 {
		t.Errorf("shuffled vectors still find the evidence: first %d, final %d", first, final)
	}
}

// shuffle permutes a corpus's vectors and builds their graph anew.
func shuffle(t *testing.T, h home.Home, name string) {
	t.Helper()
	m, err := h.Manifest(name)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := h.DataDir(m)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "vectors.npy")
	a, err := npy.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]float32
	for i := range a.Rows() {
		rows = append(rows, slices.Clone(a.Row32(i, nil)))
	}
	a.Close()
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	w, err := npy.NewWriter(path, len(rows[0]), "<f4")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, r := range rows {
		if err := w.WriteRow(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := ingest.BuildGraph(t.Context(), h, name, ingest.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
}

func ExampleExtract() {
	key, explanation := Extract("Metformin hinders absorption in the ileum.\nThe answer is (B).", []Option{{"A", "Iron"}, {"B", "Vitamin B12"}})
	fmt.Println(key, "|", explanation)
	// Output: B | Metformin hinders absorption in the ileum.
}

// A real filter and a real cross-encoder (random weights): each snippet has its score
// and verdict, what is dropped says why, and an empty set is said to be empty.
func TestRerankAndFilter(t *testing.T) {
	enc := encoder(t, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	e, err := tensor.Open("native", tensor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	x, err := models.OpenCrossEncoder(e, tinyDir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	f, err := models.OpenFilter(e, "../testdata/t5/flan")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := &Pipeline{Encoder: enc, Corpora: openDemo(t, demoHome(t, enc), enc), CrossEncoder: x, Filter: f}
	tr, err := p.Retrieve(t.Context(), metformin, Options{K: 6, PerCorpusK: 4, Query: QueryQuestion}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	ranked, helpful := 0, 0
	for i, s := range tr.Snippets {
		if s.Rerank == nil {
			t.Fatalf("%s has no rerank score", s.ID)
		}
		if s.Verdict != nil {
			ranked++
			if s.Verdict.Helpful {
				helpful++
			}
			if s.Verdict.Helpful != (s.N > 0) || (s.N == 0) != strings.Contains(s.Dropped, "P(helpful)") {
				t.Errorf("%s: verdict %+v, number %d, dropped %q", s.ID, s.Verdict, s.N, s.Dropped)
			}
		} else if !strings.Contains(s.Dropped, "final_k") {
			t.Errorf("%s: no verdict, dropped %q", s.ID, s.Dropped)
		}
		if s.N > 0 && s.N != i+1 {
			t.Errorf("%s has number %d at place %d", s.ID, s.N, i)
		}
	}
	if len(tr.Snippets) != 16 || ranked != 6 || len(tr.Kept()) != helpful {
		t.Errorf("%d retrieved, %d judged, %d kept, %d helpful", len(tr.Snippets), ranked, len(tr.Kept()), helpful)
	}
	// A filter that drops all.
	p.Filter = none{f}
	for _, keep := range []bool{false, true} {
		tr, err := p.Retrieve(t.Context(), metformin, Options{K: 6, KeepBest: keep, Query: QueryQuestion}, Observer{})
		if err != nil {
			t.Fatal(err)
		}
		if (len(tr.Kept()) == 1) != keep || !strings.Contains(tr.Stages[4].Note, "every snippet") {
			t.Errorf("keep best %v: %d kept, %q", keep, len(tr.Kept()), tr.Stages[4].Note)
		}
	}
}

// none is a filter that finds nothing helpful.
type none struct{ models.Filter }

func (n none) Judge(ctx context.Context, q string, s []string) ([]models.Verdict, models.Report, error) {
	vs, r, err := n.Filter.Judge(ctx, q, s)
	for i := range vs {
		vs[i] = models.Verdict{}
	}
	return vs, r, err
}
