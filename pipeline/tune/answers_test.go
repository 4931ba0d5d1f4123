package tune

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"rag2/pipeline"
)

// The figures by hand: four questions, of which the filter mends one and breaks none.
func TestCompareAnswers(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	row := func(options string, kept int, probabilities ...float64) []Outcome {
		var out []Outcome
		for i, o := range options {
			x := Outcome{Question: string(rune('1' + i)), Option: strings.Trim(string(o), "-"), Kept: make([]string, kept), Right: o == 'A'}
			if len(probabilities) > 0 {
				x.PGold = p(probabilities[i])
			}
			out = append(out, x)
		}
		return out
	}
	arms := []Arm{{Name: ArmNoEvidence}, {Name: ArmNoFilter}, {Name: "judge", Threshold: 0.4}}
	outcomes := [][]Outcome{row("ABBB", 0, .25, .25, .25, .25), row("A-BA", 8, .5, .1, .1, .5), row("AABA", 2, .5, .4, .2, .5)}
	got, err := CompareAnswers(arms, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "accuracy without evidence", got[0].Accuracy.Value, 0.25)
	near(t, "accuracy without a filter", got[1].Accuracy.Value, 0.5)
	j := got[2]
	near(t, "accuracy", j.Accuracy.Value, 0.75)
	near(t, "gain over no evidence", j.GainEvidence.Value, 0.5)
	near(t, "gain over no filter", j.GainFilter.Value, 0.25)
	near(t, "P(right)", j.PGold.Value, 0.4)
	near(t, "gain in it", j.GainPGold.Value, 0.1)
	near(t, "kept", j.Kept, 2)
	if j.Mended != 1 || j.Broken != 0 || j.Unanswered != 0 || got[1].Unanswered != 1 || got[0].Without != 4 || got[0].Broken != 1 || *j.Threshold != 0.4 || got[1].Threshold != nil {
		t.Errorf("%+v", got)
	}
	// Paired: no sample gives the mended arm less, though the intervals of both overlap.
	if j.GainFilter.Low < 0 || j.Accuracy.Low >= got[1].Accuracy.High || got[1].GainFilter != (Interval{}) {
		t.Errorf("%+v", j)
	}
	outcomes[2][1].PGold = nil
	if got, err = CompareAnswers(arms, outcomes); err != nil || got[2].PGold != nil || got[1].PGold == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := CompareAnswers(arms[1:], outcomes[1:]); err == nil {
		t.Error("compared with an arm that is not there")
	}
	if _, err := (&Answering{}).Run(t.Context(), []pipeline.Question{{ID: "7", Stem: "Why?"}}); !errors.Is(err, pipeline.ErrQuestion) || !strings.Contains(err.Error(), "7") {
		t.Errorf("an open question: %v", err)
	}
}

// A figure that does not exist is null, not a failure of everything.
func TestMissingFigureInJSON(t *testing.T) {
	s := Scores([]Judged{{"1", true, 0.7}, {"2", true, 0.2}}, 0.5)
	b, err := json.Marshal(s)
	if err != nil || !math.IsNaN(s.AUROC.Value) || !strings.Contains(string(b), `"auroc":{"value":null,`) {
		t.Errorf("%s, %v", b, err)
	}
}
