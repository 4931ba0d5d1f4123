package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rag2/tensor/weights"
)

const data = "../../testdata/tokenizer/"

type golden struct {
	Model string  `json:"model"`
	Text  string  `json:"text"`
	Pair  *string `json:"pair"`
	Max   int     `json:"max"`
	IDs   []int32 `json:"ids"`
	Types []int32 `json:"types"`
}

func readGoldens(t testing.TB, path string, f func(golden)) (n int) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sc := bufio.NewScanner(file)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var g golden
		if err := json.Unmarshal(sc.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		f(g)
		n++
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSmallVocabulariesEqualHuggingFace(t *testing.T) {
	for _, kind := range []string{"wordpiece", "smollm", "llama3", "qwen2"} {
		tok, err := Load(data + kind + ".json")
		if err != nil {
			t.Fatal(err)
		}
		n := readGoldens(t, data+kind+".golden.jsonl", func(g golden) {
			if g.Pair != nil {
				e := tok.EncodePair(g.Text, *g.Pair, g.Max)
				if !slices.Equal(e.IDs, g.IDs) || !slices.Equal(e.TypeIDs, g.Types) {
					t.Errorf("%s pair %q %q max %d:\n got %v %v\nwant %v %v", kind, g.Text, *g.Pair, g.Max, e.IDs, e.TypeIDs, g.IDs, g.Types)
				}
				return
			}
			got := tok.AppendPlain(nil, g.Text)
			if !slices.Equal(got, g.IDs) {
				t.Errorf("%s %q:\n got %v\nwant %v", kind, g.Text, got, g.IDs)
			}
			if kind != "wordpiece" && tok.Decode(got) != g.Text {
				t.Errorf("%s: decoding gives %q, want %q", kind, tok.Decode(got), g.Text)
			}
		})
		if n < 200 {
			t.Errorf("%s: only %d goldens", kind, n)
		}
	}
}

// RAG2_TOKENIZER_GOLDENS names files written by testdata/tokenizer/gen.py parity (its
// models lie in RAG2_MODELS_DIR) or unigram.py ids (RAG2_TOKENIZER_DIR), separated by
// commas.
func TestParityOnRealTexts(t *testing.T) {
	paths := os.Getenv("RAG2_TOKENIZER_GOLDENS")
	if paths == "" {
		t.Skip("RAG2_TOKENIZER_GOLDENS is not set: no ids of real texts to compare with")
	}
	toks := map[string]Tokenizer{}
	if os.Getenv("RAG2_MODELS_DIR") != "" {
		toks = realTokenizers(t)
	}
	if dir := os.Getenv("RAG2_TOKENIZER_DIR"); dir != "" {
		for name, file := range map[string]string{"unigram": "unigram/tokenizer.json", "spiece": "unigram/spiece.model", "llama3": "llama3/tokenizer.json"} {
			tok, err := Load(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			toks[name] = tok
		}
	}
	texts, ids, diff := map[string]int{}, map[string]int{}, map[string]int{}
	for path := range strings.SplitSeq(paths, ",") {
		readGoldens(t, path, func(g golden) {
			got := toks[g.Model].AppendPlain(nil, g.Text)
			texts[g.Model]++
			ids[g.Model] += len(got)
			if !slices.Equal(got, g.IDs) {
				if diff[g.Model]++; diff[g.Model] < 5 {
					i := 0
					for i < min(len(got), len(g.IDs)) && got[i] == g.IDs[i] {
						i++
					}
					t.Errorf("%s %.80q differs from id %d of %d on: %q, want %q", g.Model, g.Text, i, len(got),
						toks[g.Model].Decode(got[max(i-3, 0):min(i+8, len(got))]), toks[g.Model].Decode(g.IDs[max(i-3, 0):min(i+8, len(g.IDs))]))
				}
			}
		})
	}
	for m := range texts {
		t.Logf("%s: %d of %d texts differ, %d ids", m, diff[m], texts[m], ids[m])
	}
}

func realTokenizers(t testing.TB) map[string]Tokenizer {
	t.Helper()
	dir := os.Getenv("RAG2_MODELS_DIR")
	if dir == "" {
		t.Skip("RAG2_MODELS_DIR is not set: no real vocabularies")
	}
	w, err := Load(filepath.Join(dir, "minilm"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := weights.Open(filepath.Join(dir, "smollm2"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := FromGGUF(f.Path(), f.Meta())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Tokenizer{"minilm": w, "smollm2": b}
}

func TestUserTextIsNeverControl(t *testing.T) {
	for kind, ctl := range map[string]string{"wordpiece": "[SEP]", "smollm": "<|im_start|>"} {
		tok, err := Load(data + kind + ".json")
		if err != nil {
			t.Fatal(err)
		}
		id, ok := tok.TokenID(ctl)
		if !ok {
			t.Fatalf("%s lacks %s", kind, ctl)
		}
		if slices.Contains(tok.AppendPlain(nil, "a "+ctl+" b"), id) {
			t.Errorf("%s: %s in user text became a control token", kind, ctl)
		}
		if p := tok.SplitSpecial("a " + ctl + " b"); len(p) != 3 || p[1].ID != id {
			t.Errorf("%s: %s in template text was not recognised", kind, ctl)
		}
	}
}

func TestHostileTexts(t *testing.T) {
	for _, kind := range []string{"wordpiece", "smollm", "llama3"} {
		tok, err := Load(data + kind + ".json")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"", "\xff\xfe", "a\xc3", strings.Repeat("x", 1<<20), strings.Repeat(" ", 1<<18), strings.Repeat("9", 1<<18)} {
			e := tok.EncodeSingle(s, 64)
			if len(e.IDs) > 64 {
				t.Errorf("%s: %d ids", kind, len(e.IDs))
			}
			e = tok.EncodePair(s, s, 33)
			if len(e.IDs) > 33 || len(e.IDs) != len(e.TypeIDs) {
				t.Errorf("%s: pair of %d ids, %d types", kind, len(e.IDs), len(e.TypeIDs))
			}
		}
	}
}

// mergeLong and mergeShort are one function in two speeds.
func TestMergesAgree(t *testing.T) {
	raw, err := os.ReadFile(data + "smollm.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := parse("smollm.json", raw)
	if err != nil {
		t.Fatal(err)
	}
	b := tok.(*BPE)
	readGoldens(t, data+"smollm.golden.jsonl", func(g golden) {
		var ids []int32
		for i := 0; i < len(g.Text); i++ {
			ids = append(ids, b.bytes[g.Text[i]])
		}
		if x, y := b.mergeShort(slices.Clone(ids)), b.mergeLong(slices.Clone(ids)); !slices.Equal(x, y) {
			t.Errorf("%q: %v and %v", g.Text, x, y)
		}
	})
}

func TestLongestFirst(t *testing.T) {
	for na := range 12 {
		for nb := range 12 {
			for room := range 25 {
				a, b := longestFirst(na, nb, room)
				if a > na || b > nb || a+b != min(room, na+nb) {
					t.Fatalf("longestFirst(%d, %d, %d) = %d, %d", na, nb, room, a, b)
				}
			}
		}
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("hello 12 's")
	f.Add("\xff\u0301 \r\n")
	var toks []Tokenizer
	for _, k := range []string{"wordpiece", "smollm", "llama3", "qwen2"} {
		tok, err := Load(data + k + ".json")
		if err != nil {
			f.Fatal(err)
		}
		toks = append(toks, tok)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, tok := range toks {
			for _, id := range tok.AppendPlain(nil, s) {
				if id < 0 || int(id) >= tok.VocabSize() {
					t.Fatalf("id %d", id)
				}
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, k := range []string{"wordpiece", "smollm", "unigram", "spbpe"} {
		b, err := os.ReadFile(data + k + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if tok, err := Parse("fuzz", b); err == nil {
			tok.EncodeSingle("a b", 8)
		}
	})
}

// BenchmarkTexts encodes every text of RAG2_TOKENIZER_TEXTS, JSON lines {"text"}, on
// one goroutine.
func BenchmarkTexts(b *testing.B) {
	path := os.Getenv("RAG2_TOKENIZER_TEXTS")
	if path == "" {
		b.Skip("RAG2_TOKENIZER_TEXTS is not set")
	}
	var texts []string
	size := 0
	readGoldens(b, path, func(g golden) { texts = append(texts, g.Text); size += len(g.Text) })
	toks := realTokenizers(b)
	if dir := os.Getenv("RAG2_TOKENIZER_DIR"); dir != "" {
		for name, file := range map[string]string{"unigram": "unigram/tokenizer.json", "spiece": "unigram/spiece.model", "llama3": "llama3/tokenizer.json"} {
			tok, err := Load(filepath.Join(dir, file))
			if err != nil {
				b.Fatal(err)
			}
			toks[name] = tok
		}
	}
	for name, tok := range toks {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			var ids []int32
			for b.Loop() {
				for _, s := range texts {
					ids = tok.AppendPlain(ids[:0], s)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat("Metformin lowers hepatic glucose output and improves insulin sensitivity in type 2 diabetes. ", 10)
	for kind, tok := range realTokenizers(b) {
		b.Run(kind, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var ids []int32
			for b.Loop() {
				ids = tok.AppendPlain(ids[:0], text)
			}
		})
	}
}
