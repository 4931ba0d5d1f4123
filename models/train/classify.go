package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"rag2/models"

	"github.com/gomlx/gomlx/pkg/core/graph"
)

// Classifier is a network that learns to tell helpful snippets: a T5 or a BERT.
type Classifier interface {
	// Prepare encodes a text made by models.FilterText.
	Prepare(text string, class int) (Example, error)
	// Inputs are the inputs of Loss.
	Inputs(examples []Example) []Input
	// Loss is the mean loss, weighted by class.
	Loss(w map[string]*graph.Node, in []*graph.Node, h Hooks) *graph.Node
	// Classify gives two logits for each example: not helpful, helpful.
	Classify(t *Trainer, examples []Example) ([]float32, error)
	// Parameters are what a Trainer trains.
	Parameters() []*Param
	// SetWeight sets the classes' weights in the loss.
	SetWeight(w [2]float64)
	// SaveFilter writes a directory that models.OpenJudge opens.
	SaveFilter(dir, dtype string) error
}

var (
	_ Classifier = (*T5)(nil)
	_ Classifier = (*PairFilter)(nil)
)

// Prepare implements Classifier.
func (x *T5) Prepare(text string, class int) (Example, error) {
	e, err := x.Encode(text)
	return Example{IDs: e.IDs, Class: class}, err
}

// Parameters implements Classifier.
func (x *T5) Parameters() []*Param { return x.Params }

// SetWeight implements Classifier.
func (x *T5) SetWeight(w [2]float64) { x.Weight = w }

// SaveFilter implements Classifier.
func (x *T5) SaveFilter(dir, dtype string) error { return x.Save(dir, dtype) }

// PairFilter is a BERT with two labels that reads the pair [question, evidence].
type PairFilter struct {
	*BERT
	Weight    [2]float64
	MaxTokens int
}

// Prepare implements Classifier.
func (x *PairFilter) Prepare(text string, class int) (Example, error) {
	question, snippet, ok := models.ParseFilterText(text)
	if !ok {
		return Example{}, errors.New("the text is not made by the filter's template: an encoder needs question and evidence apart")
	}
	e := x.Tok.EncodePair(question, snippet, x.MaxTokens)
	return Example{IDs: e.IDs, Types: e.TypeIDs, Class: class}, nil
}

// Inputs implements Classifier.
func (x *PairFilter) Inputs(examples []Example) []Input { return padded(examples, true) }

// Loss implements Classifier.
func (x *PairFilter) Loss(w map[string]*graph.Node, in []*graph.Node, h Hooks) *graph.Node {
	z := x.logits(w, in[:3], h)
	class := in[3]
	n := class.Shape().Dimensions[0]
	own := graph.ReduceSum(graph.Mul(z, graph.OneHot(graph.Reshape(class, n), 2, z.DType())), -1)
	return weighted(graph.Sub(logSumExp(z), own), class, x.Weight)
}

// Classify implements Classifier.
func (x *PairFilter) Classify(t *Trainer, examples []Example) ([]float32, error) {
	return t.Evaluate("labels", x.Inputs(examples)[:3], 2*len(examples), x.logitsOf)
}

// Parameters implements Classifier.
func (x *PairFilter) Parameters() []*Param { return x.Params }

// SetWeight implements Classifier.
func (x *PairFilter) SetWeight(w [2]float64) { x.Weight = w }

// SaveFilter implements Classifier.
func (x *PairFilter) SaveFilter(dir, dtype string) error {
	return x.Save(dir, dtype, map[string]any{"id2label": map[string]string{"0": models.LabelNotHelpful, "1": models.LabelHelpful},
		"label2id": map[string]int{models.LabelNotHelpful: 0, models.LabelHelpful: 1}})
}

// Balanced weighs classes inversely to their numbers, so that both weigh as much.
func Balanced(examples []Example) [2]float64 {
	var n [2]float64
	for _, e := range examples {
		n[e.Class]++
	}
	if n[0] == 0 || n[1] == 0 {
		return [2]float64{1, 1}
	}
	all := n[0] + n[1]
	return [2]float64{all / (2 * n[0]), all / (2 * n[1])}
}

// HeldOut is the Job.Dev of a classifier: minus the mean cross-entropy between the two
// labels, with the accuracy at 0.5 beside it.
func HeldOut(c Classifier, t *Trainer, examples []Example, batch int) func(context.Context) (Score, error) {
	sorted := slices.Clone(examples)
	slices.SortStableFunc(sorted, func(a, b Example) int { return len(a.IDs) - len(b.IDs) })
	return func(ctx context.Context) (Score, error) {
		loss, right := 0.0, 0.0
		for at := 0; at < len(sorted); at += batch {
			if err := ctx.Err(); err != nil {
				return Score{}, err
			}
			part := sorted[at:min(at+batch, len(sorted))]
			z, err := c.Classify(t, part)
			if err != nil {
				return Score{}, err
			}
			for i, e := range part {
				d := float64(z[2*i+1-e.Class]) - float64(z[2*i+e.Class]) // wrong minus right
				if math.IsNaN(d) {
					return Score{}, fmt.Errorf("%w: a logit is %v", ErrDiverged, d)
				}
				if d < 0 {
					right++
				}
				loss += math.Log1p(math.Exp(-math.Abs(d))) + max(d, 0)
			}
		}
		n := float64(len(sorted))
		return Score{Value: -loss / n, More: map[string]float64{"accuracy": right / n}}, nil
	}
}
