package train

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"rag2/models"
)

// python is the interpreter that PYTHON names, or python3, when it has these modules;
// otherwise the test is skipped.
func python(t *testing.T, modules string) string {
	t.Helper()
	p := os.Getenv("PYTHON")
	if p == "" {
		p = "python3"
	}
	if out, err := exec.CommandContext(t.Context(), p, "-c", "import "+modules).CombinedOutput(); err != nil {
		t.Skipf("%s does not import %s; PYTHON names one that does: %v %s", p, modules, err, bytes.TrimSpace(out))
	}
	return p
}

// trained are directories as `rag2 filter train` writes them, by kind.
func trained(t *testing.T) map[string]string {
	t.Helper()
	e := engines(t)["native"]
	text := models.FilterText("Which vitamin? A) B12 B) C", "Metformin lowers vitamin B12.")
	dirs := map[string]string{}
	for name, open := range map[string]func() (Classifier, error){
		"t5":   func() (Classifier, error) { return OpenT5("../../testdata/t5/flan", nil, 1) },
		"tied": func() (Classifier, error) { return OpenT5("../../testdata/demo/filter", nil, 1) },
		"new":  func() (Classifier, error) { return OpenT5(withoutLabels(t), &LoRA{2, 4}, 1) },
		"bert": func() (Classifier, error) {
			b, err := OpenBERT("../../testdata/bert/tiny", BERTOptions{Labels: 2, Seed: 1})
			return &PairFilter{BERT: b, MaxTokens: 64}, err
		},
	} {
		x, err := open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tr, err := New(e, x.Parameters(), x.Loss, Options{Steps: 2, LR: 1e-3})
		if err != nil {
			t.Fatal(err)
		}
		ex, err := x.Prepare(text, 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := tr.Batch(x.Inputs([]Example{ex})); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		tr.Close()
		dirs[name] = t.TempDir()
		if err := x.SaveFilter(dirs[name], F32); err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}

// transformers opens what was written, finds every weight in it and no other, and computes
// what our filter computes.
func TestTransformersOpensWhatIsTrained(t *testing.T) {
	py := python(t, "torch, transformers")
	q, s := "Which vitamin? A) B12 B) C", "Metformin lowers vitamin B12 after years."
	for name, dir := range trained(t) {
		got := opened(t, py, dir, models.FilterText(q, s), q, s)
		f, err := models.OpenFilterOn(engines(t)["native"], dir, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		vs, _, err := f.Judge(t.Context(), q, []string{s})
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if !(math.Abs(vs[0].P-*got.P) <= 1e-4) || len(got.Missing)+len(got.Unexpected)+len(got.Mismatched) > 0 {
			t.Errorf("%s: transformers %+v, ours %g", name, got, vs[0].P)
		}
	}
}

// openedBy is what open.py prints.
type openedBy struct {
	P          *float64
	Missing    []string `json:"missing_keys"`
	Unexpected []string `json:"unexpected_keys"`
	Mismatched []string `json:"mismatched_keys"`
}

func opened(t *testing.T, py string, args ...string) (got openedBy) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), py, append([]string{"../../testdata/train/open.py"}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, errs.String())
	}
	if err := json.Unmarshal(out, &got); err != nil || got.P == nil {
		t.Fatalf("%v: %s, %v", args, out, err)
	}
	return got
}

