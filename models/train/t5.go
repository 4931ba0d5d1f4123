package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rag2/internal/atomicfile"
	"rag2/models"
	"rag2/models/t5"
	"rag2/models/tokenizer"
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
)

// labelTokens are the filter's two answers, by class: 0 not helpful, 1 helpful.
var labelTokens = [2]string{models.LabelNotHelpful, models.LabelHelpful}

// T5 is a T5 on its way to a filter: a sequence-to-sequence model whose target is one
// label token, the first that the decoder writes.
type T5 struct {
	Config t5.Config
	Params []*Param
	Tok    tokenizer.Tokenizer
	Labels [2]int32   // token ids by class
	Weight [2]float64 // of the classes in the loss; both 0 = 1
	hf     map[string]string
	dir    string
	added  bool // the label tokens are new to the tokenizer
}

// OpenT5 reads a Hugging Face directory. Label tokens that the vocabulary lacks are added
// behind it; where the embeddings have no row for them, rows are appended that are the
// mean of the others with a little of their scatter, drawn with the seed. With lora only
// low-rank additions to the blocks' matrices are trained, and the head.
func OpenT5(dir string, lora *LoRA, seed uint64) (*T5, error) {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	x := &T5{Tok: tok, hf: map[string]string{}, dir: dir}
	rows := int32(tok.VocabSize())
	for class := range x.Labels {
		// The helpful one first, as the authors add them.
		id, ok := tok.TokenID(labelTokens[1-class])
		if !ok {
			id, x.added = rows, true
			rows++
		}
		x.Labels[1-class] = id
	}
	if err := x.read(int(rows), seed); err != nil {
		return nil, err
	}
	if lora != nil {
		head := "shared"
		if !x.Config.Tied {
			head = "head"
		}
		match := func(name string) bool { return strings.HasPrefix(name, "enc") || strings.HasPrefix(name, "dec") }
		bias := func(name string) bool { return strings.HasSuffix(name, ".bias") }
		x.Params, err = lora.Apply(x.Params, func(name string) bool { return match(name) && !bias(name) }, func(name string) bool { return name == head }, seed)
	}
	return x, err
}

// read reads the parameters, with at least rows rows of embeddings.
func (x *T5) read(rows int, seed uint64) error {
	w, err := weights.Open(x.dir)
	if err != nil {
		return err
	}
	defer w.Close()
	if w.Format() != "safetensors" {
		return fmt.Errorf("%s: training starts from a Hugging Face directory with safetensors", x.dir)
	}
	if x.Config, err = t5.ReadConfig(x.dir, w.Has("lm_head.weight")); err != nil {
		return err
	}
	had := x.Config.Vocab
	x.Config.Vocab = max(had, rows)
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, p := range x.Config.Params() {
		name := p.HF
		if p.Name == "shared" && !w.Has(name) {
			name = "encoder.embed_tokens.weight"
		}
		q := &Param{Name: p.Name, Dims: p.Dims, NoDecay: len(p.Dims) == 1}
		if q.Value, err = w.Float32(name); err != nil {
			return err
		}
		if table := p.Name == "shared" || p.Name == "head"; table && x.Config.Vocab > had {
			q.Value = appendRows(q.Value, had, x.Config.Vocab, p.Dims[1], rng)
		}
		n := 1
		for _, d := range p.Dims {
			n *= d
		}
		if len(q.Value) != n {
			return fmt.Errorf("%s: tensor %q has %d values, config.json asks for %v", x.dir, name, len(q.Value), p.Dims)
		}
		x.Params = append(x.Params, q)
		x.hf[p.Name] = p.HF
	}
	return nil
}

// appendRows adds rows to a table [had, width]: the mean row, and a tenth of another
// row's way from it.
func appendRows(v []float32, had, want, width int, rng *rand.Rand) []float32 {
	mean := make([]float64, width)
	for i, x := range v {
		mean[i%width] += float64(x) / float64(had)
	}
	for range want - had {
		other := rng.IntN(had)
		for j, m := range mean {
			v = append(v, float32(m+0.1*(float64(v[other*width+j])-m)))
		}
	}
	return v
}

