package registry

import (
	"fmt"
	"slices"
	"strings"
)

// Role is what a model does in the method.
type Role string

// The roles. An Encoder serves both sides of a bi-encoder.
const (
	Encoder        Role = "encoder"
	QueryEncoder   Role = "query encoder"
	ArticleEncoder Role = "article encoder"
	CrossEncoder   Role = "cross-encoder"
	Filter         Role = "filter"
	Generator      Role = "generator"
)

// Preset is a model known by name.
type Preset struct {
	Name     string   `json:"name"`
	Role     Role     `json:"role"`
	Repo     string   `json:"repo"`
	Revision string   `json:"revision"`
	Want     []string `json:"-"` // patterns of files that are pulled, see hub.Match
	Optional []string `json:"-"` // and of files that a repository need not have
	// Bytes is the size of the wanted files, about, for a table that is made without the
	// network; the hub says the true sizes when pulling.
	Bytes   int64  `json:"bytes"`
	Licence string `json:"licence"`
	Note    string `json:"note,omitempty"`

	// Settings of encoders and cross-encoders: limits in tokens, special tokens
	// included.
	Pooling  string `json:"pooling,omitempty"` // "cls" or "mean"
	MaxToken int    `json:"max_tokens,omitempty"`
	Pairs    bool   `json:"pairs,omitempty"` // articles are pairs [title, body]
}

// Files of a Transformers checkpoint that rag2 reads. Which of the optional ones a
// repository has differs; inspect says what a model cannot do without.
var (
	wantHF     = []string{"config.json"}
	optionalHF = []string{"generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
		"vocab.txt", "spiece.model", "chat_template.jinja", "1_Pooling/config.json", "modules.json", "sentence_bert_config.json",
		"model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors", "LICENSE*", "USE_POLICY.md"}
)

const (
	publicDomain = "public domain (a work of the US government, NCBI)"
	apache       = "Apache-2.0"
)

var presets = []Preset{
	{Name: "medcpt-query", Role: QueryEncoder, Repo: "ncbi/MedCPT-Query-Encoder", Bytes: 438e6, Licence: publicDomain, Pooling: "cls", MaxToken: 512, Pairs: true,
		Note: "MedCPT's own limit for queries is 64 tokens; rationales need 512"},
	{Name: "medcpt-article", Role: ArticleEncoder, Repo: "ncbi/MedCPT-Article-Encoder", Bytes: 438e6, Licence: publicDomain, Pooling: "cls", MaxToken: 512, Pairs: true},
	{Name: "medcpt-cross", Role: CrossEncoder, Repo: "ncbi/MedCPT-Cross-Encoder", Bytes: 438e6, Licence: publicDomain, MaxToken: 512, Pairs: true},
	{Name: "flan-t5-small", Role: Filter, Repo: "google/flan-t5-small", Bytes: 311e6, Licence: apache, Note: trainNote},
	{Name: "flan-t5-base", Role: Filter, Repo: "google/flan-t5-base", Bytes: 993e6, Licence: apache, Note: trainNote},
	{Name: "flan-t5-large", Role: Filter, Repo: "google/flan-t5-large", Bytes: 3136e6, Licence: apache, Note: trainNote},
	{Name: "llama-3-8b-instruct", Role: Generator, Repo: "meta-llama/Meta-Llama-3-8B-Instruct", Bytes: 16070e6,
		Licence: "Meta Llama 3 Community License", Note: "gated: accept the licence on the model's page and set HF_TOKEN"},
	{Name: "meerkat-7b", Role: Generator, Repo: "dmis-lab/meerkat-7b-v1.0", Bytes: 14490e6, Licence: "CC-BY-NC-4.0 (no commercial use)"},
	{Name: "minilm", Role: Encoder, Repo: "sentence-transformers/all-MiniLM-L6-v2", Bytes: 92e6, Licence: apache, Pooling: "mean", MaxToken: 512,
		Note: "the demo's encoder; general English"},
	{Name: "smollm2", Role: Generator, Repo: "HuggingFaceTB/SmolLM2-135M-Instruct", Bytes: 272e6, Licence: apache, Note: "the demo's language model"},
}

const trainNote = "where the filter's training starts: it has no [HELPFUL] and [NOT_HELPFUL] tokens yet"

// groups are names for several presets.
var groups = map[string][]string{
	"medcpt": {"medcpt-query", "medcpt-article", "medcpt-cross"},
	"demo":   {"minilm", "smollm2"},
}

func init() {
	for i := range presets {
		presets[i].Revision = "main"
		presets[i].Want, presets[i].Optional = wantHF, optionalHF
	}
}

// Presets lists every known model.
func Presets() []Preset { return slices.Clone(presets) }

// Names lists what Find takes: presets, then groups.
func Names() []string {
	var out, g []string
	for _, p := range presets {
		out = append(out, p.Name)
	}
	for n := range groups {
		g = append(g, n)
	}
	slices.Sort(g)
	return append(out, g...)
}

// Find returns the presets that a name stands for: one, or the members of a group.
// A name is found in any case, and by its repository.
func Find(name string) ([]Preset, error) {
	lower := strings.ToLower(name)
	members, ok := groups[lower]
	if !ok {
		members = []string{lower}
	}
	var out []Preset
	for _, m := range members {
		for _, p := range presets {
			if p.Name == m || strings.EqualFold(p.Repo, m) {
				out = append(out, p)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("model %q: %w; known are %s", name, ErrUnknown, strings.Join(Names(), ", "))
	}
	return out, nil
}

// preset finds one model, nil when the name is a group or unknown.
func preset(name string) *Preset {
	ps, err := Find(name)
	if err != nil || len(ps) != 1 {
		return nil
	}
	return &ps[0]
}
