package tokenizer

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// nmtNFKC is a small model with SentencePiece's own normalisation map.
func nmtNFKC(t testing.TB) []byte {
	t.Helper()
	f, err := os.Open(data + "nmt_nfkc.model.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func spmTokenizers(t testing.TB) map[string]Tokenizer {
	t.Helper()
	out := map[string]Tokenizer{}
	for name, file := range map[string]string{"unigram": "unigram.json", "spiece": "spiece.model", "spbpe": "spbpe.json"} {
		tok, err := Load(data + file)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = tok
	}
	u, err := ParseSentencePiece("nmt_nfkc.model", nmtNFKC(t))
	if err != nil {
		t.Fatal(err)
	}
	out["nmt_nfkc"] = u
	return out
}

func TestSentencePieceVocabulariesEqualTheirLibraries(t *testing.T) {
	for name, tok := range spmTokenizers(t) {
		bad := 0
		n := readGoldens(t, data+name+".golden.jsonl", func(g golden) {
			if got := tok.AppendPlain(nil, g.Text); !slices.Equal(got, g.IDs) {
				if bad++; bad < 6 {
					t.Errorf("%s %q:\n got %v\nwant %v", name, g.Text, got, g.IDs)
				}
			}
		})
		if n < 200 || bad > 0 {
			t.Errorf("%s: %d of %d differ", name, bad, n)
		}
	}
}

func TestUnigramTemplatesAndAddedTokens(t *testing.T) {
	for name, tok := range spmTokenizers(t) {
		if name == "spbpe" {
			if e := tok.EncodeSingle("blood", 0); e.IDs[0] != 1 {
				t.Errorf("%s: %v", name, e.IDs)
			}
			continue
		}
		e := tok.EncodeSingle("blood pressure", 3)
		if len(e.IDs) > 3 || e.IDs[len(e.IDs)-1] != 1 || e.Truncated == 0 {
			t.Errorf("%s: %+v", name, e)
		}
		if e := tok.EncodePair("blood", "pressure", 0); e.IDs[len(e.IDs)-1] != 1 || slices.Index(e.IDs, 1) == len(e.IDs)-1 {
			t.Errorf("%s: pair %v", name, e.IDs)
		}
		if slices.Contains(tok.AppendPlain(nil, "a </s> <extra_id_0> [HELPFUL]"), 1) {
			t.Errorf("%s: user text became a control token", name)
		}
		if got := tok.Decode(tok.EncodeSingle("blood pressure", 0).IDs); got != "blood pressure" {
			t.Errorf("%s: decoded %q", name, got)
		}
	}
	tok := spmTokenizers(t)["unigram"]
	h, ok1 := tok.TokenID("[HELPFUL]")
	n, ok2 := tok.TokenID("[NOT_HELPFUL]")
	if x, ok := tok.TokenID("<extra_id_0>"); !ok || !ok1 || !ok2 || n != h+1 || x != h-1 || int(n) != tok.VocabSize()-1 {
		t.Errorf("added tokens %d %d %d of %d", x, h, n, tok.VocabSize())
	}
	sp, err := Load(data + "spiece.model")
	if err != nil {
		t.Fatal(err)
	}
	// The same ids for the extra tokens, which spiece.model does not hold.
	a, _ := sp.TokenID("<extra_id_7>")
	if b, _ := tok.TokenID("<extra_id_7>"); a != b || a == 0 {
		t.Errorf("extra_id_7 is %d and %d", a, b)
	}
}

func TestSentencePieceHostileTexts(t *testing.T) {
	for name, tok := range spmTokenizers(t) {
		for _, s := range []string{"", " ", "\xff\xfe", "a\xc3", strings.Repeat("x", 1<<20), strings.Repeat("é", 1<<17), strings.Repeat(" ", 1<<18),
			strings.Repeat("e\u0301", 1<<16), strings.Repeat("\u0301", 1<<16), strings.Repeat(metaspace, 1<<16), strings.Repeat("日", 1<<16)} {
			if e := tok.EncodeSingle(s, 64); len(e.IDs) > 64 {
				t.Errorf("%s: %d ids", name, len(e.IDs))
			}
			if e := tok.EncodePair(s, s, 33); len(e.IDs) > 33 || len(e.IDs) != len(e.TypeIDs) {
				t.Errorf("%s: pair of %d ids, %d types", name, len(e.IDs), len(e.TypeIDs))
			}
		}
	}
}

// Memory does not grow with the number of calls.
func TestFlatMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: 1e5 calls for each tokenizer")
	}
	toks := spmTokenizers(t)
	for _, k := range []string{"wordpiece", "smollm", "llama3"} {
		tok, err := Load(data + k + ".json")
		if err != nil {
			t.Fatal(err)
		}
		toks[k] = tok
	}
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("metformin lowers HbA1c in naïve β-cells 日本 \xff 12.5 mg/dL x\u0301")
	for name, tok := range toks {
		heap := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		var ids []int32
		for range 100_000 {
			s := words[r.IntN(len(words))] + " " + words[r.IntN(len(words))] + words[r.IntN(len(words))]
			ids = tok.AppendPlain(ids[:0], s)
		}
		if after := heap(); after > before+1<<20 {
			t.Errorf("%s: the heap grew from %d to %d bytes", name, before, after)
		}
	}
}

