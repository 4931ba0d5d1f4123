package label

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"rag2/models"
	"rag2/pipeline"
)

func TestTableIsTheMethods(t *testing.T) {
	// SPEC: the paper's table; -1 discard, 0 not helpful, 1 helpful.
	want := []struct {
		without, with, reaches bool
		l                      Label
	}{
		{true, true, true, Helpful}, {true, true, false, Discard},
		{true, false, true, NotHelpful}, {true, false, false, NotHelpful},
		{false, true, true, Helpful}, {false, true, false, Helpful},
		{false, false, true, Discard}, {false, false, false, NotHelpful},
	}
	if len(Table) != len(want) {
		t.Fatalf("%d rows", len(Table))
	}
	tau, eps := 0.5, 1e-9
	for _, w := range want {
		if got := Table[Cell{w.without, w.with, w.reaches}]; got != w.l {
			t.Errorf("%+v: %s", w, got)
		}
		for _, d := range []float64{tau, tau + eps, tau - eps, 1e6, -1e6} {
			if (d >= tau) == w.reaches {
				if got := Of(w.without, w.with, &d, &tau); got != w.l {
					t.Errorf("%+v at %g: %s", w, d, got)
				}
			}
		}
		// Without ΔPPL a label stands only where ΔPPL does not matter.
		for _, x := range [][2]*float64{{nil, &tau}, {&tau, nil}, {nil, nil}} {
			if got := Of(w.without, w.with, x[0], x[1]); w.without != w.with && got != w.l || w.without == w.with && got != Discard {
				t.Errorf("%+v without ΔPPL: %s", w, got)
			}
		}
	}
}

func TestTau(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		in   []float64
		want float64
		ok   bool
	}{
		{nil, 0, false}, {[]float64{nan, inf, -inf}, 0, false}, {[]float64{3}, 3, true}, {[]float64{1, 2, 3, 4}, 4, true},
		{[]float64{1, 2, 3, 4, 5}, 4, true}, {[]float64{5, inf, 4, nan, 3, 2, 1}, 4, true}, {[]float64{2, 2, 2, 2, 1, 1, 1, 1}, 2, true},
		{[]float64{8, 7, 6, 5, 4, 3, 2, 1}, 7, true}, {[]float64{9, 8, 7, 6, 5, 4, 3, 2, 1}, 7, true},
	} {
		if got, ok := Tau(c.in); got != c.want || ok != c.ok {
			t.Errorf("%v: %g %v", c.in, got, ok)
		}
	}
}

func TestRelabelPopulations(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	file := func() *File {
		return &File{Questions: []Question{
			{ID: "1", PPL: f(10), Right: true, Pairs: []Pair{{PPL: f(9), Right: true}, {PPL: f(8), Right: true}, {PPL: nil, Right: true}}},
			{ID: "2", PPL: f(10), Right: true, Pairs: []Pair{{PPL: f(5), Right: true}, {PPL: f(5), Right: true}, {PPL: f(20), Right: false}, {Failed: true}}},
		}}
	}
	for _, c := range []struct {
		tau        *float64
		population string
		want       string
	}{
		{nil, Global, "ddd HHNd"}, {nil, PerQuestion, "dHd HHNd"}, {f(1.5), Global, "dHd HHNd"}, {f(-1), PerQuestion, "HHd HHNd"}, {f(6), Global, "ddd ddNd"},
	} {
		x := file()
		if err := x.Relabel(c.tau, c.population); err != nil {
			t.Fatal(err)
		}
		got := ""
		for i, q := range x.Questions {
			if i > 0 {
				got += " "
			}
			for _, p := range q.Pairs {
				got += string(p.Label[0])
			}
		}
		if got != c.want {
			t.Errorf("τ %v %s: %s, want %s", c.tau, c.population, got, c.want)
		}
	}
	if file().Relabel(nil, "local") == nil {
		t.Error("an unknown population passes")
	}
}

// fake is a model whose numbers depend on the prompt alone.
type fake struct {
	calls atomic.Int32
	limit int32 // calls until it fails; 0 = never
}

var errStopped = errors.New("stopped")

func (f *fake) call(ctx context.Context) error {
	if n := f.calls.Add(1); f.limit > 0 && n > f.limit {
		return errStopped
	}
	return ctx.Err()
}

