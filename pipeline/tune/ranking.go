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
	// Weight is that of the retrieval score beside the cross-encoder's logit.
	Weight float64 `json:"weight"`
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

// Reranked are a question's candidates with both scores, best first by retrieval.
type Reranked struct {
	Positives int // texts that answer the question, found or not
	Positive  []bool
	Retrieval []float32 // inner products
	Cross     []float32 // the cross-encoder's logits
}

// Rerank searches for every question and scores what is found.
func Rerank(ctx context.Context, e models.Encoder, x models.CrossEncoder, corpora []pipeline.Retriever, pairs []Pair, depth int, progress func(done, total int)) ([]Reranked, error) {
	out := make([]Reranked, len(pairs))
	for i, p := range pairs {
		cs, err := Search(ctx, e, corpora, p, depth)
		if err != nil {
			return nil, fmt.Errorf("question %s: %w", p.ID, err)
		}
		texts := make([]string, len(cs))
		r := Reranked{Positives: len(p.Positives)}
		for j, c := range cs {
			texts[j] = c.Text
			r.Positive, r.Retrieval = append(r.Positive, c.Positive), append(r.Retrieval, c.Score)
		}
		if r.Cross, _, err = x.Score(ctx, p.Query, texts); err != nil {
			return nil, fmt.Errorf("question %s: %w", p.ID, err)
		}
		out[i] = r
		if progress != nil {
			progress(i+1, len(pairs))
		}
	}
	return out, nil
}

// order gives the positives in the order of logit + weight·retrieval, as the pipeline ranks.
func (r *Reranked) order(weight float64) []bool {
	at := make([]int, len(r.Positive))
	for j := range at {
		at[j] = j
	}
	slices.SortStableFunc(at, func(a, b int) int {
		return cmp.Compare(pipeline.RerankScore(r.Cross[b], r.Retrieval[b], weight), pipeline.RerankScore(r.Cross[a], r.Retrieval[a], weight))
	})
	out := make([]bool, len(at))
	for j, k := range at {
		out[j] = r.Positive[k]
	}
	return out
}

// RankWeights are the weights that BestWeight tries.
var RankWeights = []float64{0, 1, 2, 3, 4, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60, 100}

// BestWeight is the weight of the retrieval score that gives the highest mean nDCG@10,
// the smallest of equal ones.
func BestWeight(rs []Reranked) (best float64) {
	top := -1.0
	for _, w := range RankWeights {
		sum := 0.0
		for i := range rs {
			sum += NDCG(rs[i].order(w), rs[i].Positives, 10)
		}
		if sum > top {
			best, top = w, sum
		}
	}
	return best
}

// Rank compares the order of logit + weight·retrieval with that of retrieval.
func Rank(rs []Reranked, depth int, weight float64) *Ranking {
	r := &Ranking{Questions: len(rs), Depth: depth, Weight: weight}
	rows := make([][4]float64, len(rs))
	for i, q := range rs {
		if slices.Contains(q.Positive, true) {
			r.Found++
		}
		after := q.order(weight)
		rows[i] = [4]float64{NDCG(q.Positive, q.Positives, 10), Reciprocal(q.Positive), NDCG(after, q.Positives, 10), Reciprocal(after)}
	}
	r.Found /= float64(len(rs))
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
	return r
}
