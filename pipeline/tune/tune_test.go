package tune

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rag2/corpusio"
	"rag2/models"
	"rag2/models/train"
	"rag2/pipeline"
	"rag2/pipeline/home"
	"rag2/pipeline/label"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

func TestRankingMeasures(t *testing.T) {
	r := []bool{false, true, false, true}
	near(t, "MRR", Reciprocal(r), 0.5)
	near(t, "MRR without a positive", Reciprocal([]bool{false}), 0)
	ideal := 1 + 1/math.Log2(3) + 1/math.Log2(4)
	near(t, "nDCG", NDCG(r, 3, 10), (1/math.Log2(3)+1/math.Log2(5))/ideal)
	near(t, "nDCG at 2", NDCG(r, 3, 2), (1/math.Log2(3))/(1+1/math.Log2(3)))
	near(t, "perfect nDCG", NDCG([]bool{true, true, false}, 2, 10), 1)
	near(t, "nDCG without positives", NDCG(r, 0, 10), 0)
}

func TestFilterMeasures(t *testing.T) {
	js := []Judged{{"a", true, 0.9}, {"a", false, 0.6}, {"b", true, 0.6}, {"b", false, 0.2}, {"c", false, 0.4}}
	// Of 6 pairs of a helpful and another one, five are in order and one is tied.
	near(t, "AUROC", auroc(js), 5.5/6)
	if !math.IsNaN(auroc(js[:1])) {
		t.Error("AUROC of one class")
	}
	c := count(js, 0.5)
	near(t, "accuracy", c.accuracy(), 0.8)
	near(t, "majority", c.majority(), 0.6)
	near(t, "F1 of helpful", c.f1(true), 0.8)
	near(t, "F1 of not helpful", c.f1(false), 0.8)
	// Bins 0.9: |0.9-1|; 0.6: |0.6-0.5|·2; 0.2: 0.2; 0.4: 0.4
	near(t, "ECE", ece(binned(js)), (0.1+0.2+0.2+0.4)/5)
	if th := BestThreshold(js); th <= 0.4 || th > 0.9 || count(js, th).accuracy() != 0.8 {
		t.Errorf("threshold %g", th)
	}
	all := []Judged{{"a", true, 0.2}, {"a", true, 0.3}}
	if th := BestThreshold(all); count(all, th).accuracy() != 1 {
		t.Errorf("threshold %g of one class", th)
	}
	none := []Judged{{"a", false, 0.7}, {"a", false, 1}}
	if th := BestThreshold(none); count(none, th).accuracy() != 1 {
		t.Errorf("threshold %g of the other class", th)
	}
	s := Scores(js, 0.5)
	if s.Questions != 3 || s.Pairs != 5 || s.Helpful != 2 || s.Accuracy.Low > 0.8 || s.Accuracy.High < 0.8 || s.Accuracy.Low == s.Accuracy.High {
		t.Errorf("%+v", s)
	}
	if again := Scores(js, 0.5); again.Accuracy != s.Accuracy {
		t.Error("the bootstrap is not repeated")
	}
	page, err := Report("x <b>", []JudgeScores{{"j", s}})
	if err != nil || strings.Contains(string(page), "x <b>") || !strings.Contains(string(page), "<svg") {
		t.Errorf("report: %v", err)
	}
}

// The interval of a mean of 0s and 1s is about ±1.96 standard errors.
func TestBootstrapCovers(t *testing.T) {
	n := 400
	iv := Bootstrap(n, func(units []int) []float64 {
		m := 0.0
		for _, u := range units {
			m += float64(u%2) / float64(len(units))
		}
		return []float64{m}
	})[0]
	se := 0.5 / math.Sqrt(float64(n))
	if math.Abs(iv.Value-0.5) > 1e-9 || math.Abs(iv.Low-(0.5-1.96*se)) > 0.3*se || math.Abs(iv.High-(0.5+1.96*se)) > 0.3*se {
		t.Errorf("%+v, standard error %g", iv, se)
	}
}

