package tune

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"rag2/models"
)

// Text is a line of a file of texts: a passage with or without a title, or a question.
type Text struct {
	Title    string `json:"title"`
	Text     string `json:"text"`
	Content  string `json:"content"`  // another name of text
	Question string `json:"question"` // and another
}

// ReadTexts reads JSON lines of texts, .gz too, at most first of them (0 = all).
func ReadTexts(path string, first int) ([]models.Article, error) {
	lines, err := readLines(path, "texts", func(t *Text) error {
		t.Text = cmp.Or(t.Text, t.Content, t.Question)
		if strings.TrimSpace(t.Text) == "" {
			return fmt.Errorf("no text, content or question")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if first > 0 && len(lines) > first {
		lines = lines[:first]
	}
	out := make([]models.Article, len(lines))
	for i, t := range lines {
		out[i] = models.Article{Title: t.Title, Body: t.Text}
	}
	return out, nil
}

// VectorQuality is what vectors of lower precision lose.
type VectorQuality struct {
	MinCosine  float64 `json:"min_cosine"` // over all vectors, to the reference's
	MeanCosine float64 `json:"mean_cosine"`
	Recall     float64 `json:"recall"` // share of the reference's k best passages found, mean over queries
	// Depth is the number of the passages found that must be kept for the k best of the
	// reference to lie among them for 99 % of (query, passage): what rescoring must read.
	Depth int `json:"depth"`
}

// CompareVectors compares queries and passages, both encoded twice, by the inner product:
// the k best passages of every query among all. Memory is one score per passage.
func CompareVectors(refQ, refP, q, p [][]float32, k int) VectorQuality {
	r := VectorQuality{MinCosine: 1}
	for _, s := range [][2][][]float32{{refQ, q}, {refP, p}} {
		for i, v := range s[0] {
			c := dot(v, s[1][i]) / math.Sqrt(dot(v, v)*dot(s[1][i], s[1][i]))
			r.MinCosine = min(r.MinCosine, c)
			r.MeanCosine += c / float64(len(refQ)+len(refP))
		}
	}
	k = min(k, len(refP))
	depths := make([]int, 0, k*len(refQ))
	for i := range refQ {
		want, got := ranked(refQ[i], refP), ranked(q[i], p)
		place := make([]int, len(got))
		for at, j := range got {
			place[j] = at
		}
		for _, j := range want[:k] {
			if place[j] < k {
				r.Recall += 1 / float64(k*len(refQ))
			}
			depths = append(depths, place[j]+1)
		}
	}
	if len(depths) > 0 {
		slices.Sort(depths)
		r.Depth = depths[(len(depths)*99+99)/100-1]
	}
	return r
}

// ranked orders passages by their product with q, best first, the earlier one on a tie.
func ranked(q []float32, passages [][]float32) []int {
	scores, order := make([]float64, len(passages)), make([]int, len(passages))
	for i, p := range passages {
		scores[i], order[i] = dot(q, p), i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return order
}

func dot(a, b []float32) (s float64) {
	for i, x := range a {
		s += float64(x) * float64(b[i])
	}
	return s
}

// ScoreQuality compares log-probabilities of the same tokens.
type ScoreQuality struct {
	Tokens     int     `json:"tokens"`
	Perplexity float64 `json:"perplexity"`
	MeanDiff   float64 `json:"mean_diff"` // of log-probabilities, absolute
	MaxDiff    float64 `json:"max_diff"`
}

// CompareScores compares the log-probabilities of the tokens of texts with the reference's.
func CompareScores(ref, got [][]float64) (ScoreQuality, error) {
	var q ScoreQuality
	sum := 0.0
	for i, g := range got {
		if len(g) != len(ref[i]) {
			return q, fmt.Errorf("text %d: %d tokens, the reference has %d", i+1, len(g), len(ref[i]))
		}
		for j, x := range g {
			d := math.Abs(x - ref[i][j])
			q.Tokens++
			sum -= x
			q.MeanDiff += d
			q.MaxDiff = max(q.MaxDiff, d)
		}
	}
	if q.Tokens > 0 {
		q.MeanDiff /= float64(q.Tokens)
		q.Perplexity = math.Exp(sum / float64(q.Tokens))
	}
	return q, nil
}