// The PEFT library opens a reranker's adapter over its base and computes our logit.
func TestPEFTOpensTheAdapter(t *testing.T) {
	py := python(t, "torch, transformers, peft")
	const base = "../../testdata/bert/tiny"
	x, err := OpenBERT(base, BERTOptions{Labels: 1, LoRA: &LoRA{3, 6}, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	e := engines(t)["native"]
	tr, err := New(e, x.Params, x.GroupLoss(2), Options{Steps: 20, LR: 1e-2})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	q, s := "Which vitamin?", "Metformin lowers vitamin B12."
	for range 20 {
		if _, err := tr.Batch(x.PairInputs([][2]string{{q, s}, {q, "A fracture of the hip."}}, 64)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := x.SaveAdapter(dir, base, F32); err != nil {
		t.Fatal(err)
	}
	c, err := models.OpenCrossEncoderOn(e, dir, 0, func(string) (string, error) { return base, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	z, _, err := c.Score(t.Context(), q, []string{s})
	if err != nil {
		t.Fatal(err)
	}
	if got := opened(t, py, dir, "", q, s, base); !(math.Abs(float64(z[0])-*got.P) <= 1e-4) {
		t.Errorf("PEFT %g, ours %g", *got.P, z[0])
	}
}

// The files have the form of Hugging Face's, so far as that shows without its libraries.
func TestFormOfWhatIsTrained(t *testing.T) {
	type tensor struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := func(dir string) map[string]tensor {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		n := int(binary.LittleEndian.Uint64(b))
		var raw map[string]json.RawMessage
		if err := json.Unmarshal(b[8:8+n], &raw); err != nil || n%8 != 0 {
			t.Fatalf("%s: header of %d bytes: %v", dir, n, err)
		}
		var meta map[string]string
		if err := json.Unmarshal(raw["__metadata__"], &meta); err != nil || meta["format"] != "pt" {
			t.Errorf("%s: metadata %s: transformers takes format pt only", dir, raw["__metadata__"])
		}
		delete(raw, "__metadata__")
		out := map[string]tensor{}
		end := 0
		var spans [][2]int
		for name, r := range raw {
			var x tensor
			if err := json.Unmarshal(r, &x); err != nil {
				t.Fatal(err)
			}
			size := map[string]int{"F32": 4, "F16": 2, "BF16": 2}[x.DType]
			for _, d := range x.Shape {
				size *= d
			}
			if size == 0 || x.Offsets[1]-x.Offsets[0] != size {
				t.Errorf("%s: %s: %+v", dir, name, x)
			}
			out[name], end = x, max(end, x.Offsets[1])
			spans = append(spans, x.Offsets)
		}
		slices.SortFunc(spans, func(a, b [2]int) int { return a[0] - b[0] })
		for i, at := 0, 0; i < len(spans); i++ { // no holes and no overlaps, as the format asks
			if spans[i][0] != at {
				t.Errorf("%s: a tensor at %v, expected at %d", dir, spans[i], at)
			}
			at = spans[i][1]
		}
		if 8+n+end != len(b) {
			t.Errorf("%s: %d bytes for a header of %d and %d of weights", dir, len(b), n, end)
		}
		return out
	}
	bases := map[string]string{"t5": "../../testdata/t5/flan", "tied": "../../testdata/demo/filter", "new": "../../testdata/t5/flan", "bert": "../../testdata/bert/tiny"}
	for name, dir := range trained(t) {
		base, got := header(bases[name]), header(dir)
		var config struct {
			Architectures []string
			Vocab         int               `json:"vocab_size"`
			Labels        map[string]string `json:"id2label"`
			IDs           map[string]int    `json:"label2id"`
		}
		b, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err == nil {
			err = json.Unmarshal(b, &config)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "bert" {
			// The head is new; the rest are the base's weights with the prefix that a classifier gives them.
			if x := got["classifier.weight"]; len(x.Shape) != 2 || x.Shape[0] != 2 {
				t.Errorf("classifier %+v", x)
			}
			if fmt.Sprint(config.Architectures) != "[BertForSequenceClassification]" || config.Labels["1"] != models.LabelHelpful || config.IDs[models.LabelHelpful] != 1 || config.IDs[models.LabelNotHelpful] != 0 {
				t.Errorf("%+v", config)
			}
			continue
		}
		for n, x := range base {
			y, ok := got[n]
			if !ok || len(x.Shape) != len(y.Shape) || !slices.Equal(x.Shape[1:], y.Shape[1:]) || x.Shape[0] > y.Shape[0] {
				t.Errorf("%s: %s is %+v, in the base %+v", name, n, y, x)
			}
		}
		if len(got) != len(base) {
			t.Errorf("%s: %d tensors, the base has %d", name, len(got), len(base))
		}
		if fmt.Sprint(config.Architectures) != "[T5ForConditionalGeneration]" || config.Vocab != got["shared.weight"].Shape[0] {
			t.Errorf("%s: %+v, embeddings %v", name, config, got["shared.weight"])
		}
		type token struct {
			ID      int
			Content string
		}
		var tok struct {
			Added []token `json:"added_tokens"`
		}
		if b, err = os.ReadFile(filepath.Join(dir, "tokenizer.json")); err == nil {
			err = json.Unmarshal(b, &tok)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, l := range labelTokens {
			i := slices.IndexFunc(tok.Added, func(a token) bool { return a.Content == l })
			if i < 0 || tok.Added[i].ID >= config.Vocab {
				t.Errorf("%s: %s is not among the %d added tokens, or has no embedding", name, l, len(tok.Added))
			}
		}
	}
}