func TestReadBioASQ(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	a := file("a.json", `{"questions":[
		{"id":"1","body":"Which  gene?","snippets":[{"text":"It is\n BRCA1.","document":"http://x/pubmed/77"},{"text":"It is BRCA1.","document":"http://x/pubmed/77"},{"text":"Or BRCA2.","document":"http://x/pubmed/77"}]},
		{"id":"2","body":"Why?","snippets":[]},{"id":"3","body":"Who?","snippets":[{"text":"Or BRCA2.","document":"http://x/pubmed/88"}]}]}`)
	b, err := ReadBioASQ([]string{a, a})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Chunks) != 2 || len(b.Pairs) != 2 || b.Pairs[0].Query != "Which gene?" || len(b.Pairs[0].Positives) != 2 || b.Pairs[0].Positives[1].Doc != "77.2" || b.Pairs[1].Positives[0].Doc != "77.2" {
		t.Errorf("%+v", b)
	}
	for name, text := range map[string]string{"no json": "{", "no questions": `{"questions":[]}`} {
		if _, err := ReadBioASQ([]string{file("bad.json", text)}); err == nil || !strings.Contains(err.Error(), "bad.json") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var many []Pair
	for i := range 2000 {
		many = append(many, Pair{ID: fmt.Sprint(i)})
	}
	tr, de, te := Split(many, 0.1, 0.2)
	if len(tr)+len(de)+len(te) != 2000 || math.Abs(float64(len(de))-200) > 50 || math.Abs(float64(len(te))-400) > 70 {
		t.Errorf("%d, %d, %d", len(tr), len(de), len(te))
	}
}

// letters is an encoder whose vectors count letters, and a corpus searched by them.
type letters struct{}

func (letters) Dim() int { return 26 }
func (letters) EncodeQueries(_ context.Context, qs []string) ([][]float32, models.Report, error) {
	var out [][]float32
	for _, q := range qs {
		v := make([]float32, 26)
		for _, r := range strings.ToLower(q) {
			if r >= 'a' && r <= 'z' {
				v[r-'a']++
			}
		}
		out = append(out, v)
	}
	return out, models.Report{}, nil
}
func (l letters) EncodeArticles(ctx context.Context, as []models.Article) ([][]float32, models.Report, error) {
	var texts []string
	for _, a := range as {
		texts = append(texts, a.Body)
	}
	return l.EncodeQueries(ctx, texts)
}
func (letters) Fingerprint() string { return "letters" }
func (letters) Close() error        { return nil }

type shelf []corpusio.Passage

func (shelf) Name() string { return "shelf" }
func (s shelf) Len() int   { return len(s) }
func (s shelf) Search(ctx context.Context, v []float32, k int, _ pipeline.SearchOptions) ([]home.Hit, error) {
	var hits []home.Hit
	for _, p := range s {
		w, _, _ := letters{}.EncodeQueries(ctx, []string{p.Text})
		h := home.Hit{Passage: p}
		for i := range v {
			h.Score += v[i] * w[0][i]
		}
		hits = append(hits, h)
	}
	return pipeline.Best(hits, k), nil
}
func (shelf) Close() error { return nil }

