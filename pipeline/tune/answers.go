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

// Asked is a question with what was retrieved for it, before any filter.
type Asked struct {
	Question pipeline.Question
	Trace    *pipeline.Trace
}

// AskRetrieval does the stages before the filter for each question, once for all arms.
// Questions must have options and a known answer.
func AskRetrieval(ctx context.Context, p *pipeline.Pipeline, qs []pipeline.Question, o pipeline.Options, progress func(done, total int)) ([]Asked, error) {
	for _, q := range qs {
		if len(q.Options) == 0 || q.Gold == "" {
			return nil, fmt.Errorf("%w: question %s: answers are compared by their option; it has none, or its right one is not given", pipeline.ErrQuestion, q.ID)
		}
	}
	bare := *p
	bare.Filter = nil
	out := make([]Asked, len(qs))
	for i, q := range qs {
		t, err := bare.Retrieve(ctx, q, o, pipeline.Observer{})
		if err != nil {
			return nil, fmt.Errorf("question %s: %w", q.ID, err)
		}
		out[i] = Asked{q, t}
		if progress != nil {
			progress(i+1, len(qs))
		}
	}
	return out, nil
}

// Arm is one way to choose the evidence: a trace for each question.
type Arm struct {
	Name string
	// Threshold is the judge's; 0 without one.
	Threshold float64
	Traces    []*pipeline.Trace
}

// PlainArms are the arms without a judge.
func PlainArms(as []Asked) []Arm {
	none, all := Arm{Name: ArmNoEvidence}, Arm{Name: ArmNoFilter}
	for _, a := range as {
		empty := *a.Trace
		empty.Snippets = nil
		none.Traces, all.Traces = append(none.Traces, &empty), append(all.Traces, a.Trace)
	}
	return []Arm{none, all}
}

// JudgeArm lets a filter choose, as the pipeline does, with o.Threshold and o.KeepBest.
func JudgeArm(ctx context.Context, p *pipeline.Pipeline, name string, f models.Filter, as []Asked, o pipeline.Options, progress func(done, total int)) (Arm, error) {
	with := *p
	with.Filter = f
	arm := Arm{Name: name, Threshold: o.Threshold}
	for i, a := range as {
		t, err := with.FilterGiven(ctx, a.Question, a.Trace, o)
		if err != nil {
			return arm, fmt.Errorf("question %s: %w", a.Question.ID, err)
		}
		arm.Traces = append(arm.Traces, t)
		if progress != nil {
			progress(i+1, len(as))
		}
	}
	return arm, nil
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

// AnswerArms answers each question in each arm: out[arm][question]. Arms that keep the
// same snippets of a question share one answer.
func AnswerArms(ctx context.Context, p *pipeline.Pipeline, as []Asked, arms []Arm, o pipeline.Options, progress func(done, total int)) ([][]Outcome, error) {
	out := make([][]Outcome, len(arms))
	for i, a := range as {
		done := map[string]Outcome{}
		for k, arm := range arms {
			var ids []string
			for _, s := range arm.Traces[i].Kept() {
				ids = append(ids, s.ID)
			}
			key := strings.Join(ids, "\x00")
			x, ok := done[key]
			if !ok {
				ans, err := p.AnswerGiven(ctx, a.Question, arm.Traces[i], o)
				if err != nil {
					return nil, fmt.Errorf("question %s, %s: %w", a.Question.ID, arm.Name, err)
				}
				x = Outcome{Question: a.Question.ID, Kept: []string{}, Option: ans.Option, Right: ans.Option == a.Question.Gold}
				for _, s := range ans.Trace.Kept() { // fewer where the model's context was full
					x.Kept = append(x.Kept, s.ID)
				}
				if g, ok := ans.Probabilities[a.Question.Gold]; ok {
					x.PGold = &g
				}
				done[key] = x
			}
			out[k] = append(out[k], x)
		}
		if progress != nil {
			progress(i+1, len(as))
		}
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

// CompareAnswers scores the outcomes of arms, among them the two of PlainArms.
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
