package registry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rag2/models"
	"rag2/models/hub"
	"rag2/models/t5"
	"rag2/models/tokenizer"
	"rag2/tensor"
	"rag2/tensor/weights"
)

// Step is one check of Verify.
type Step struct {
	Name   string `json:"name"` // "files", "hashes", "weights", "tokenizer", "forward pass", "golden values"
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Report is the result of Verify.
type Report struct {
	Name  string `json:"name"`
	Dir   string `json:"dir"`
	Role  Role   `json:"role,omitempty"`
	Steps []Step `json:"steps"`
}

// OK reports whether every step passed.
func (r Report) OK() bool { return !slices.ContainsFunc(r.Steps, func(s Step) bool { return !s.OK }) }

func (r *Report) add(name string, err error, format string, args ...any) bool {
	s := Step{Name: name, OK: err == nil, Detail: fmt.Sprintf(format, args...)}
	if err != nil {
		s.Detail = err.Error()
	}
	r.Steps = append(r.Steps, s)
	return s.OK
}

// Verify checks a model that is here, by name or path, and rereads every byte of it:
// the files are complete; their hashes are those of the hub (where the hub's cache
// layout keeps them); every tensor has a readable type and finite values; the
// tokenizer loads; the network has the shapes that its configuration asks for and a
// forward pass on e gives finite numbers; published values come out where there are
// some. With e nil the network is not run. The error is for a model that is not here
// or a cancelled context; faults of the model are steps that are not OK.
func (s Store) Verify(ctx context.Context, e *tensor.Engine, name string) (Report, error) {
	dir, err := s.find(name)
	if err != nil {
		return Report{}, err
	}
	r := Report{Name: name, Dir: dir}
	p := preset(name)
	if p != nil {
		r.Role = p.Role
	} else {
		r.Role = guessRole(dir)
	}
	bytes, format, missing := inspect(dir)
	if len(missing) > 0 {
		r.add("files", fmt.Errorf("%w: %s", ErrIncomplete, strings.Join(missing, ", ")), "")
		return r, nil
	}
	r.add("files", nil, "%s, %d bytes", format, bytes)
	if known, err := checkHashes(dir); err != nil {
		r.add("hashes", err, "")
	} else if known > 0 {
		r.add("hashes", nil, "%d files are what the hub said", known)
	}
	if err := ctx.Err(); err != nil {
		return r, err
	}
	detail, err := checkWeights(ctx, dir)
	if !r.add("weights", err, "%s", detail) {
		return r, ctx.Err()
	}
	if format == "safetensors" {
		t, err := tokenizer.Load(dir)
		if err != nil {
			r.add("tokenizer", err, "")
			return r, nil
		}
		r.add("tokenizer", nil, "%d tokens", t.VocabSize())
	}
	if e == nil {
		return r, nil
	}
	detail, err = s.forward(ctx, e, r.Role, dir, p)
	r.add("forward pass", err, "on %s: %s", e.Name(), detail)
	if err == nil && p != nil && p.Role == CrossEncoder {
		checkCrossEncoder(ctx, e, &r, dir)
	}
	return r, ctx.Err()
}

// checkHashes rereads the files of a snapshot; 0 files when dir is none.
func checkHashes(dir string) (int, error) {
	n := 0
	var errs []error
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.Type()&os.ModeSymlink == 0 {
			return err
		}
		to, err := os.Readlink(p)
		if err != nil {
			return err
		}
		st, err := os.Stat(p)
		if err != nil {
			return err
		}
		f := hub.File{Path: p, Size: st.Size()}
		switch base := filepath.Base(to); len(base) {
		case 64:
			f.SHA256 = base
		case 40:
			f.GitSHA1 = base
		default:
			return nil
		}
		n++
		if err := hub.VerifyFile(p, f); err != nil {
			errs = append(errs, err)
		}
		return nil
	})
	return n, errors.Join(append(errs, err)...)
}

