package tune

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is a figure with its 95 % percentile bootstrap.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// MarshalJSON writes null for a figure that does not exist, such as the AUROC of pairs
// that all have one label.
func (i Interval) MarshalJSON() ([]byte, error) {
	part := func(v float64) any {
		if v-v != 0 {
			return nil
		}
		return v
	}
	return json.Marshal(struct {
		Value any `json:"value"`
		Low   any `json:"low"`
		High  any `json:"high"`
	}{part(i.Value), part(i.Low), part(i.High)})
}

// resamples is the number of bootstrap samples.
const resamples = 2000

// Bootstrap draws the units 0 … n-1 with replacement and computes stats of each sample:
// one interval for each figure that stats returns. A figure that is NaN on a sample
// (AUROC without one of the classes) is left out there. The seed is fixed.
func Bootstrap(n int, stats func(units []int) []float64) []Interval {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	values := stats(all)
	out := make([]Interval, len(values))
	samples := make([][]float64, len(values))
	rng := rand.New(rand.NewPCG(1, 95))
	units := make([]int, n)
	for range resamples {
		for i := range units {
			units[i] = rng.IntN(n)
		}
		for i, v := range stats(units) {
			if !math.IsNaN(v) {
				samples[i] = append(samples[i], v)
			}
		}
	}
	for i, s := range samples {
		out[i].Value = values[i]
		if len(s) == 0 {
			out[i].Low, out[i].High = math.NaN(), math.NaN()
			continue
		}
		slices.Sort(s)
		out[i].Low, out[i].High = quantile(s, 0.025), quantile(s, 0.975)
	}
	return out
}

// quantile interpolates in sorted values.
func quantile(s []float64, q float64) float64 {
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// NDCG is the normalised discounted cumulative gain of a ranking at k: relevant says
// which ranks hold a positive, total how many positives there are.
func NDCG(relevant []bool, total, k int) float64 {
	dcg, ideal := 0.0, 0.0
	for i := range k {
		gain := 1 / math.Log2(float64(i+2))
		if i < len(relevant) && relevant[i] {
			dcg += gain
		}
		if i < total {
			ideal += gain
		}
	}
	if ideal == 0 {
		return 0
	}
	return dcg / ideal
}

// Reciprocal is one over the rank of the first positive, 0 without one.
func Reciprocal(relevant []bool) float64 {
	if i := slices.Index(relevant, true); i >= 0 {
		return 1 / float64(i+1)
	}
	return 0
}
