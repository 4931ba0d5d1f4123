package pipeline

import (
	"reflect"
	"strings"
	"testing"

	"rag2/models"
	"rag2/tensor"
)

// Stages one by one give what Ask gives, and leave the traces that they start from alone.
func TestGivenStagesAreThoseOfAsk(t *testing.T) {
	enc := encoder(t, tinyDir, models.EncoderSpec{QueryTokens: 64, ArticleTokens: 64})
	e, err := tensor.Open("native", tensor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f, err := models.OpenFilter(e, "../testdata/t5/flan")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g := recordedLLM(t, 4096, func(prompt string) string {
		if isRationale(prompt) {
			return "Metformin lowers vitamin B12.\nThe answer is (A)."
		}
		return "It is what the excerpts say [1].\nThe answer is (A)."
	})
	bare := &Pipeline{Encoder: enc, Corpora: openDemo(t, demoHome(t, enc), enc), Generator: g}
	o := Options{K: 6, PerCorpusK: 3, Threshold: 0.5}
	before, err := bare.Retrieve(t.Context(), metformin, o, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	with := *bare
	with.Filter = f
	// A threshold between the probabilities, so that some are kept and some are not.
	want, err := with.Ask(t.Context(), metformin, o, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	low, high := 1.0, 0.0
	for _, s := range want.Trace.Snippets {
		if s.Verdict != nil {
			low, high = min(low, s.Verdict.P), max(high, s.Verdict.P)
		}
	}
	o.Threshold = (low + high) / 2
	if want, err = with.Ask(t.Context(), metformin, o, Observer{}); err != nil {
		t.Fatal(err)
	}
	asked := g.prompts[len(g.prompts)-1]
	untouched := append([]Snippet(nil), before.Snippets...)
	filtered, err := with.FilterGiven(t.Context(), metformin, before, o)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(filtered.Kept()); n == 0 || n == 6 || !reflect.DeepEqual(filtered.Snippets, want.Trace.Snippets) {
		t.Errorf("%d kept: %+v\nwant %+v", n, filtered.Snippets, want.Trace.Snippets)
	}
	if !reflect.DeepEqual(untouched, before.Snippets) {
		t.Error("the trace without a filter was changed")
	}
	got, err := with.AnswerGiven(t.Context(), metformin, filtered, o)
	if err != nil || got.Option != "A" || got.Option != want.Option || g.prompts[len(g.prompts)-1] != asked {
		t.Errorf("%+v, %v; prompt %q, want %q", got, err, g.prompts[len(g.prompts)-1], asked)
	}
	// Without a snippet the prompt says so.
	empty := *before
	empty.Snippets = nil
	if got, err = with.AnswerGiven(t.Context(), metformin, &empty, o); err != nil || got.Option != "A" || !strings.Contains(g.prompts[len(g.prompts)-1], "No excerpts") {
		t.Errorf("%+v, %v", got, err)
	}
}