func sum(s string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s))
	return mix(h.Sum32())
}

func (f *fake) Chat(ctx context.Context, m []models.Message, _ models.GenerateOptions) (models.Completion, error) {
	text := fmt.Sprintf("Reason %d is clear.\nThe answer is (%c).", sum(m[0].Content)%7, 'A'+rune(sum(m[0].Content)%2))
	ids := make([]int, len(text))
	for i := range text {
		ids[i] = int(text[i])
	}
	return models.Completion{Text: text, Tokens: ids, NewTokens: len(ids), FinishReason: "stop"}, f.call(ctx)
}
func (f *fake) CountTokens(m []models.Message) (int, bool) { return len(m[0].Content), true }
func (f *fake) ContextLength() int                         { return 900 }
func (f *fake) Name() string                               { return "fake" }
func (f *fake) Close() error                               { return nil }
func (f *fake) Forget()                                    {}
func (f *fake) DecodeTokens(ids []int) string {
	b := make([]byte, len(ids))
	for i, id := range ids {
		b[i] = byte(id)
	}
	return string(b)
}
func (f *fake) ScoreTokens(ctx context.Context, m []models.Message, ids []int) ([]float64, error) {
	out := make([]float64, len(ids))
	for i := range ids {
		out[i] = -float64(sum(m[0].Content+f.DecodeTokens(ids[:i+1]))%1000) / 700
	}
	return out, f.call(ctx)
}
func (f *fake) ScoreContinuation(ctx context.Context, m []models.Message, s string) ([]int, []float64, error) {
	ids := make([]int, len(s))
	for i := range s {
		ids[i] = int(s[i])
	}
	lp, err := f.ScoreTokens(ctx, m, ids)
	return ids, lp, err
}

// batching is a fake that leads conversations together and ends them last first.
type batching struct{ *fake }

func (f batching) ChatBatch(ctx context.Context, jobs []models.BatchJob, _ int, done func(int, models.BatchResult) error) error {
	for i := len(jobs) - 1; i >= 0; i-- {
		j := jobs[i]
		var r models.BatchResult
		var err error
		if len(j.Score) > 0 {
			if r.Score, err = f.ScoreTokens(ctx, j.Messages, j.Score); err != nil {
				return err
			}
		}
		if !j.ScoreOnly {
			if r.Completion, err = f.Chat(ctx, j.Messages, j.Options); err != nil {
				return err
			}
		}
		if err := done(i, r); err != nil {
			return err
		}
	}
	return nil
}

// Together or one by one, the file is the same; a stopped run resumes.
func TestTogether(t *testing.T) {
	for _, o := range []Options{{}, {Scored: ScoreQuestion}, {Answers: pipeline.AnswerLogprob}} {
		dir := t.TempDir()
		its := items(11)
		its[3].Snippets[1].Text = strings.Repeat("long ", 300)
		its[4].Snippets[0].Text = strings.Repeat("long ", 100) // fits with the answer only
		one, all := filepath.Join(dir, "one"), filepath.Join(dir, "all")
		if _, err := (&Labeler{Generator: &fake{}, Prompts: prompts(t)}).Run(t.Context(), its, o, one); err != nil {
			t.Fatal(err)
		}
		f := &fake{limit: 40}
		for i := 0; ; i++ {
			if _, err := (&Labeler{Generator: batching{f}, Prompts: prompts(t)}).Run(t.Context(), its, o, all); err == nil {
				break
			} else if !errors.Is(err, errStopped) || i > 20 {
				t.Fatal(err)
			}
			f = &fake{limit: 40}
		}
		a, _ := os.ReadFile(one)
		b, _ := os.ReadFile(all)
		if !bytes.Equal(a, b) {
			t.Errorf("%+v: another file", o)
		}
	}
}

func items(n int) []Item {
	var out []Item
	for i := range n {
		it := Item{Question: pipeline.Question{ID: fmt.Sprint(i), Stem: fmt.Sprintf("Question %d?", i), Options: []pipeline.Option{{Key: "A", Text: "one"}, {Key: "B", Text: "two"}}, Gold: "A"}}
		for j := range 3 {
			it.Snippets = append(it.Snippets, Snippet{ID: fmt.Sprint(j), Corpus: []string{"x", "y", "<z>"}[j], Text: fmt.Sprintf("Evidence %d.", j)})
		}
		out = append(out, it)
	}
	return out
}