// Encode is the input of a record: with the filter's template, whose evidence alone is
// cut, when it has it.
func (x *T5) Encode(text string) (tokenizer.Encoding, error) {
	if question, snippet, ok := models.ParseFilterText(text); ok {
		return models.EncodeFilter(x.Tok, question, snippet)
	}
	e := x.Tok.EncodeSingle(text, 0)
	if len(e.IDs) > models.FilterMaxTokens {
		return e, fmt.Errorf("%w: %d tokens, %d are possible, and without the filter's template nothing may be cut", models.ErrTooLong, len(e.IDs), models.FilterMaxTokens)
	}
	return e, nil
}

// Example is an encoded record.
type Example struct {
	IDs, Types []int32
	Class      int // 0 not helpful, 1 helpful
}

// padded are ids (and types), lengths and classes of examples, as inputs.
func padded(examples []Example, types bool) []Input {
	length := 1
	for _, e := range examples {
		length = max(length, len(e.IDs))
	}
	length = (length + 31) / 32 * 32
	n := len(examples)
	ids, tys, lens, class := make([]int32, n*length), make([]int32, n*length), make([]int32, n), make([]int32, n)
	for i, e := range examples {
		copy(ids[i*length:], e.IDs)
		copy(tys[i*length:], e.Types)
		lens[i], class[i] = int32(len(e.IDs)), int32(e.Class)
	}
	d := []int{n, length}
	in := []Input{{ids, d}}
	if types {
		in = append(in, Input{tys, d})
	}
	return append(in, Input{lens, d[:1]}, Input{class, d[:1]})
}

// Inputs are the inputs of Loss: ids [n, length], lengths [n] and classes [n].
func (x *T5) Inputs(examples []Example) []Input { return padded(examples, false) }

// first is the decoder's first state: [n, Hidden].
func (x *T5) first(w map[string]*graph.Node, in []*graph.Node, h Hooks) *graph.Node {
	c := x.Config
	c.Drop, c.Linear = h.Drop, h.Linear
	n := in[0].Shape().Dimensions[0]
	start := graph.BroadcastToDims(graph.Scalar(in[0].Graph(), dtypes.Int32, float64(c.Start)), n, 1)
	return graph.Reshape(c.Decode(w, c.Encode(w, in[0], in[1]), in[1], start), n, c.Hidden)
}

// Loss is the mean cross-entropy of the label token over the whole vocabulary at the
// first decoder step, weighted by class as torch does: the weighted sum over the sum of
// the weights.
func (x *T5) Loss(w map[string]*graph.Node, in []*graph.Node, h Hooks) *graph.Node {
	c := x.Config
	c.Linear = h.Linear
	y := x.first(w, in, h)
	logits := c.Head(w, y, nil)
	g := y.Graph()
	// The target's logit is the product with its row alone.
	class := in[2]
	n := class.Shape().Dimensions[0]
	labels := graph.Const(g, []int32{x.Labels[0], x.Labels[1]})
	target := graph.Gather(labels, graph.Reshape(class, n, 1))
	head := w["head"]
	if c.Tied {
		head = w["shared"]
	}
	row := graph.Gather(head, graph.Reshape(target, n, 1))
	if c.Scaled {
		y = graph.MulScalar(y, 1/math.Sqrt(float64(c.Hidden)))
	}
	own := graph.ReduceSum(graph.Mul(y, row), -1)
	return weighted(graph.Sub(logSumExp(logits), own), class, x.Weight)
}

// logSumExp over the last axis.
func logSumExp(z *graph.Node) *graph.Node {
	top := graph.StopGradient(graph.ReduceAndKeep(z, graph.ReduceMax, -1))
	lse := graph.Log(graph.ReduceSum(graph.Exp(graph.Sub(z, top)), -1))
	return graph.Add(lse, graph.Reshape(top, lse.Shape().Dimensions...))
}

// weighted is the weighted mean of losses [n] of examples of a class [n].
func weighted(loss, class *graph.Node, weight [2]float64) *graph.Node {
	if weight[0] == weight[1] {
		return graph.ReduceAllMean(loss)
	}
	w := graph.AddScalar(graph.MulScalar(graph.ConvertDType(class, dtypes.Float32), weight[1]-weight[0]), weight[0])
	return graph.Div(graph.ReduceAllSum(graph.Mul(loss, w)), graph.ReduceAllSum(w))
}

