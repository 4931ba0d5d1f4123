package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"rag2/models/bert"
	"rag2/models/tokenizer"
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
)

// Group is a question with one text that answers it and some that do not.
type Group struct {
	Query     string   `json:"query"`
	Positive  string   `json:"positive"`
	Negatives []string `json:"negatives"`
}

// CrossEncoder is a BERT with a head of one logit on its way to a reranker.
type CrossEncoder struct {
	Config bert.Config
	Params []*Param
	Tok    tokenizer.Tokenizer
	dir    string
}

// OpenCrossEncoder reads a BERT directory. A head (pooler and classifier) that the
// checkpoint lacks is drawn from N(0, 0.02) with the seed. freeze leaves out the
// embeddings and that many of the lower layers.
func OpenCrossEncoder(dir string, freezeEmbeddings bool, freezeLayers int, seed uint64) (*CrossEncoder, error) {
	c, err := bert.ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	x := &CrossEncoder{Config: c, Tok: tok, dir: dir}
	if err := x.read(dir, freezeEmbeddings, freezeLayers, seed); err != nil {
		return nil, err
	}
	return x, nil
}

// read reads the parameters.
func (x *CrossEncoder) read(dir string, freezeEmbeddings bool, freezeLayers int, seed uint64) error {
	c := x.Config
	w, err := weights.Open(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, p := range c.Params(bert.Classifier, 1) {
		q := &Param{Name: p.Name, Dims: p.Dims, NoDecay: len(p.Dims) == 1}
		var layer int
		if _, err := fmt.Sscanf(p.Name, "encoder.layer.%d.", &layer); err == nil {
			q.Frozen = layer < freezeLayers
		}
		q.Frozen = q.Frozen || freezeEmbeddings && strings.HasPrefix(p.Name, "embeddings.")
		n := 1
		for _, d := range p.Dims {
			n *= d
		}
		name := p.Name
		if w.Has("bert." + name) {
			name = "bert." + name
		}
		switch {
		case w.Has(name):
			info, err := w.Info(name)
			if err != nil {
				return err
			}
			if fmt.Sprint(info.Shape) != fmt.Sprint(p.Dims) {
				return fmt.Errorf("%s: tensor %q has shape %v, config.json asks for %v", dir, name, info.Shape, p.Dims)
			}
			v, err := w.Float32(name)
			if err != nil {
				return err
			}
			q.Value = append([]float32(nil), v...)
		case strings.HasPrefix(name, "classifier.") || strings.HasPrefix(name, "pooler."):
			q.Value = make([]float32, n)
			if len(p.Dims) > 1 {
				for i := range q.Value {
					q.Value[i] = float32(rng.NormFloat64() * 0.02)
				}
			}
		default:
			return fmt.Errorf("%s: %w: %q", dir, weights.ErrNoTensor, name)
		}
		x.Params = append(x.Params, q)
	}
	return nil
}

// GroupLoss is the mean cross-entropy of the softmax over the logits of each group of
// size texts, whose first is the right one. Inputs are ids, types [batch, length] and
// lens [batch]; batch is a multiple of size.
func (x *CrossEncoder) GroupLoss(size int) Loss {
	return func(w map[string]*graph.Node, in []*graph.Node, drop Drop) *graph.Node {
		logits := graph.Reshape(x.Config.Build(w, bert.Classifier, in[0], in[1], in[2]), -1, size)
		top := graph.StopGradient(graph.ReduceAndKeep(logits, graph.ReduceMax, -1))
		shifted := graph.Sub(logits, top)
		lse := graph.Log(graph.ReduceSum(graph.Exp(shifted), -1))
		first := graph.ReduceSum(graph.Slice(shifted, graph.AxisRange(), graph.AxisRange(0, 1)), -1)
		return graph.ReduceAllMean(graph.Sub(lse, first))
	}
}

// PairLoss is the mean logistic loss of single pairs; a fourth input, int32 [batch],
// holds 1 for positives and 0 for negatives.
func (x *CrossEncoder) PairLoss() Loss {
	return func(w map[string]*graph.Node, in []*graph.Node, drop Drop) *graph.Node {
		z := graph.Reshape(x.Config.Build(w, bert.Classifier, in[0], in[1], in[2]), -1)
		y := graph.ConvertDType(in[3], dtypes.Float32)
		// max(z,0) − z·y + log(1 + exp(−|z|))
		zero := graph.ZerosLike(z)
		soft := graph.Log(graph.AddScalar(graph.Exp(graph.Neg(graph.Abs(z))), 1))
		return graph.ReduceAllMean(graph.Add(graph.Sub(graph.Max(z, zero), graph.Mul(z, y)), soft))
	}
}

// Inputs encodes pairs, padded to a common length: the longest of them, rounded up to a
// multiple of 32, at most maxTokens.
func (x *CrossEncoder) Inputs(pairs [][2]string, maxTokens int) []Input {
	var encs []tokenizer.Encoding
	length := 1
	for _, p := range pairs {
		e := x.Tok.EncodePair(p[0], p[1], maxTokens)
		encs = append(encs, e)
		length = max(length, len(e.IDs))
	}
	length = min((length+31)/32*32, maxTokens)
	ids, types, lens := make([]int32, len(encs)*length), make([]int32, len(encs)*length), make([]int32, len(encs))
	for i, e := range encs {
		copy(ids[i*length:], e.IDs)
		copy(types[i*length:], e.TypeIDs)
		lens[i] = int32(len(e.IDs))
	}
	d := []int{len(encs), length}
	return []Input{{ids, d}, {types, d}, {lens, d[:1]}}
}

// Batches gives the group batches of an epoch in an order drawn with the seed: groups
// groups of one positive and negatives negatives each.
func (x *CrossEncoder) Batches(all []Group, groups, negatives, maxTokens int, rng *rand.Rand, f func(in []Input) error) error {
	order := rng.Perm(len(all))
	for i := 0; i+groups <= len(order); i += groups {
		var pairs [][2]string
		for _, k := range order[i : i+groups] {
			g := all[k]
			if len(g.Negatives) == 0 {
				return fmt.Errorf("group %d has no negatives", k)
			}
			pairs = append(pairs, [2]string{g.Query, g.Positive})
			for range negatives {
				pairs = append(pairs, [2]string{g.Query, g.Negatives[rng.IntN(len(g.Negatives))]})
			}
		}
		if err := f(x.Inputs(pairs, maxTokens)); err != nil {
			return err
		}
	}
	return nil
}

// Save writes a Hugging Face directory (BertForSequenceClassification, one label) that
// OpenCrossEncoder of package models and transformers open; half stores float16.
func (x *CrossEncoder) Save(dir string, half bool) error {
	for _, p := range x.Params {
		for _, v := range p.Value {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("%w: parameter %s is not finite", ErrDiverged, p.Name)
			}
		}
	}
	var ts []Tensor
	for _, p := range x.Params {
		name := p.Name
		if !strings.HasPrefix(name, "classifier.") {
			name = "bert." + name
		}
		ts = append(ts, Tensor{name, p.Dims, p.Value})
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := editConfig(filepath.Join(x.dir, "config.json"), filepath.Join(dir, "config.json"), map[string]any{
		"architectures": []string{"BertForSequenceClassification"}, "num_labels": 1, "id2label": map[string]string{"0": "LABEL_0"}, "label2id": map[string]int{"LABEL_0": 0},
	}); err != nil {
		return err
	}
	for _, f := range []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"} {
		if err := copyFile(filepath.Join(x.dir, f), filepath.Join(dir, f)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return WriteSafetensors(filepath.Join(dir, "model.safetensors"), ts, half)
}