func TestTrie(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	keys := map[string]int32{"a": 0, "ab": 1, "\xff": 2, "abc\x00": 3}
	for len(keys) < 3000 {
		b := make([]byte, 1+r.IntN(6))
		for i := range b {
			b[i] = byte(r.IntN(256))
			if r.IntN(2) == 0 {
				b[i] = byte('a' + r.IntN(3))
			}
		}
		if _, ok := keys[string(b)]; !ok {
			keys[string(b)] = int32(len(keys))
		}
	}
	var ks []string
	var vs []int32
	for k, v := range keys {
		ks, vs = append(ks, k), append(vs, v)
	}
	tr := newTrie(ks, vs)
	find := func(s string) int32 {
		node := int32(0)
		for i := 0; i < len(s); i++ {
			next := tr.nodes[node].base + int32(s[i])
			if int(next) >= len(tr.nodes) || tr.nodes[next].check != node || next == 0 {
				return -1
			}
			node = next
		}
		return tr.nodes[node].value
	}
	for k, v := range keys {
		if find(k) != v {
			t.Fatalf("%q: %d, want %d", k, find(k), v)
		}
		if _, ok := keys[k+"z"]; !ok && find(k+"z") != -1 {
			t.Fatalf("%q is found", k+"z")
		}
	}
}

func FuzzSentencePieceModel(f *testing.F) {
	b, err := os.ReadFile(data + "spiece.model")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("\x0a\x05\x0a\x01a\x15"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, err := ParseSentencePiece("fuzz", b); err == nil {
			u.EncodeSingle("a é \u200b b", 8)
		}
	})
}

func FuzzUnigramEncode(f *testing.F) {
	f.Add("hello ½ e\u0301")
	f.Add("\xff\u0301 \r\n")
	toks := spmTokenizers(f)
	f.Fuzz(func(t *testing.T, s string) {
		for name, tok := range toks {
			for _, id := range tok.AppendPlain(nil, s) {
				if id < 0 || int(id) >= tok.VocabSize() {
					t.Fatalf("%s: id %d", name, id)
				}
			}
		}
	})
}

func BenchmarkUnigram(b *testing.B) {
	text := strings.Repeat("Metformin lowers hepatic glucose output and improves insulin sensitivity in type 2 diabetes. ", 10)
	for name, tok := range spmTokenizers(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var ids []int32
			for b.Loop() {
				ids = tok.AppendPlain(ids[:0], text)
			}
		})
	}
}

// The sums of a long text pass scoreReset several times and begin anew there, or they would be
// too coarse to tell cuts apart. Number and hash of the ids are those of SentencePiece 0.2.3 on the
// same text.
func TestLongTextsEqualSentencePiece(t *testing.T) {
	u, err := ParseSentencePiece("nmt_nfkc.model", nmtNFKC(t))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	readGoldens(t, data+"nmt_nfkc.golden.jsonl", func(g golden) { texts = append(texts, g.Text) })
	h := sha256.New()
	ids := u.AppendPlain(nil, strings.Repeat("\u65e5 ", 100000)+strings.Join(texts, " "))
	for _, id := range ids {
		binary.Write(h, binary.LittleEndian, id)
	}
	if got := hex.EncodeToString(h.Sum(nil)[:8]); len(ids) != 205019 || got != "f7d1fafaed7da2ee" {
		t.Errorf("%d ids, hash %s", len(ids), got)
	}
}