// Classify gives the logits of the two labels, [examples × 2] by class.
func (x *T5) Classify(t *Trainer, examples []Example) ([]float32, error) {
	n := len(examples)
	return t.Evaluate("labels", x.Inputs(examples)[:2], 2*n, func(w map[string]*graph.Node, ins []*graph.Node, h Hooks) *graph.Node {
		labels := graph.Const(ins[0].Graph(), []int32{x.Labels[0], x.Labels[1]})
		return graph.Reshape(x.Config.Head(w, x.first(w, ins, h), labels), 2*n)
	})
}

// Save writes a Hugging Face directory (T5ForConditionalGeneration) that
// models.OpenFilter and transformers open, low-rank additions added in.
func (x *T5) Save(dir, dtype string) error {
	if err := finite(x.Params); err != nil {
		return err
	}
	var ts []Tensor
	for _, p := range x.Params {
		if name, ok := x.hf[p.Name]; ok {
			ts = append(ts, Tensor{name, p.Dims, p.Merged()})
		}
	}
	if err := writeModelDir(x.dir, dir, map[string]any{"architectures": []string{"T5ForConditionalGeneration"}, "vocab_size": x.Config.Vocab}); err != nil {
		return err
	}
	if x.added {
		if err := x.addLabels(dir); err != nil {
			return err
		}
	}
	return WriteSafetensors(filepath.Join(dir, "model.safetensors"), ts, dtype, nil)
}

// addLabels adds the label tokens to the tokenizer's files.
func (x *T5) addLabels(dir string) error {
	path := filepath.Join(dir, "tokenizer.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) { // SentencePiece's file and a list beside it
		path = filepath.Join(dir, "added_tokens.json")
		list := map[string]int32{}
		if b, err := os.ReadFile(path); err == nil {
			if err := json.Unmarshal(b, &list); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		for class, token := range labelTokens {
			list[token] = x.Labels[class]
		}
		if b, err = json.MarshalIndent(list, "", "  "); err != nil {
			return err
		}
		return atomicfile.WriteFile(path, append(b, '\n'))
	}
	if err != nil {
		return err
	}
	var j map[string]json.RawMessage
	var tokens []json.RawMessage
	if err = json.Unmarshal(b, &j); err == nil && len(j["added_tokens"]) > 0 {
		err = json.Unmarshal(j["added_tokens"], &tokens)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for class := range labelTokens {
		class = 1 - class
		if _, ok := x.Tok.TokenID(labelTokens[class]); ok {
			continue
		}
		e, err := json.Marshal(map[string]any{"id": x.Labels[class], "content": labelTokens[class], "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
		if err != nil {
			return err
		}
		tokens = append(tokens, e)
	}
	if j["added_tokens"], err = json.Marshal(tokens); err != nil {
		return err
	}
	if b, err = json.Marshal(j); err != nil {
		return err
	}
	return atomicfile.WriteFile(path, append(b, '\n'))
}

// Shuffled gives batches of examples of like length: every epoch in another order.
type Shuffled struct {
	Examples []Example
	Batch    int
	Seed     uint64

	epoch int // that order belongs to, from 1
	order [][]int
}

// PerEpoch is the number of whole batches of an epoch.
func (s *Shuffled) PerEpoch() int { return len(s.Examples) / s.Batch }

// chunk is the number of batches among which examples are sorted by length.
const chunk = 16

// At is a batch, counted over all epochs. The same number gives the same examples. It is
// not safe for concurrent use.
func (s *Shuffled) At(batch int) []Example {
	per := s.PerEpoch()
	if epoch := batch/per + 1; s.epoch != epoch {
		s.epoch, s.order = epoch, nil
		rng := rand.New(rand.NewPCG(s.Seed, uint64(epoch)))
		perm := rng.Perm(len(s.Examples))[:per*s.Batch]
		for len(perm) > 0 {
			c := perm[:min(chunk*s.Batch, len(perm))]
			perm = perm[len(c):]
			slices.SortStableFunc(c, func(a, b int) int { return len(s.Examples[a].IDs) - len(s.Examples[b].IDs) })
			for ; len(c) > 0; c = c[s.Batch:] {
				s.order = append(s.order, c[:s.Batch])
			}
		}
		rng.Shuffle(len(s.order), func(i, j int) { s.order[i], s.order[j] = s.order[j], s.order[i] })
	}
	var out []Example
	for _, i := range s.order[batch%per] {
		out = append(out, s.Examples[i])
	}
	return out
}
