package models

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
)

// yesMan says Yes to prompts that hold a word, with log-probabilities of two tokens.
type yesMan struct {
	word    string
	prompts []string
	nan     bool
}

func (y *yesMan) Chat(context.Context, []Message, GenerateOptions) (Completion, error) {
	return Completion{}, errors.New("not asked to write")
}
func (y *yesMan) CountTokens(m []Message) (int, bool) { return len(m[0].Content), true }
func (y *yesMan) ContextLength() int                  { return 1 << 20 }
func (y *yesMan) Name() string                        { return "yes" }
func (y *yesMan) Close() error                        { return errors.New("the filter does not own the model") }
func (y *yesMan) ScoreContinuation(_ context.Context, m []Message, text string) ([]int, []float64, error) {
	y.prompts = append(y.prompts, m[0].Content)
	v := -2.0
	if strings.Contains(m[0].Content, y.word) == (text == "Yes") {
		v = -0.25
	}
	if y.nan {
		v = math.NaN()
	}
	return []int{1, 2}, []float64{v, v}, nil
}

// mute is a generator without log-probabilities.
type mute struct{ Generator }

func (mute) Name() string { return "mute" }

func TestLLMFilter(t *testing.T) {
	if _, err := NewLLMFilter(mute{}, false); err == nil || !strings.Contains(err.Error(), "mute") {
		t.Errorf("a model without log-probabilities: %v", err)
	}
	y := &yesMan{word: "blue"}
	f, err := NewLLMFilter(y, false)
	if err != nil {
		t.Fatal(err)
	}
	vs, _, err := f.Judge(t.Context(), "which?", []string{"it is blue", "it is red"})
	if err != nil {
		t.Fatal(err)
	}
	p := 1 / (1 + math.Exp(-3.5)) // −0.5 against −4
	if !vs[0].Helpful || vs[1].Helpful || math.Abs(vs[0].P-p) > 1e-12 || math.Abs(vs[1].P-(1-p)) > 1e-12 {
		t.Errorf("%+v", vs)
	}
	y = &yesMan{word: "is [2] among"}
	j, err := NewLLMFilter(y, true)
	if err != nil {
		t.Fatal(err)
	}
	if vs, _, err = j.Judge(t.Context(), "which?", []string{"it is blue", "it is red"}); err != nil || vs[0].Helpful || !vs[1].Helpful {
		t.Errorf("%+v, %v", vs, err)
	}
	for _, p := range y.prompts {
		if !strings.Contains(p, "[1] it is blue") || !strings.Contains(p, "[2] it is red") {
			t.Errorf("a joint judgement does not see the whole set: %q", p)
		}
	}
	if f.Fingerprint() == j.Fingerprint() {
		t.Error("two filters, one fingerprint")
	}
	f, _ = NewLLMFilter(&yesMan{nan: true}, false)
	if _, _, err := f.Judge(t.Context(), "q", []string{"s"}); !errors.Is(err, ErrNotFinite) {
		t.Errorf("NaN: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
