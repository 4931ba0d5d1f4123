package tune

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"rag2/models"
	"rag2/pipeline"
)

// Ranking compares a cross-encoder with the retrieval that it reranks, question by
// question on the same candidates.
type Ranking struct {
	Questions int `json:"questions"`
	Depth     int `json:"depth"`
	// Found is the share of questions with a positive among the candidates.
	Found     float64       `json:"found"`
	Retrieval RankingScores `json:"retrieval"`
	Reranked  RankingScores `json:"reranked"`
	// Gain is reranked minus retrieval, paired by question.
	Gain RankingScores `json:"gain"`
}

// RankingScores are means over the questions.
type RankingScores struct {
	NDCG10 Interval `json:"ndcg@10"`
	MRR    Interval `json:"mrr"`
}

// Rank judges a cross-encoder on pairs.
func Rank(ctx context.Context, e models.Encoder, x models.CrossEncoder, corpora []pipeline.Retriever, pairs []Pair, depth int, progress func(done, total int)) (*Ranking, error) {
	r := &Ranking{Questions: len(pairs), Depth: depth}
	rows := make([][4]float64, len(pairs))
	for i, p := range pairs {
		cs, err := Search(ctx, e, corpora, p, depth)
		if err != nil {
			return nil, fmt.Errorf("question %s: %w", p.ID, err)
		}
		texts := make([]string, len(cs))
		before := make([]bool, len(cs))
		for j, c := range cs {
			texts[j], before[j] = c.Text, c.Positive
		}
		scores, _, err := x.Score(ctx, p.Query, texts)
		if err != nil {
			return nil, fmt.Errorf("question %s: %w", p.ID, err)
		}
		order := make([]int, len(cs))
		for j := range order {
			order[j] = j
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
		after := make([]bool, len(cs))
		for j, o := range order {
			after[j] = before[o]
		}
		if slices.Contains(before, true) {
			r.Found++
		}
		rows[i] = [4]float64{NDCG(before, len(p.Positives), 10), Reciprocal(before), NDCG(after, len(p.Positives), 10), Reciprocal(after)}
		if progress != nil {
			progress(i+1, len(pairs))
		}
	}
	r.Found /= float64(len(pairs))
	iv := Bootstrap(len(rows), func(units []int) []float64 {
		var m [6]float64
		for _, u := range units {
			for k, v := range rows[u] {
				m[k] += v / float64(len(units))
			}
		}
		m[4], m[5] = m[2]-m[0], m[3]-m[1]
		return m[:]
	})
	r.Retrieval, r.Reranked, r.Gain = RankingScores{iv[0], iv[1]}, RankingScores{iv[2], iv[3]}, RankingScores{iv[4], iv[5]}
	return r, nil
}
