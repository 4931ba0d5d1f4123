package tune

import (
	"fmt"
	"math/rand/v2"

	"rag2/models"
	"rag2/models/train"
	"rag2/pipeline/label"
)

// Gold makes filter records of relevance judgements instead of perplexities: for each
// group its positive as HELPFUL, and one negative as NOT_HELPFUL. With probability random
// the negative is a right text of another question, otherwise one of the group's own, at
// random. The same seed gives the same records.
func Gold(groups []train.Group, random float64, dataset string, seed uint64) ([]label.Record, error) {
	if !(random >= 0 && random <= 1) {
		return nil, fmt.Errorf("share of random negatives %g; 0 to 1 is possible", random)
	}
	rng := rand.New(rand.NewPCG(seed, 11))
	var out []label.Record
	count := map[string]int{}
	add := func(g train.Group, text, token string) {
		out = append(out, label.Record{ID: fmt.Sprintf("%s/%d", g.ID, count[g.ID]), Answer: token, Dataset: dataset, Question: models.FilterText(g.Query, text)})
		count[g.ID]++
	}
	for _, g := range groups {
		if g.ID == "" {
			return nil, fmt.Errorf("a group without id: records are divided by it")
		}
		negative := g.Negatives[rng.IntN(len(g.Negatives))]
		if rng.Float64() < random {
			for range 100 { // a file of one question has no other
				if o := groups[rng.IntN(len(groups))]; o.ID != g.ID {
					negative = o.Positive
					break
				}
			}
		}
		add(g, g.Positive, label.TokenHelpful)
		add(g, negative, label.TokenNotHelpful)
	}
	return out, nil
}
