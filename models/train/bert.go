package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"rag2/models/bert"
	"rag2/models/tokenizer"
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
)

// Group is a question with one text that answers it and some that do not.
type Group struct {
	ID        string   `json:"id,omitempty"` // of the question
	Query     string   `json:"query"`
	Positive  string   `json:"positive"`
	Negatives []string `json:"negatives"`
}

// BERT is a BERT with a classification head on its way to a reranker (one label) or to a
// filter (two).
type BERT struct {
	Config bert.Config
	Params []*Param
	Tok    tokenizer.Tokenizer
	labels int
	lora   *LoRA
	dir    string
}

// BERTOptions say what of a BERT is trained.
type BERTOptions struct {
	Labels           int
	FreezeEmbeddings bool
	FreezeLayers     int   // so many of the lower layers
	LoRA             *LoRA // of the matrices of the layers that are not frozen; norms and biases then stay
	Seed             uint64
}

// OpenBERT reads a BERT directory. A head (pooler and classifier) that the checkpoint
// lacks, or a classifier of another number of labels, is drawn from N(0, 0.02) with the
// seed.
func OpenBERT(dir string, o BERTOptions) (*BERT, error) {
	c, err := bert.ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	x := &BERT{Config: c, Tok: tok, dir: dir}
	if err := x.read(o); err != nil {
		return nil, err
	}
	return x, nil
}

// read reads the parameters.
func (x *BERT) read(o BERTOptions) error {
	c := x.Config
	x.labels, x.lora = o.Labels, o.LoRA
	w, err := weights.Open(x.dir)
	if err != nil {
		return err
	}
	defer w.Close()
	rng := rand.New(rand.NewPCG(o.Seed, 1))
	frozen := func(name string) bool {
		var layer int
		if _, err := fmt.Sscanf(name, "encoder.layer.%d.", &layer); err == nil {
			return layer < o.FreezeLayers
		}
		return o.FreezeEmbeddings && strings.HasPrefix(name, "embeddings.")
	}
	for _, p := range c.Params(bert.Classifier, o.Labels) {
		q := &Param{Name: p.Name, Dims: p.Dims, NoDecay: len(p.Dims) == 1, Frozen: frozen(p.Name)}
		name := p.Name
		if w.Has("bert." + name) {
			name = "bert." + name
		}
		n := 1
		for _, d := range p.Dims {
			n *= d
		}
		info, err := w.Info(name)
		head := isHead(p.Name)
		switch {
		case err == nil && slices.Equal(info.Shape, p.Dims):
			if q.Value, err = w.Float32(name); err != nil {
				return err
			}
		case head && (err != nil || strings.HasPrefix(p.Name, "classifier.")):
			q.Value = make([]float32, n)
			if len(p.Dims) > 1 {
				for i := range q.Value {
					q.Value[i] = float32(rng.NormFloat64() * 0.02)
				}
			}
		case err != nil:
			return err
		default:
			return fmt.Errorf("%s: tensor %q has shape %v, config.json asks for %v", x.dir, name, info.Shape, p.Dims)
		}
		x.Params = append(x.Params, q)
	}
	if o.LoRA != nil {
		match := func(name string) bool { return strings.HasPrefix(name, "encoder.layer.") && !frozen(name) }
		x.Params, err = o.LoRA.Apply(x.Params, match, isHead, o.Seed)
	}
	return err
}

// isHead tells the parameters above the encoder.
func isHead(name string) bool {
	return strings.HasPrefix(name, "classifier.") || strings.HasPrefix(name, "pooler.")
}

// logits builds the network: [batch, labels].
func (x *BERT) logits(w map[string]*graph.Node, in []*graph.Node, h Hooks) *graph.Node {
	c := x.Config
	c.Drop, c.Linear = h.Drop, h.Linear
	return c.Build(w, bert.Classifier, in[0], in[1], in[2])
}

// GroupLoss is the mean cross-entropy of the softmax over the logits of each group of
// size texts, whose first is the right one. Inputs are ids, types [batch, length] and
// lens [batch]; batch is a multiple of size.
func (x *BERT) GroupLoss(size int) Loss {
	return func(w map[string]*graph.Node, in []*graph.Node, h Hooks) *graph.Node {
		logits := graph.Reshape(x.logits(w, in, h), -1, size)
		top := graph.StopGradient(graph.ReduceAndKeep(logits, graph.ReduceMax, -1))
		shifted := graph.Sub(logits, top)
		lse := graph.Log(graph.ReduceSum(graph.Exp(shifted), -1))
		first := graph.ReduceSum(graph.Slice(shifted, graph.AxisRange(), graph.AxisRange(0, 1)), -1)
		return graph.ReduceAllMean(graph.Sub(lse, first))
	}
}

