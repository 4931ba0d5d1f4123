package tune

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"rag2/models"
	"rag2/pipeline"
)

// Arms that every comparison of answers has beside those of the judges.
const (
	ArmNoEvidence = "no evidence" // the question alone
	ArmNoFilter   = "no filter"   // every snippet that was retrieved and ranked
)

// AnswerJudge is a filter whose effect is measured.
type AnswerJudge struct {
	Name      string
	Filter    models.Filter
	Threshold float64 // probability of HELPFUL from which it keeps a snippet
}

// Outcome is the answer to a question in one arm.
type Outcome struct {
	Question string   `json:"question"` // its id
	Kept     []string `json:"kept"`     // ids of the snippets that the answer rests on
	Option   string   `json:"option"`   // "" = unanswered
	Right    bool     `json:"right"`
	// PGold is the probability of the right option; nil where the model gives none.
	PGold *float64 `json:"p_gold,omitempty"`
}

// Answering answers questions in several arms: without evidence, with all that is
// retrieved, and with what each judge keeps of it.
type Answering struct {
	Pipeline *pipeline.Pipeline // its Filter is not used
	Judges   []AnswerJudge
	Options  pipeline.Options
	// Journal keeps finished questions; a run that was stopped goes on there. "" = none.
	Journal  string
	Progress func(done, total int) // nil is fine
}

// Arm names a way to choose the evidence; Threshold is the judge's, 0 without one.
type Arm struct {
	Name      string
	Threshold float64
}

// Arms are those of the run, in the order of the outcomes.
func (a *Answering) Arms() []Arm {
	out := []Arm{{Name: ArmNoEvidence}, {Name: ArmNoFilter}}
	for _, j := range a.Judges {
		out = append(out, Arm{j.Name, j.Threshold})
	}
	return out
}

