package label

import (
	"fmt"
	"math"
	"slices"
)

// Label is a pair's label.
type Label string

// The labels. Discarded pairs train nothing.
const (
	Helpful    Label = "HELPFUL"
	NotHelpful Label = "NOT_HELPFUL"
	Discard    Label = "discard"
)

// Tokens of the authors' records.
const (
	TokenHelpful    = "[HELPFUL]"
	TokenNotHelpful = "[NOT_HELPFUL]"
)

// Cell is a row of Table: what a label depends on.
type Cell struct {
	RightWithout, RightWith bool
	Reaches                 bool // ΔPPL ≥ τ
}

// Table is the definition of the labels.
var Table = map[Cell]Label{
	// without, with, ΔPPL ≥ τ
	{true, true, true}:    Helpful,
	{true, true, false}:   Discard,
	{true, false, true}:   NotHelpful,
	{true, false, false}:  NotHelpful,
	{false, true, true}:   Helpful,
	{false, true, false}:  Helpful,
	{false, false, true}:  Discard,
	{false, false, false}: NotHelpful,
}

// Of is the label of a pair. delta and tau are nil where there is none: then the label
// is what Table gives whatever ΔPPL is, or Discard where ΔPPL matters.
func Of(rightWithout, rightWith bool, delta, tau *float64) Label {
	low, high := Table[Cell{rightWithout, rightWith, false}], Table[Cell{rightWithout, rightWith, true}]
	switch {
	case low == high:
		return low
	case delta == nil || tau == nil:
		return Discard
	case *delta >= *tau:
		return high
	}
	return low
}

// Tau is the ⌈n/4⌉-th largest of the n finite values; ok is false when there are none.
func Tau(deltas []float64) (tau float64, ok bool) {
	var v []float64
	for _, d := range deltas {
		if !math.IsNaN(d) && !math.IsInf(d, 0) {
			v = append(v, d)
		}
	}
	if len(v) == 0 {
		return 0, false
	}
	slices.Sort(v)
	return v[len(v)-(len(v)+3)/4], true
}

// Perplexity is exp of the mean negative log-probability (natural), or nil where that
// is not a finite number.
func Perplexity(logprobs []float32) *float64 {
	sum := 0.0
	for _, v := range logprobs {
		sum += float64(v)
	}
	p := math.Exp(-sum / float64(len(logprobs)))
	if math.IsNaN(p) || math.IsInf(p, 0) {
		return nil
	}
	return &p
}

// Populations of τ.
const (
	Global      = "global"       // one τ over all scored pairs
	PerQuestion = "per-question" // one τ for each question's pairs
)

// relabel fills what follows from the perplexities and answers: ΔPPL, τ and the label.
func relabel(questions []Question, tau *float64, population string) error {
	if population != Global && population != PerQuestion {
		return fmt.Errorf("population %q of τ; %s or %s", population, Global, PerQuestion)
	}
	var all []float64
	for i := range questions {
		q := &questions[i]
		var own []float64
		for j := range q.Pairs {
			p := &q.Pairs[j]
			p.RightWithout, p.PPLWithout, p.Delta = q.Right, q.PPL, nil
			if q.PPL != nil && p.PPL != nil {
				d := *q.PPL - *p.PPL
				p.Delta = &d
				own = append(own, d)
			}
		}
		all = append(all, own...)
		if population == PerQuestion && tau == nil {
			t, ok := Tau(own)
			for j := range q.Pairs {
				if q.Pairs[j].Tau = nil; ok {
					q.Pairs[j].Tau = &t
				}
			}
		}
	}
	if tau == nil && population == Global {
		if t, ok := Tau(all); ok {
			tau = &t
		}
	}
	for i := range questions {
		for j := range questions[i].Pairs {
			p := &questions[i].Pairs[j]
			if tau != nil || population == Global {
				p.Tau = tau
			}
			if p.Label = Discard; !p.Failed {
				p.Label = Of(p.RightWithout, p.Right, p.Delta, p.Tau)
			}
		}
	}
	return nil
}