// checkWeights reads every tensor once.
func checkWeights(ctx context.Context, dir string) (string, error) {
	open := func() (*weights.File, error) { return weights.Open(dir) }
	if _, ok, err := weights.AdapterBase(dir); err != nil {
		return "", err
	} else if ok {
		open = func() (*weights.File, error) {
			return weights.OpenSafetensors(filepath.Join(dir, weights.AdapterWeights))
		}
	}
	w, err := open()
	if err != nil {
		return "", err
	}
	defer w.Close()
	types := map[weights.DType]int{}
	params := 0
	for _, n := range w.Names() {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		i, err := w.Info(n)
		if err != nil {
			return "", err
		}
		types[i.DType]++
		params += i.Len()
		switch i.DType {
		case weights.I8, weights.I16, weights.I32, weights.I64, weights.U8, weights.Bool:
			continue
		}
		v, err := w.Float32(n)
		if err != nil {
			return "", err
		}
		for j, x := range v {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				return "", fmt.Errorf("%s: tensor %q holds %v at element %d", w.Path(), n, x, j)
			}
		}
	}
	var parts []string
	for t, n := range types {
		parts = append(parts, fmt.Sprintf("%d × %s", n, t))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d tensors (%s), %.1f million parameters", len(w.Names()), strings.Join(parts, ", "), float64(params)/1e6), nil
}

// guessRole reads the architecture of config.json, "" when it says nothing known.
func guessRole(dir string) Role {
	if _, ok, err := weights.AdapterBase(dir); ok || err != nil {
		return CrossEncoder
	}
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return Generator // GGUF
	}
	s := string(b)
	switch {
	case strings.Contains(s, "ForSequenceClassification"):
		return CrossEncoder
	case strings.Contains(s, "ForCausalLM"):
		return Generator
	case strings.Contains(s, `"t5"`):
		return Filter
	case strings.Contains(s, `"bert"`):
		return Encoder
	}
	return ""
}

// forward opens the model as its role asks and runs it once.
func (s Store) forward(ctx context.Context, e *tensor.Engine, role Role, dir string, p *Preset) (string, error) {
	switch role {
	case Encoder, QueryEncoder, ArticleEncoder:
		spec := models.EncoderSpec{QueryDir: dir}
		if p != nil {
			spec.Pooling, spec.PairArticles = p.Pooling, p.Pairs
		}
		m, err := models.OpenEncoder(e, spec)
		if err != nil {
			return "", err
		}
		defer m.Close()
		v, _, err := m.EncodeArticles(ctx, []models.Article{{Title: "Chest pain", Body: "Crushing chest pain may be a heart attack."}})
		if err != nil {
			return "", err
		}
		norm := 0.0
		for _, x := range v[0] {
			norm += float64(x) * float64(x)
		}
		return fmt.Sprintf("%d dimensions, norm %.2f", len(v[0]), math.Sqrt(norm)), nil
	case CrossEncoder:
		m, err := models.OpenCrossEncoderOn(e, dir, 0, s.Resolve)
		if err != nil {
			return "", err
		}
		defer m.Close()
		v, _, err := m.Score(ctx, "chest pain", []string{"Crushing chest pain may be a heart attack."})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("logit %.4f", v[0]), nil
	case Filter:
		return forwardFilter(ctx, e, dir)
	case Generator:
		m, err := models.OpenGenerator(e, dir, 0)
		if err != nil {
			return "", err
		}
		defer m.Close()
		c, err := m.Chat(ctx, []models.Message{{Role: "user", Content: "Is the heart a muscle?"}}, models.GenerateOptions{MaxTokens: 4, Logprobs: true})
		if err != nil {
			return "", err
		}
		for _, l := range c.Logprobs {
			if math.IsNaN(l) || l > 0 {
				return "", fmt.Errorf("log-probability %v: %w", l, models.ErrNotFinite)
			}
		}
		return fmt.Sprintf("%d tokens, %q", c.NewTokens, c.Text), nil
	}
	return "", fmt.Errorf("%s: config.json names no architecture that is known", dir)
}

