package tune

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"rag2/models"
	"rag2/pipeline/label"
)

// Judged is one pair with its label and a filter's probability.
type Judged struct {
	Question string  `json:"question"` // its id
	Helpful  bool    `json:"helpful"`  // the label
	P        float64 `json:"p"`        // that the filter gives to HELPFUL
}

// Set is a question with labelled snippets, as filters judge them: all at once.
type Set struct {
	ID, Question string
	Snippets     []string
	Helpful      []bool
}

// Sets takes the filter's template apart and puts the snippets of a question together,
// in the order of the records.
func Sets(rs []label.Record) ([]Set, error) {
	var out []Set
	at := map[string]int{}
	for i, r := range rs {
		q, s, ok := models.ParseFilterText(r.Question)
		if !ok {
			return nil, fmt.Errorf("record %d (%s): the text is not made by the filter's template", i, r.ID)
		}
		id := label.QuestionOf(r.ID)
		key := id + "\x00" + q
		k, ok := at[key]
		if !ok {
			k = len(out)
			at[key] = k
			out = append(out, Set{ID: id, Question: q})
		}
		out[k].Snippets = append(out[k].Snippets, s)
		out[k].Helpful = append(out[k].Helpful, r.Answer == label.TokenHelpful)
	}
	return out, nil
}

// Judge runs a filter on sets.
func Judge(ctx context.Context, f models.Filter, sets []Set, progress func(done, total int)) ([]Judged, error) {
	var out []Judged
	for i, s := range sets {
		vs, _, err := f.Judge(ctx, s.Question, s.Snippets)
		if err != nil {
			return nil, fmt.Errorf("question %s: %w", s.ID, err)
		}
		for k, v := range vs {
			out = append(out, Judged{s.ID, s.Helpful[k], v.P})
		}
		if progress != nil {
			progress(i+1, len(sets))
		}
	}
	return out, nil
}

// Bin is a bin of the reliability diagram.
type Bin struct {
	N       int     `json:"n"`
	P       float64 `json:"p"`       // mean probability
	Helpful float64 `json:"helpful"` // share of HELPFUL labels
}

// bins of the reliability diagram and of the calibration error.
const bins = 10

// FilterScores judge a filter. Intervals are over questions.
type FilterScores struct {
	Pairs     int      `json:"pairs"`
	Questions int      `json:"questions"`
	Helpful   int      `json:"helpful"`   // labels
	Threshold float64  `json:"threshold"` // P from which a pair counts as HELPFUL
	Accuracy  Interval `json:"accuracy"`
	// Majority is the accuracy of always saying the more frequent label, on the same
	// samples; Gain is Accuracy minus it.
	Majority     Interval  `json:"majority"`
	Gain         Interval  `json:"gain"`
	F1Helpful    Interval  `json:"f1_helpful"`
	F1NotHelpful Interval  `json:"f1_not_helpful"`
	AUROC        Interval  `json:"auroc"`
	ECE          Interval  `json:"ece"` // expected calibration error over ten bins
	Bins         [bins]Bin `json:"bins"`
}

// Scores computes them. Pairs need not be sorted.
func Scores(js []Judged, threshold float64) FilterScores {
	s := FilterScores{Pairs: len(js), Threshold: threshold}
	byQuestion := map[string][]Judged{}
	for _, j := range js {
		byQuestion[j.Question] = append(byQuestion[j.Question], j)
		if j.Helpful {
			s.Helpful++
		}
	}
	var ids []string
	for id := range byQuestion {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	s.Questions = len(ids)
	var sample []Judged
	iv := Bootstrap(len(ids), func(units []int) []float64 {
		sample = sample[:0]
		for _, u := range units {
			sample = append(sample, byQuestion[ids[u]]...)
		}
		c := count(sample, threshold)
		return []float64{c.accuracy(), c.majority(), c.accuracy() - c.majority(), c.f1(true), c.f1(false), auroc(sample), ece(binned(sample))}
	})
	s.Accuracy, s.Majority, s.Gain, s.F1Helpful, s.F1NotHelpful, s.AUROC, s.ECE = iv[0], iv[1], iv[2], iv[3], iv[4], iv[5], iv[6]
	s.Bins = binned(js)
	return s
}

// confusion counts pairs by label and verdict.
type confusion struct{ hh, hn, nh, nn float64 } // label, then verdict

func count(js []Judged, threshold float64) (c confusion) {
	for _, j := range js {
		switch said := j.P >= threshold; {
		case j.Helpful && said:
			c.hh++
		case j.Helpful:
			c.hn++
		case said:
			c.nh++
		default:
			c.nn++
		}
	}
	return
}

func (c confusion) all() float64      { return c.hh + c.hn + c.nh + c.nn }
func (c confusion) accuracy() float64 { return (c.hh + c.nn) / c.all() }
func (c confusion) majority() float64 { return max(c.hh+c.hn, c.nh+c.nn) / c.all() }

// f1 of a class; 0 where it is neither there nor said.
func (c confusion) f1(helpful bool) float64 {
	right := c.nn
	if helpful {
		right = c.hh
	}
	if d := 2*right + c.hn + c.nh; d > 0 {
		return 2 * right / d
	}
	return 0
}

// auroc is the probability that a helpful pair gets more than one that is not, ties
// counting half; NaN with one class.
func auroc(js []Judged) float64 {
	s := slices.Clone(js)
	slices.SortFunc(s, func(a, b Judged) int { return cmp.Compare(a.P, b.P) })
	sum, pos := 0.0, 0.0
	for i := 0; i < len(s); {
		k := i
		for k < len(s) && s[k].P == s[i].P {
			k++
		}
		rank := float64(i+k+1) / 2 // mean of ranks i+1 … k
		for ; i < k; i++ {
			if s[i].Helpful {
				sum += rank
				pos++
			}
		}
	}
	neg := float64(len(s)) - pos
	if pos == 0 || neg == 0 {
		return math.NaN()
	}
	return (sum - pos*(pos+1)/2) / (pos * neg)
}

func binned(js []Judged) (out [bins]Bin) {
	for _, j := range js {
		b := &out[min(int(j.P*bins), bins-1)]
		b.N++
		b.P += j.P
		if j.Helpful {
			b.Helpful++
		}
	}
	for i := range out {
		if n := float64(out[i].N); n > 0 {
			out[i].P /= n
			out[i].Helpful /= n
		}
	}
	return
}

func ece(bs [bins]Bin) float64 {
	sum, n := 0.0, 0.0
	for _, b := range bs {
		sum += float64(b.N) * math.Abs(b.P-b.Helpful)
		n += float64(b.N)
	}
	return sum / n
}

// BestThreshold is the probability from which calling a pair HELPFUL gives the highest
// accuracy on js, in the middle between two pairs; of equal ones that closest to 0.5.
func BestThreshold(js []Judged) float64 {
	s := slices.Clone(js)
	slices.SortFunc(s, func(a, b Judged) int { return cmp.Compare(a.P, b.P) })
	right := 0 // with every pair called HELPFUL
	for _, j := range s {
		if j.Helpful {
			right++
		}
	}
	best, most := 0.0, right
	try := func(t float64, right int) {
		if right > most || right == most && math.Abs(t-0.5) < math.Abs(best-0.5) {
			best, most = t, right
		}
	}
	for i, j := range s {
		if right--; !j.Helpful {
			right += 2
		}
		switch {
		case i+1 == len(s):
			try(1.0000001, right)
		case s[i+1].P > j.P:
			try((j.P+s[i+1].P)/2, right)
		}
	}
	return best
}