// Run gives the outcomes: out[arm][question]. Questions must have options and a known
// answer.
func (a *Answering) Run(ctx context.Context, qs []pipeline.Question) ([][]Outcome, error) {
	for _, q := range qs {
		if len(q.Options) == 0 || q.Gold == "" {
			return nil, fmt.Errorf("%w: question %s: answers are compared by their option; it has none, or its right one is not given", pipeline.ErrQuestion, q.ID)
		}
	}
	j, err := a.openJournal()
	if err != nil {
		return nil, err
	}
	defer j.close()
	arms := len(a.Arms())
	out := make([][]Outcome, arms)
	for i, q := range qs {
		row, err := j.find(q)
		if err == nil && row == nil {
			if row, err = a.question(ctx, q); err == nil {
				err = j.add(q, row)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("question %s: %w", q.ID, err)
		}
		for k := range row {
			out[k] = append(out[k], row[k])
		}
		if a.Progress != nil {
			a.Progress(i+1, len(qs))
		}
	}
	return out, nil
}

// question gives the outcome of each arm. The stages before the filter run once, and arms
// that keep the same snippets share one answer.
func (a *Answering) question(ctx context.Context, q pipeline.Question) ([]Outcome, error) {
	p := *a.Pipeline
	p.Filter = nil
	all, err := p.Retrieve(ctx, q, a.Options, pipeline.Observer{})
	if err != nil {
		return nil, err
	}
	none := *all
	none.Snippets = nil
	traces := []*pipeline.Trace{&none, all}
	for _, j := range a.Judges {
		o := a.Options
		o.Threshold = j.Threshold
		p.Filter = j.Filter
		t, err := p.FilterGiven(ctx, q, all, o)
		if err != nil {
			return nil, fmt.Errorf("judge %s: %w", j.Name, err)
		}
		traces = append(traces, t)
	}
	var out []Outcome
	done := map[string]Outcome{}
	for _, t := range traces {
		var ids []string
		for _, s := range t.Kept() {
			ids = append(ids, s.ID)
		}
		key := strings.Join(ids, "\x00")
		x, ok := done[key]
		if !ok {
			ans, err := p.AnswerGiven(ctx, q, t, a.Options)
			if err != nil {
				return nil, err
			}
			x = Outcome{Question: q.ID, Kept: []string{}, Option: ans.Option, Right: ans.Option == q.Gold}
			for _, s := range ans.Trace.Kept() { // fewer where the model's context was full
				x.Kept = append(x.Kept, s.ID)
			}
			if g, ok := ans.Probabilities[q.Gold]; ok {
				x.PGold = &g
			}
			done[key] = x
		}
		out = append(out, x)
	}
	return out, nil
}

// AnswerScores are an arm's. Intervals are over questions; gains are paired by question.
type AnswerScores struct {
	Arm        string   `json:"arm"`
	Threshold  *float64 `json:"threshold,omitempty"` // of the judge
	Kept       float64  `json:"kept"`                // snippets of a question that the answer rests on, mean
	Without    int      `json:"without"`             // questions left without a snippet
	Unanswered int      `json:"unanswered"`
	Accuracy   Interval `json:"accuracy"` // an unanswered question is wrong
	// GainEvidence and GainFilter are Accuracy minus that of ArmNoEvidence and ArmNoFilter.
	GainEvidence Interval `json:"gain_over_no_evidence"`
	GainFilter   Interval `json:"gain_over_no_filter"`
	Mended       int      `json:"mended"` // wrong without the filter, right here
	Broken       int      `json:"broken"` // right without the filter, wrong here
	// PGold is the mean probability of the right option, GainPGold that minus ArmNoFilter's;
	// nil where the model gives no probabilities.
	PGold     *Interval `json:"p_gold,omitempty"`
	GainPGold *Interval `json:"gain_p_gold,omitempty"`
	Outcomes  []Outcome `json:"outcomes"`
}

// AnswerComparison is what filters do to the answers to some questions.
type AnswerComparison struct {
	Questions int            `json:"questions"`
	Model     string         `json:"model"`
	Settings  any            `json:"settings"`
	Arms      []AnswerScores `json:"arms"`
}

// CompareAnswers scores the outcomes of arms, among them the two without a judge.
func CompareAnswers(arms []Arm, outcomes [][]Outcome) ([]AnswerScores, error) {
	none := slices.IndexFunc(arms, func(a Arm) bool { return a.Name == ArmNoEvidence })
	all := slices.IndexFunc(arms, func(a Arm) bool { return a.Name == ArmNoFilter })
	if none < 0 || all < 0 {
		return nil, fmt.Errorf("answers are compared with those without evidence and without a filter; an arm is missing")
	}
	out := make([]AnswerScores, len(arms))
	for k, os := range outcomes {
		s := AnswerScores{Arm: arms[k].Name, Outcomes: os}
		if t := arms[k].Threshold; t > 0 {
			s.Threshold = &t
		}
		known := true
		for i, o := range os {
			s.Kept += float64(len(o.Kept)) / float64(len(os))
			s.Without += number(len(o.Kept) == 0)
			s.Unanswered += number(o.Option == "")
			s.Mended += number(o.Right && !outcomes[all][i].Right)
			s.Broken += number(!o.Right && outcomes[all][i].Right)
			known = known && o.PGold != nil && outcomes[all][i].PGold != nil
		}
		iv := Bootstrap(len(os), func(units []int) []float64 {
			var m [5]float64
			for _, u := range units {
				right := float64(number(os[u].Right))
				m[0] += right
				m[1] += right - float64(number(outcomes[none][u].Right))
				m[2] += right - float64(number(outcomes[all][u].Right))
				if known {
					m[3] += *os[u].PGold
					m[4] += *os[u].PGold - *outcomes[all][u].PGold
				}
			}
			for i := range m {
				m[i] /= float64(len(units))
			}
			return m[:]
		})
		s.Accuracy, s.GainEvidence, s.GainFilter = iv[0], iv[1], iv[2]
		if known {
			s.PGold, s.GainPGold = &iv[3], &iv[4]
		}
		out[k] = s
	}
	return out, nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
