package tune

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"rag2/models"
	"rag2/models/train"
	"rag2/pipeline"
)

// MineOptions steer Mine.
type MineOptions struct {
	Depth     int // hits asked of every corpus
	Skip      int // ranks that give no negatives: many unmarked positives are there
	Negatives int // kept for each question
	Positives int // groups of a question at most; 0 = one for every positive
}

// Validate lists what is wrong.
func (o MineOptions) Validate() error {
	var errs []error
	if o.Depth < 1 || o.Skip < 0 || o.Skip >= o.Depth {
		errs = append(errs, fmt.Errorf("%d hits, of which %d are skipped", o.Depth, o.Skip))
	}
	if o.Negatives < 1 || o.Positives < 0 {
		errs = append(errs, fmt.Errorf("%d negatives for %d positives of a question", o.Negatives, o.Positives))
	}
	return errors.Join(errs...)
}

// article is a document without the number of its text.
func article(doc string) string {
	if i := strings.LastIndexByte(doc, '.'); i > 0 {
		return doc[:i]
	}
	return doc
}

// Candidate is a hit of a question.
type Candidate struct {
	Text     string
	Score    float32 // of the retrieval
	Positive bool
	Related  bool // of an article that holds a positive
}

// Search finds the candidates of a question, best first by the encoder; a text occurs
// once.
func Search(ctx context.Context, e models.Encoder, corpora []pipeline.Retriever, p Pair, depth int) ([]Candidate, error) {
	vs, _, err := e.EncodeQueries(ctx, []string{p.Query})
	if err != nil {
		return nil, err
	}
	hits, _, err := pipeline.Balanced(ctx, corpora, vs[0], depth, pipeline.SearchOptions{})
	if err != nil {
		return nil, err
	}
	if len(corpora) > 1 {
		hits = pipeline.Best(hits, depth)
	}
	positive, related := map[string]bool{}, map[string]bool{}
	for _, x := range p.Positives {
		positive[x.Text] = true
		if x.Doc != "" {
			positive["doc "+x.Doc] = true
			related[article(x.Doc)] = true
		}
	}
	var out []Candidate
	seen := map[string]bool{}
	for _, h := range hits {
		text := models.JoinTitle(h.Title, h.Text)
		if seen[text] {
			continue
		}
		seen[text] = true
		out = append(out, Candidate{text, h.Score, positive[h.Text] || positive["doc "+h.Doc], related[article(h.Doc)]})
	}
	return out, nil
}

// Mine makes groups: the hits of each question that are neither positives nor of a
// positive's article, best first. A question without any gives no group.
func Mine(ctx context.Context, e models.Encoder, corpora []pipeline.Retriever, pairs []Pair, o MineOptions, progress func(done, total int)) ([]train.Group, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var out []train.Group
	for i, p := range pairs {
		cs, err := Search(ctx, e, corpora, p, o.Depth)
		if err != nil {
			return nil, fmt.Errorf("question %s: %w", p.ID, err)
		}
		var negatives []string
		for rank, c := range cs {
			if rank >= o.Skip && !c.Positive && !c.Related && len(negatives) < o.Negatives {
				negatives = append(negatives, c.Text)
			}
		}
		for n, x := range p.Positives {
			if len(negatives) > 0 && (o.Positives == 0 || n < o.Positives) {
				out = append(out, train.Group{ID: p.ID, Query: p.Query, Positive: x.Text, Negatives: negatives})
			}
		}
		if progress != nil {
			progress(i+1, len(pairs))
		}
	}
	return out, nil
}
