package train

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rag2/models"
	"rag2/models/bert"
	"rag2/tensor/weights"
)

// An adapter over its base computes what the merged model computes, and the trainer.
func TestAdapterEqualsMerged(t *testing.T) {
	g, _ := load(t)
	e := engines(t)["native"]
	base := testdata + "tiny"
	c, err := bert.ReadConfig(base)
	if err != nil {
		t.Fatal(err)
	}
	x := &BERT{Config: c, dir: base}
	if err := x.read(BERTOptions{Labels: 1, LoRA: &LoRA{3, 6}, FreezeLayers: 1, Seed: 4}); err != nil {
		t.Fatal(err)
	}
	tr, err := New(e, x.Params, x.GroupLoss(4), Options{Steps: 40, LR: 3e-3})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var before, after float64
	for i := range 40 {
		l, err := tr.Batch(g.batch(i))
		if err != nil {
			t.Fatal(err)
		}
		if i < 10 {
			before += l
		} else if i >= 30 {
			after += l
		}
	}
	if !(after < before) {
		t.Errorf("the loss went from %g to %g", before, after)
	}
	for _, p := range x.Params {
		if strings.HasPrefix(p.Name, "encoder.layer.0.") && strings.Contains(p.Name, "lora") {
			t.Errorf("%s lies in a frozen layer", p.Name)
		}
	}
	whole, adapter := t.TempDir(), t.TempDir()
	if err := errors.Join(x.Save(whole, F32, nil), x.SaveAdapter(adapter, base, F32)); err != nil {
		t.Fatal(err)
	}
	a, err := bert.Open(e, whole, bert.Classifier)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := bert.OpenAdapted(e, base, adapter, bert.Classifier)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	in := g.batch(0)
	n, l := in[0].Dims[0], in[0].Dims[1]
	za, err := a.Forward(in[0].Flat, in[1].Flat, in[2].Flat, n, l)
	if err != nil {
		t.Fatal(err)
	}
	zb, err := b.Forward(in[0].Flat, in[1].Flat, in[2].Flat, n, l)
	if err != nil {
		t.Fatal(err)
	}
	zt, err := tr.Evaluate("logits", in, n, x.logitsOf)
	if err != nil {
		t.Fatal(err)
	}
	for i := range za {
		if math.Abs(float64(za[i]-zb[i])) > 1e-4 || math.Abs(float64(za[i]-zt[i])) > 1e-4 {
			t.Errorf("row %d: merged %g, adapter %g, trainer %g", i, za[i], zb[i], zt[i])
		}
	}
	if name, ok, err := weights.AdapterBase(adapter); !ok || err != nil || name != base {
		t.Errorf("base %q, %v, %v", name, ok, err)
	}
	if _, ok, err := weights.AdapterBase(whole); ok || err != nil {
		t.Errorf("a model of its own passes as an adapter: %v", err)
	}
}

func TestBadAdapters(t *testing.T) {
	for what, config := range map[string]string{
		"no json": `{`, "another type": `{"peft_type":"IA3","base_model_name_or_path":"b","r":2}`, "dora": `{"peft_type":"LORA","use_dora":true,"base_model_name_or_path":"b","r":2}`,
		"no rank": `{"peft_type":"LORA","base_model_name_or_path":"b"}`, "no base": `{"peft_type":"LORA","r":2}`, "patterns": `{"peft_type":"LORA","base_model_name_or_path":"b","r":2,"rank_pattern":{"q":4}}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, weights.AdapterConfig), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := weights.OpenAdapted(testdata+"tiny", dir); err == nil || !strings.Contains(err.Error(), weights.AdapterConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Products that do not fit the base.
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 1))
	wide := &Param{Name: "encoder.layer.0.attention.self.query.weight", Dims: []int{32, 40}, Value: make([]float32, 32*40)}
	ps, err := LoRA{2, 2}.Apply([]*Param{wide}, func(string) bool { return true }, func(string) bool { return false }, rng.Uint64())
	if err != nil {
		t.Fatal(err)
	}
	if err := saveAdapter(dir, "b", F32, "SEQ_CLS", LoRA{2, 2}, ps, hfName, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := weights.OpenAdapted(testdata+"tiny", dir); err == nil || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("a product of another shape: %v", err)
	}
}

// A filter that was trained opens as one, whatever it is, and judges as the trainer does.
func TestTrainedFiltersOpen(t *testing.T) {
	e := engines(t)["native"]
	text := models.FilterText("Which vitamin? A) B12 B) C", "Metformin lowers vitamin B12.")
	for name, open := range map[string]func() (Classifier, error){
		"t5":  func() (Classifier, error) { return OpenT5("../../testdata/t5/flan", nil, 1) },
		"new": func() (Classifier, error) { return OpenT5(withoutLabels(t), &LoRA{2, 4}, 1) },
		"bert": func() (Classifier, error) {
			b, err := OpenBERT("../../testdata/bert/tiny", BERTOptions{Labels: 2, Seed: 1})
			return &PairFilter{BERT: b, MaxTokens: 64}, err
		},
	} {
		x, err := open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tr, err := New(e, x.Parameters(), x.Loss, Options{Steps: 20, LR: 1e-2})
		if err != nil {
			t.Fatal(err)
		}
		ex, err := x.Prepare(text, 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if _, err := tr.Batch(x.Inputs([]Example{ex, ex})); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		score, err := HeldOut(x, tr, []Example{ex, ex, ex}, 2)(t.Context())
		if err != nil || score.More["accuracy"] != 1 {
			t.Errorf("%s: %+v, %v", name, score, err)
		}
		dir := t.TempDir()
		if err := x.SaveFilter(dir, F32); err != nil {
			t.Fatal(err)
		}
		f, err := models.OpenFilterOn(e, dir, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		q, s, _ := models.ParseFilterText(text)
		vs, _, err := f.Judge(t.Context(), q, []string{s})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := math.Exp(score.Value); math.Abs(vs[0].P-want) > 1e-4 || !vs[0].Helpful {
			t.Errorf("%s: the filter gives %+v, the trainer %g", name, vs[0], want)
		}
		f.Close()
		tr.Close()
	}
}

// withoutLabels is the tiny Flan-T5 with the label tokens taken out of its vocabulary.
func withoutLabels(t *testing.T) string {
	dir := t.TempDir()
	for _, f := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		b, err := os.ReadFile(filepath.Join("../../testdata/t5/flan", f))
		if err != nil {
			t.Fatal(err)
		}
		if f == "tokenizer.json" {
			s := string(b)
			for _, l := range labelTokens {
				s = strings.ReplaceAll(s, l, "<was_"+strings.Trim(l, "[]")+">")
			}
			b = []byte(s)
		}
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