// forwardFilter judges one snippet, or generates a few tokens when the model was not
// trained as a filter yet.
func forwardFilter(ctx context.Context, e *tensor.Engine, dir string) (string, error) {
	f, err := models.OpenFilter(e, dir)
	if errors.Is(err, models.ErrNoLabel) {
		m, err := t5.Open(e, dir)
		if err != nil {
			return "", err
		}
		defer m.Close()
		t, err := tokenizer.Load(dir)
		if err != nil {
			return "", err
		}
		ids, _, err := m.Generate(ctx, t.EncodeSingle("Question: Is the heart a muscle? Answer yes or no.", 0).IDs, 4)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%q; not trained as a filter yet", t.Decode(ids)), nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	v, _, err := f.Judge(ctx, "What treats a heart attack? A) Aspirin B) Rest", []string{"Crushing chest pain may be a heart attack."})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("P(helpful) %.4f", v[0].P), nil
}

// The example of MedCPT-Cross-Encoder's model card.
var (
	cardQuery    = "diabetes treatment"
	cardArticles = []string{
		"Type 1 and 2 diabetes mellitus: A review on current treatment approach and gene therapy as potential intervention. Type 1 and type 2 diabetes mellitus is a serious and lifelong condition commonly characterised by abnormally elevated blood glucose levels due to a failure in insulin production or a decrease in insulin sensitivity and function. [...]",
		"Diabetes mellitus and its chronic complications. Diabetes mellitus is a major cause of morbidity and mortality, and it is a major risk factor for early onset of coronary heart disease. Complications of diabetes are retinopathy, nephropathy, and peripheral neuropathy. [...]",
		"Diagnosis and Management of Central Diabetes Insipidus in Adults. Central diabetes insipidus (CDI) is a clinical syndrome which results from loss or impaired function of vasopressinergic neurons in the hypothalamus/posterior pituitary, resulting in impaired synthesis and/or secretion of arginine vasopressin (AVP). [...]",
		"Adipsic diabetes insipidus. Adipsic diabetes insipidus (ADI) is a rare but devastating disorder of water balance with significant associated morbidity and mortality. Most patients develop the disease as a result of hypothalamic destruction from a variety of underlying etiologies. [...]",
		"Nephrogenic diabetes insipidus: a comprehensive overview. Nephrogenic diabetes insipidus (NDI) is characterized by the inability to concentrate urine that results in polyuria and polydipsia, despite having normal or elevated plasma concentrations of arginine vasopressin (AVP). [...]",
		"Impact of Salt Intake on the Pathogenesis and Treatment of Hypertension. Excessive dietary salt (sodium chloride) intake is associated with an increased risk for hypertension, which in turn is especially a major risk factor for stroke and other cardiovascular pathologies, but also kidney diseases. Besides, high salt intake or preference for salty food is discussed to be positive associated with stomach cancer, and according to recent studies probably also obesity risk. [...]",
	}
	cardLogits = []float64{6.9363, -8.2063, -8.7692, -12.3450, -10.4416, -15.8475}
)

// cardTolerance is that of logits printed with four decimals, computed elsewhere.
const cardTolerance = 1e-3

// checkCrossEncoder compares with the values that MedCPT's model card publishes.
func checkCrossEncoder(ctx context.Context, e *tensor.Engine, r *Report, dir string) {
	m, err := models.OpenCrossEncoder(e, dir, 0)
	if err != nil {
		r.add("golden values", err, "")
		return
	}
	defer m.Close()
	got, _, err := m.Score(ctx, cardQuery, cardArticles)
	worst := 0.0
	for i := range got {
		worst = max(worst, math.Abs(float64(got[i])-cardLogits[i]))
	}
	if err == nil && worst > cardTolerance {
		err = fmt.Errorf("the model card's logits %v are missed by %.4f: %v", cardLogits, worst, got)
	}
	r.add("golden values", err, "the model card's six logits within %.1e", worst)
}