func prompts(t testing.TB) *pipeline.Prompts {
	t.Helper()
	p, err := pipeline.LoadPrompts("")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRun(t *testing.T) {
	out := filepath.Join(t.TempDir(), "labels.jsonl")
	its := items(8)
	its[3].Snippets[1].Text = strings.Repeat("long ", 300)
	l := &Labeler{Generator: &fake{}, Prompts: prompts(t)}
	f, err := l.Run(t.Context(), its, Options{}, out)
	if err != nil {
		t.Fatal(err)
	}
	var deltas []float64
	for i, q := range f.Questions {
		if !strings.HasPrefix(q.Rationale, "Reason ") || strings.Contains(q.Rationale, "answer") || len(q.Tokens) != len(q.Rationale) || len(q.Logprobs) != len(q.Tokens) {
			t.Fatalf("question %d: scored text %q, %d tokens, %d log-probabilities", i, q.Rationale, len(q.Tokens), len(q.Logprobs))
		}
		mean := 0.0
		for _, v := range q.Logprobs {
			mean += float64(v) / float64(len(q.Logprobs))
		}
		if math.Abs(*q.PPL-math.Exp(-mean)) > 1e-9 {
			t.Errorf("PPL %g, want %g", *q.PPL, math.Exp(-mean))
		}
		for j, p := range q.Pairs {
			if i == 3 && j == 1 {
				if p.Label != Discard || !p.Failed || p.Unscored == "" {
					t.Errorf("a snippet that does not fit: %+v", p)
				}
				continue
			}
			if *p.Delta != *q.PPL-*p.PPL || p.Label != Of(q.Right, p.Right, p.Delta, p.Tau) {
				t.Errorf("pair %d %d: %+v", i, j, p)
			}
			deltas = append(deltas, *p.Delta)
		}
	}
	if tau, _ := Tau(deltas); *f.Questions[0].Pairs[0].Tau != tau {
		t.Errorf("τ %g, want %g", *f.Questions[0].Pairs[0].Tau, tau)
	}
	// What was written reads back and relabels without the model to the same bytes.
	g, err := Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Relabel(nil, Global); err != nil {
		t.Fatal(err)
	}
	again := out + ".2"
	if err := g.Write(again); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(out)
	b, _ := os.ReadFile(again)
	if !bytes.Equal(a, b) {
		t.Error("relabelling with the same threshold changes the file")
	}
	html, err := Report(f, g)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "&lt;z&gt;", "24 of 24 agree (100.0 %)", "does not fit"} {
		if !bytes.Contains(html, []byte(want)) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, no := range []string{"Question 1", "Evidence 1", "http"} {
		if bytes.Contains(html, []byte(no)) {
			t.Errorf("the report holds %q", no)
		}
	}
	rs := f.Records("d")
	train, dev := Split(rs, 0.4)
	if len(train)+len(dev) != len(rs) || len(dev) == 0 || len(train) == 0 {
		t.Errorf("%d records in %d and %d", len(rs), len(train), len(dev))
	}
	path := filepath.Join(t.TempDir(), "r.json")
	if err := WriteRecords(path, rs); err != nil {
		t.Fatal(err)
	}
	if back, err := ReadRecords(path); err != nil || len(back) != len(rs) || back[0] != rs[0] || !strings.HasPrefix(back[0].Question, "Given the following evidence") {
		t.Errorf("%v %v", back, err)
	}
}

func TestStoppedAnywhereAndResumedGivesTheSameFile(t *testing.T) {
	for name, o := range map[string]Options{"text": {}, "scored options, the question": {Answers: pipeline.AnswerLogprob, Scored: ScoreQuestion}} {
		dir := t.TempDir()
		whole := filepath.Join(dir, "whole")
		f := &fake{}
		if _, err := (&Labeler{Generator: f, Prompts: prompts(t)}).Run(t.Context(), items(4), o, whole); err != nil {
			t.Fatal(err)
		}
		want, _ := os.ReadFile(whole)
		calls := f.calls.Load()
		for stop := int32(1); stop < calls; stop += 3 {
			out := filepath.Join(dir, fmt.Sprint(stop))
			used := int32(0)
			for i := 0; ; i++ {
				f := &fake{limit: stop}
				_, err := (&Labeler{Generator: f, Prompts: prompts(t)}).Run(t.Context(), items(4), o, out)
				used += f.calls.Load()
				if err == nil {
					break
				}
				if !errors.Is(err, errStopped) {
					t.Fatal(err)
				}
				// A killed process may leave half a line.
				j, _ := os.OpenFile(out+".journal", os.O_APPEND|os.O_WRONLY, 0)
				_, _ = j.WriteString(`{"pair":{"question_id":"1","n"`)
				j.Close()
				if stop < 4 { // too few calls for a piece of work: it never ends
					used = 0
					break
				}
			}
			if used == 0 {
				continue
			}
			got, err := os.ReadFile(out)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s, stopped after %d calls: another file (%v)", name, stop, err)
			}
			if _, err := os.Stat(out + ".journal"); err == nil {
				t.Error("the journal stays")
			}
		}
	}
}

