package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"rag2/tensor/weights"
)

func fromGGUF(t testing.TB, name string) Tokenizer {
	t.Helper()
	w, err := weights.Open("../../testdata/gguf/" + name + ".gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	tok, err := FromGGUF(w.Path(), w.Meta())
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// Vocabularies in GGUF files give the ids of the libraries that they were made with.
func TestGGUFVocabularies(t *testing.T) {
	for name, goldens := range map[string]string{"mistral": "../../testdata/gguf/spm.golden.jsonl", "t5": data + "spiece.golden.jsonl", "qwen2": data + "qwen2.golden.jsonl"} {
		tok := fromGGUF(t, name)
		bad := 0
		n := readGoldens(t, goldens, func(g golden) {
			if got := tok.AppendPlain(nil, g.Text); !slices.Equal(got, g.IDs) {
				if bad++; bad < 4 {
					t.Errorf("%s %q:\n got %v\nwant %v", name, g.Text, got, g.IDs)
				}
			}
		})
		if n < 200 || bad > 0 {
			t.Errorf("%s: %d of %d differ", name, bad, n)
		}
	}
	m, u := fromGGUF(t, "mistral"), fromGGUF(t, "t5")
	if e := m.EncodeSingle("blood", 0); e.IDs[0] != 1 || m.Decode(e.IDs) != "blood" {
		t.Errorf("%v %q", e.IDs, m.Decode(e.IDs))
	}
	if e := u.EncodeSingle("blood", 0); e.IDs[len(e.IDs)-1] != 1 || u.Decode(e.IDs) != "blood" {
		t.Errorf("%v %q", e.IDs, u.Decode(e.IDs))
	}
	if id, ok := u.TokenID("<extra_id_0>"); !ok || slices.Contains(u.AppendPlain(nil, "a <extra_id_0>"), id) {
		t.Error("an extra id came from text")
	}
}

func TestGGUFVocabularyFaults(t *testing.T) {
	for want, meta := range map[string]map[string]any{
		"lacks":   {"tokenizer.ggml.model": "llama"},
		"scores":  {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": []string{"a"}},
		"bert":    {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": []string{"a"}},
		"unknown": {"tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": []string{"a"}, "tokenizer.ggml.scores": []float32{1}, "tokenizer.ggml.token_type": []int32{1}},
		"<0x00>":  {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": []string{"a"}, "tokenizer.ggml.scores": []float32{1}, "tokenizer.ggml.token_type": []int32{1}},
	} {
		if _, err := FromGGUF("x.gguf", meta); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