// PairLoss is the mean logistic loss of single pairs; a fourth input, int32 [batch],
// holds 1 for positives and 0 for negatives.
func (x *BERT) PairLoss() Loss {
	return func(w map[string]*graph.Node, in []*graph.Node, h Hooks) *graph.Node {
		z := graph.Reshape(x.logits(w, in, h), -1)
		y := graph.ConvertDType(in[3], dtypes.Float32)
		// max(z,0) − z·y + log(1 + exp(−|z|))
		zero := graph.ZerosLike(z)
		soft := graph.Log(graph.AddScalar(graph.Exp(graph.Neg(graph.Abs(z))), 1))
		return graph.ReduceAllMean(graph.Add(graph.Sub(graph.Max(z, zero), graph.Mul(z, y)), soft))
	}
}

// Inputs encodes pairs, padded to a common length: the longest of them, rounded up to a
// multiple of 32, at most maxTokens.
func (x *BERT) Inputs(pairs [][2]string, maxTokens int) []Input {
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

// Scores are the logits of pairs as the parameters are, [pairs × labels].
func (x *BERT) Scores(t *Trainer, pairs [][2]string, maxTokens int) ([]float32, error) {
	return t.Evaluate("logits", x.Inputs(pairs, maxTokens), len(pairs)*x.labels, func(w map[string]*graph.Node, ins []*graph.Node, h Hooks) *graph.Node {
		return graph.Reshape(x.logits(w, ins, h), len(pairs)*x.labels)
	})
}

// Sampler gives the batches of a training on groups: every epoch in another order, each
// group once with its positive and Negatives texts drawn from its others.
type Sampler struct {
	Groups    []Group
	Batch     int // groups
	Negatives int
	Seed      uint64
}

// PerEpoch is the number of whole batches of an epoch.
func (s *Sampler) PerEpoch() int { return len(s.Groups) / s.Batch }

// Pairs are the pairs of a batch, counted over all epochs: Batch times a positive and
// its negatives. The same number gives the same pairs.
func (s *Sampler) Pairs(batch int) [][2]string {
	per := s.PerEpoch()
	order := rand.New(rand.NewPCG(s.Seed, uint64(batch/per))).Perm(len(s.Groups))
	rng := rand.New(rand.NewPCG(s.Seed^0x9e3779b97f4a7c15, uint64(batch)))
	var out [][2]string
	for _, k := range order[batch%per*s.Batch:][:s.Batch] {
		g := &s.Groups[k]
		out = append(out, [2]string{g.Query, g.Positive})
		perm := rng.Perm(len(g.Negatives))
		for i := range s.Negatives {
			out = append(out, [2]string{g.Query, g.Negatives[perm[i%len(perm)]]})
		}
	}
	return out
}

// finite refuses parameters that are no numbers.
func finite(params []*Param) error {
	for _, p := range params {
		for _, v := range p.Value {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("%w: parameter %s is not finite", ErrDiverged, p.Name)
			}
		}
	}
	return nil
}

// hfName is the name in BertForSequenceClassification.
func hfName(name string) string {
	if strings.HasPrefix(name, "classifier.") {
		return name
	}
	return "bert." + name
}

// Save writes a Hugging Face directory (BertForSequenceClassification) that packages
// models and transformers open, low-rank additions added in.
func (x *BERT) Save(dir, dtype string, config map[string]any) error {
	if err := finite(x.Params); err != nil {
		return err
	}
	var ts []Tensor
	for _, p := range x.Params {
		if strings.HasSuffix(p.Name, loraA) || strings.HasSuffix(p.Name, loraB) {
			continue
		}
		ts = append(ts, Tensor{hfName(p.Name), p.Dims, p.Merged()})
	}
	labels := map[string]string{}
	ids := map[string]int{}
	for i := range x.labels {
		name := fmt.Sprintf("LABEL_%d", i)
		labels[fmt.Sprint(i)], ids[name] = name, i
	}
	set := map[string]any{"architectures": []string{"BertForSequenceClassification"}, "num_labels": x.labels, "id2label": labels, "label2id": ids}
	for k, v := range config {
		set[k] = v
	}
	if err := writeModelDir(x.dir, dir, set); err != nil {
		return err
	}
	return WriteSafetensors(filepath.Join(dir, "model.safetensors"), ts, dtype, nil)
}

// SaveAdapter writes what LoRA trained and the head as an adapter of the PEFT library
// for the model called base; models.OpenCrossEncoder reads it with the base beside it.
func (x *BERT) SaveAdapter(dir, base, dtype string) error {
	if x.lora == nil {
		return fmt.Errorf("an adapter holds low-rank additions; none were trained")
	}
	return saveAdapter(dir, base, dtype, "SEQ_CLS", *x.lora, x.Params, hfName, []string{"classifier", "pooler"})
}