func TestJournalOfAnotherJobIsRefused(t *testing.T) {
	out := filepath.Join(t.TempDir(), "l")
	l := &Labeler{Generator: &fake{limit: 6}, Prompts: prompts(t)}
	if _, err := l.Run(t.Context(), items(3), Options{}, out); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	l.Generator = &fake{}
	if _, err := l.Run(t.Context(), items(2), Options{}, out); !errors.Is(err, ErrJournal) {
		t.Errorf("%v", err)
	}
	if _, err := l.Run(t.Context(), items(3), Options{AnswerTokens: 9}, out); !errors.Is(err, ErrJournal) {
		t.Errorf("%v", err)
	}
	// τ is no part of the model's work.
	if _, err := l.Run(t.Context(), items(3), Options{Population: PerQuestion}, out); err != nil {
		t.Errorf("%v", err)
	}
}

func TestBadFiles(t *testing.T) {
	for name, s := range map[string]string{
		"empty": "", "no settings": `{"kind":"question"}`, "no JSON": "x", "format": `{"kind":"settings","format":9}`,
		"stray pair":  `{"kind":"settings","format":1}` + "\n" + `{"kind":"pair","question_id":"1"}`,
		"kind":        `{"kind":"settings","format":1}` + "\n" + `{"kind":"x"}`,
		"twice":       `{"kind":"settings","format":1}` + "\n" + `{"kind":"settings","format":1}`,
		"wrong types": `{"kind":"settings","format":1}` + "\n" + `{"kind":"question","tokens":"a"}`,
	} {
		p := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(p, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(p); err == nil {
			t.Errorf("%s is read", name)
		}
	}
	p := filepath.Join(t.TempDir(), "q")
	for name, s := range map[string]string{
		"no gold": `{"question":"q","options":{"A":"x","B":"y"}}`, "empty snippet": `{"question":"q","options":{"A":"x","B":"y"},"answer":"A","snippets":[{"text":" "}]}`,
		"twice": strings.Repeat(`{"id":"1","question":"q","options":{"A":"x","B":"y"},"answer":"A"}`+"\n", 2),
	} {
		if err := os.WriteFile(p, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadItems(p, 0); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

// Only the explanation is scored, wherever the answer stands.
func TestCut(t *testing.T) {
	r := &labelRun{seq: &fake{}}
	options := []pipeline.Option{{Key: "A", Text: "Aspirin"}, {Key: "B", Text: "Folate"}}
	for text, want := range map[string]string{
		"Reason 1 is clear.\nThe answer is (B).": "Reason 1 is clear.",
		"The answer is (B).\nReason 1 is clear.": "\nReason 1 is clear.",
		"Answer: B. Folate\n\nReason.  ":         "\n\nReason.",
		"The answer is (B).":                     "",
	} {
		c := models.Completion{Text: text}
		for i := range text {
			c.Tokens = append(c.Tokens, int(text[i]))
		}
		key, explanation := pipeline.Extract(text, options)
		if got := r.seq.DecodeTokens(r.cut(c, explanation)); key != "B" || strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%q: %q, %q is scored, want %q", text, key, got, want)
		}
	}
}
