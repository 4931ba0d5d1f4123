package train

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rag2/internal/atomicfile"
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/pkg/core/graph"
)

// LoRA adds to matrices W the trained product (Alpha/Rank)·B·A of two thin ones (Hu et
// al., 2021) and keeps W. A is [Rank, in], drawn so that B·A has the scale of the usual
// initialisation; B is [out, Rank] and begins at 0.
type LoRA struct {
	Rank  int
	Alpha float64
}

// lowRank is what is added to one matrix.
type lowRank struct {
	a, b  *Param
	scale float64
}

// suffixes of the parameters' names, as the PEFT library writes them.
const (
	loraA = ".lora_A.weight"
	loraB = ".lora_B.weight"
)

// Validate says what is wrong.
func (l LoRA) Validate() error {
	if l.Rank < 1 || l.Rank > 1024 || !(l.Alpha > 0 && l.Alpha < 1e6) {
		return fmt.Errorf("LoRA of rank %d with alpha %g", l.Rank, l.Alpha)
	}
	return nil
}

// Apply freezes every parameter but those that keep names whole, and gives the matrices
// that match names a low-rank addition. It returns params with the new parameters at
// the end.
func (l LoRA) Apply(params []*Param, match, keep func(name string) bool, seed uint64) ([]*Param, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	out := slices.Clone(params)
	n := 0
	for _, p := range params {
		if keep(p.Name) {
			continue
		}
		p.Frozen = true
		if len(p.Dims) != 2 || !match(p.Name) {
			continue
		}
		stem := strings.TrimSuffix(p.Name, ".weight")
		a := &Param{Name: stem + loraA, Dims: []int{l.Rank, p.Dims[1]}, Value: make([]float32, l.Rank*p.Dims[1])}
		b := &Param{Name: stem + loraB, Dims: []int{p.Dims[0], l.Rank}, Value: make([]float32, p.Dims[0]*l.Rank)}
		bound := 1 / math.Sqrt(float64(p.Dims[1]))
		for i := range a.Value {
			a.Value[i] = float32((2*rng.Float64() - 1) * bound)
		}
		p.lora = &lowRank{a, b, l.Alpha / float64(l.Rank)}
		out = append(out, a, b)
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("LoRA: no matrix of the network matches")
	}
	return out, nil
}

// low are the low-rank additions of a graph, by the matrix that they are added to.
type low map[*graph.Node]lowNodes

type lowNodes struct {
	a, b  *graph.Node
	scale float64
}

func lowRanks(params []*Param, w map[string]*graph.Node) low {
	l := low{}
	for _, p := range params {
		if r := p.lora; r != nil {
			l[w[p.Name]] = lowNodes{w[r.a.Name], w[r.b.Name], r.scale}
		}
	}
	return l
}

// linear is x·Wᵀ + scale·(x·Aᵀ)·Bᵀ: W gets no gradient, and costs none.
func (l low) linear(x, w *graph.Node) *graph.Node {
	product := func(x, w *graph.Node) *graph.Node { return graph.DotGeneral(x, []int{1}, nil, w, []int{1}, nil) }
	y := product(x, w)
	if r, ok := l[w]; ok {
		y = graph.Add(y, graph.MulScalar(product(product(x, r.a), r.b), r.scale))
	}
	return y
}

// Merged is the parameter's value with its low-rank addition.
func (p *Param) Merged() []float32 {
	if p.lora == nil {
		return p.Value
	}
	r := p.lora
	rank, in := r.a.Dims[0], r.a.Dims[1]
	out := slices.Clone(p.Value)
	for i := range p.Dims[0] {
		row := out[i*in : (i+1)*in]
		for k := range rank {
			f := r.scale * float64(r.b.Value[i*rank+k])
			for j := range row {
				row[j] += float32(f * float64(r.a.Value[k*in+j]))
			}
		}
	}
	return out
}

// saveAdapter writes adapter_config.json and adapter_model.safetensors as the PEFT
// library does: what is trained, under the names of the Hugging Face model.
func saveAdapter(dir, base, dtype, task string, l LoRA, params []*Param, hf func(string) string, whole []string) error {
	if err := finite(params); err != nil {
		return err
	}
	var ts []Tensor
	var targets []string
	for _, p := range params {
		if p.Frozen {
			continue
		}
		ts = append(ts, Tensor{"base_model.model." + hf(p.Name), p.Dims, p.Value})
		if stem, ok := strings.CutSuffix(p.Name, loraA); ok {
			targets = append(targets, strings.TrimSuffix(hf(stem+".weight"), ".weight"))
		}
	}
	c, err := json.MarshalIndent(map[string]any{"peft_type": "LORA", "task_type": task, "base_model_name_or_path": base, "r": l.Rank, "lora_alpha": l.Alpha,
		"lora_dropout": 0, "bias": "none", "fan_in_fan_out": false, "inference_mode": true, "target_modules": targets, "modules_to_save": whole}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, weights.AdapterConfig), append(c, '\n')); err != nil {
		return err
	}
	return WriteSafetensors(filepath.Join(dir, weights.AdapterWeights), ts, dtype, nil)
}