func TestMine(t *testing.T) {
	corpora := []pipeline.Retriever{shelf{{ID: "1", Doc: "7.1", Text: "aaaa"}, {ID: "2", Doc: "7.2", Text: "aaa b"}, {ID: "3", Doc: "8.1", Text: "aa"}, {ID: "4", Doc: "9.1", Text: "a"}, {ID: "5", Doc: "9.2", Text: "zz"}}}
	pairs := []Pair{{ID: "q", Query: "a", Positives: []Positive{{"7.1", "aaaa"}, {"", "elsewhere"}}}}
	gs, err := Mine(context.Background(), letters{}, corpora, pairs, MineOptions{Depth: 4, Negatives: 5}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(gs) != 2 || gs[1].Positive != "elsewhere" || fmt.Sprint(gs[0].Negatives) != "[aa a]" {
		t.Errorf("%+v", gs)
	}
	if gs, err = Mine(context.Background(), letters{}, corpora, pairs, MineOptions{Depth: 4, Skip: 3, Negatives: 5, Positives: 1}, nil); err != nil || len(gs) != 1 || fmt.Sprint(gs[0].Negatives) != "[a]" {
		t.Errorf("%+v, %v", gs, err)
	}
	if _, err := Mine(context.Background(), letters{}, corpora, pairs, MineOptions{Depth: 2, Skip: 2, Negatives: 1}, nil); err == nil {
		t.Error("nothing to look at passes")
	}
	rs, err := Rerank(context.Background(), letters{}, backwards{}, corpora, pairs, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := Rank(rs, 4, 0)
	near(t, "MRR of the retrieval", r.Retrieval.MRR.Value, 1)
	near(t, "MRR backwards", r.Reranked.MRR.Value, 1.0/3)
	near(t, "gain", r.Gain.MRR.Value, -2.0/3)
	near(t, "MRR with much of the retrieval", Rank(rs, 4, 1e6).Reranked.MRR.Value, 1)
	w := BestWeight(rs)
	if got := Rank(rs, 4, w); got.Reranked.NDCG10.Value < max(r.Reranked.NDCG10.Value, Rank(rs, 4, 100).Reranked.NDCG10.Value) || got.Weight != w {
		t.Errorf("weight %g: %+v", w, got)
	}
}

// backwards prefers short texts.
type backwards struct{}

func (backwards) Score(_ context.Context, _ string, texts []string) ([]float32, models.Report, error) {
	var out []float32
	for _, s := range texts {
		out = append(out, -float32(len(s)))
	}
	return out, models.Report{}, nil
}
func (backwards) Fingerprint() string { return "backwards" }
func (backwards) Close() error        { return nil }

func TestGoldAndSets(t *testing.T) {
	groups := []train.Group{{ID: "a", Query: "q1", Positive: "p1", Negatives: []string{"n1", "n2"}}, {ID: "a", Query: "q1", Positive: "p2", Negatives: []string{"n1"}}, {ID: "b", Query: "q2", Positive: "p3", Negatives: []string{"n3"}}}
	for _, random := range []float64{0, 1} {
		rs, err := Gold(groups, random, "d", 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(rs) != 6 || rs[3].ID != "a/3" || rs[0].Answer != label.TokenHelpful || rs[1].Answer != label.TokenNotHelpful {
			t.Fatalf("%+v", rs)
		}
		if foreign := strings.Contains(rs[1].Question, "Evidence: p3"); foreign != (random == 1) {
			t.Errorf("random %g: %q", random, rs[1].Question)
		}
		sets, err := Sets(rs)
		if err != nil || len(sets) != 2 || len(sets[0].Snippets) != 4 || sets[0].Question != "q1" || sets[1].Helpful[0] != true || sets[1].Helpful[1] {
			t.Errorf("%+v, %v", sets, err)
		}
	}
	if _, err := Gold(groups, 2, "d", 1); err == nil {
		t.Error("a share of 2 passes")
	}
	if _, err := Sets([]label.Record{{ID: "x/0", Question: "no template"}}); err == nil {
		t.Error("a text without the template passes")
	}
}

// By hand: of three passages the reference orders 0, 1, 2 and the other engine 0, 2, 1.
func TestQualityMeasures(t *testing.T) {
	q, p := [][]float32{{1, 0}}, [][]float32{{3, 0}, {2, 0}, {1, 0}}
	moved := [][]float32{{3, 0}, {0.5, 0.5}, {1, 0}}
	v := CompareVectors(q, p, q, moved, 2)
	near(t, "recall", v.Recall, 0.5)
	near(t, "least cosine", v.MinCosine, math.Sqrt(0.5))
	near(t, "mean cosine", v.MeanCosine, (3+math.Sqrt(0.5))/4)
	if v.Depth != 3 {
		t.Errorf("depth %d", v.Depth)
	}
	if v := CompareVectors(q, p, q, p, 10); v.Recall != 1 || v.MinCosine != 1 || v.Depth != 3 {
		t.Errorf("with itself: %+v", v)
	}
	s, err := CompareScores([][]float64{{-1, -2}, {-3}}, [][]float64{{-1, -2.5}, {-2.5}})
	if err != nil || s.Tokens != 3 {
		t.Fatal(s, err)
	}
	near(t, "perplexity", s.Perplexity, math.Exp(2))
	near(t, "mean difference", s.MeanDiff, 1.0/3)
	near(t, "largest difference", s.MaxDiff, 0.5)
	if _, err := CompareScores([][]float64{{-1, -2}}, [][]float64{{-1}}); err == nil {
		t.Error("texts of other lengths compared")
	}
}

func TestReadTexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "texts.jsonl")
	if err := os.WriteFile(path, []byte("{\"title\":\"A\",\"content\":\"b\"}\n{\"question\":\"c\"}\n{\"text\":\" \"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTexts(path, 0); err == nil || !strings.Contains(err.Error(), "texts.jsonl:3") {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("{\"title\":\"A\",\"content\":\"b\"}\n{\"question\":\"c\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if a, err := ReadTexts(path, 1); err != nil || len(a) != 1 || a[0] != (models.Article{Title: "A", Body: "b"}) {
		t.Error(a, err)
	}
}
