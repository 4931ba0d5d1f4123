package reader

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rag2/corpusio"
	"rag2/corpusio/input"
	"rag2/internal/shared"
)

// got is all that a reader reports.
type got struct {
	recs    []*corpusio.Record
	skips   []corpusio.Skip
	deleted []string
}

func (g *got) handler() corpusio.Handler {
	return corpusio.Handler{
		Record: func(r *corpusio.Record) error { g.recs = append(g.recs, r); return nil },
		Skip:   func(s corpusio.Skip) error { g.skips = append(g.skips, s); return nil },
		Delete: func(id string) error { g.deleted = append(g.deleted, id); return nil },
	}
}

func read(t *testing.T, name, content string) (*got, error) {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	g := &got{}
	return g, Read(context.Background(), "auto", p, g.handler())
}

func text(r *corpusio.Record) string {
	var parts []string
	for _, s := range r.Sections {
		parts = append(parts, s.Text)
	}
	return strings.Join(parts, "\n")
}

func article(pmid, inner string) string {
	return `<PubmedArticle><MedlineCitation><PMID>` + pmid + `</PMID>` + inner + `</MedlineCitation></PubmedArticle>`
}

func TestPubMedCases(t *testing.T) {
	refs := strings.Repeat(`<Reference><ArticleIdList><ArticleId IdType="pubmed">999</ArticleId></ArticleIdList></Reference>`, 40)
	cases := []struct {
		name, xml, title, text string
		year                   int
	}{
		{"inline tags", article("1", `<Article><ArticleTitle>Vitamin D<sub>3</sub> and <i>E. coli</i> growth</ArticleTitle></Article>`), "Vitamin D3 and E. coli growth", "", 0},
		{"labels", article("2", `<Article><ArticleTitle>T</ArticleTitle><Abstract><AbstractText Label="METHODS">A.</AbstractText><AbstractText Label="">B.</AbstractText></Abstract></Article>`), "T", "METHODS: A.\nB.", 0},
		{"foreign PMIDs", `<PubmedArticle><MedlineCitation><PMID>3</PMID><Article><ArticleTitle>T</ArticleTitle></Article><CommentsCorrectionsList><CommentsCorrections><PMID>77</PMID></CommentsCorrections></CommentsCorrectionsList></MedlineCitation><PubmedData><ReferenceList>` + refs + `</ReferenceList></PubmedData></PubmedArticle>`, "T", "", 0},
		{"MedlineDate", article("4", `<Article><ArticleTitle>T</ArticleTitle><Journal><JournalIssue><PubDate><MedlineDate>1998 Dec-1999 Jan</MedlineDate></PubDate></JournalIssue></Journal></Article>`), "T", "", 1998},
		{"season", article("5", `<Article><ArticleTitle>T</ArticleTitle><Journal><JournalIssue><PubDate><MedlineDate>Winter 2003</MedlineDate></PubDate></JournalIssue></Journal></Article>`), "T", "", 2003},
		{"ArticleDate", article("6", `<Article><ArticleTitle>T</ArticleTitle><ArticleDate><Year>2011</Year></ArticleDate></Article>`), "T", "", 2011},
		{"vernacular", article("7", `<Article><ArticleTitle>[Not Available].</ArticleTitle><VernacularTitle>Über das Herz.</VernacularTitle></Article>`), "Über das Herz.", "", 0},
		{"translated", article("8", `<Article><ArticleTitle>[On the heart].</ArticleTitle></Article>`), "On the heart.", "", 0},
		{"book", `<PubmedBookArticle><BookDocument><PMID>9</PMID><ArticleTitle>LSD</ArticleTitle><Book><PubDate><Year>2012</Year></PubDate><BookTitle>Reviews</BookTitle></Book><Abstract><AbstractText>Text.</AbstractText></Abstract></BookDocument></PubmedBookArticle>`, "LSD", "Text.", 2012},
		{"comment and entity", article("10", `<Article><ArticleTitle>A<!-- <PubmedArticle> no --> &amp; B</ArticleTitle></Article>`), "A & B", "", 0},
		{"cdata", article("11", `<Article><ArticleTitle><![CDATA[p < 0.05]]></ArticleTitle></Article>`), "p < 0.05", "", 0},
	}
	var all strings.Builder
	for _, c := range cases {
		all.WriteString(c.xml + "\n")
		g, err := read(t, "a.xml", c.xml) // each alone: no set, no declaration
		if err != nil || len(g.recs) != 1 {
			t.Fatalf("%s: %v, %d records, skips %v", c.name, err, len(g.recs), g.skips)
		}
		r := g.recs[0]
		if r.Title != c.title || text(r) != c.text || r.Year != c.year {
			t.Errorf("%s: %q %q %d, want %q %q %d", c.name, r.Title, text(r), r.Year, c.title, c.text, c.year)
		}
	}
	// All together, with one broken record and one without text in their midst.
	g, err := read(t, "b.xml", "<?xml version='1.0'?><!DOCTYPE PubmedArticleSet [<!ENTITY x 'y'>]><PubmedArticleSet>"+all.String()+
		`<PubmedArticle><MedlineCitation><PMID>50</PMID><Article><ArticleTitle>broken</Article></MedlineCitation></PubmedArticle>`+
		`<PubmedArticle><MedlineCitation><PMID>51</PMID><Article><ArticleTitle>never closed`+
		article("52", `<Article></Article>`)+`<DeleteCitation><PMID>60</PMID><PMID>61</PMID></DeleteCitation></PubmedArticleSet>`)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.recs) != len(cases) || len(g.skips) != 3 || len(g.deleted) != 2 {
		t.Errorf("%d records, skips %+v, deleted %v", len(g.recs), g.skips, g.deleted)
	}
	if g, err = read(t, "empty.xml", "<PubmedArticleSet></PubmedArticleSet>"); err != nil || len(g.recs) != 0 {
		t.Errorf("empty set: %v", err)
	}
}

func jatsArticle(id, body string) string {
	return `<article><front><article-meta><article-id pub-id-type="pmc">` + id + `</article-id><title-group><article-title>T` + id + `</article-title></title-group></article-meta></front><body>` + body + `</body></article>`
}

func TestJATSCases(t *testing.T) {
	body := `<sec><title>One</title><p>first<!-- hidden --></p><sec><title>Two</title><p>second <?pi hidden?></p><sec><title>Three</title><sec><title>Four</title><p>deep</p></sec></sec></sec>
	<table-wrap><label>Table 1</label><caption><p>Cap</p></caption><table><tr><td>12.3</td><td>45</td></tr><tr><td>a</td><td>b</td></tr></table></table-wrap>
	<p>E: <inline-formula><alternatives><tex-math>\documentclass[12pt]{minimal} \usepackage{amsmath} \begin{document}$$x^2$$\end{document}</tex-math><mml:math xmlns:mml="m"><mml:mi>x</mml:mi><mml:mn>2</mml:mn></mml:math></alternatives></inline-formula> end</p>
	<p>F: <inline-formula><tex-math>\documentclass[12pt]{minimal} \usepackage{amsmath} \setlength{\oddsidemargin}{-69pt} \begin{document}$$y^3$$\end{document}</tex-math></inline-formula></p></sec>`
	g, err := read(t, "a.nxml", strings.Replace(jatsArticle("1", body), "</article>", `<sub-article><body><p>reviewer</p></body></sub-article><response><body><p>reply</p></body></response></article>`, 1))
	if err != nil || len(g.recs) != 1 {
		t.Fatalf("%v %d %v", err, len(g.recs), g.skips)
	}
	r := g.recs[0]
	all := text(r)
	for _, s := range []string{"first", "second", "deep", "12.3 | 45\na | b", "Cap", "E: x2 end", "F: y^3"} {
		if strings.Count(all, s) != 1 {
			t.Errorf("%q occurs %d times in:\n%s", s, strings.Count(all, s), all)
		}
	}
	for _, s := range []string{"hidden", "reviewer", "reply", "documentclass", "69pt"} {
		if strings.Contains(all, s) {
			t.Errorf("%q is in the text:\n%s", s, all)
		}
	}
	found := false
	for _, s := range r.Sections {
		found = found || s.Text == "deep" && strings.Join(s.Path, "/") == "One/Two/Three/Four"
	}
	if !found || r.ID != "PMC1" || r.Title != "T1" {
		t.Errorf("%+v", r)
	}
	// The 2nd of 3 articles has a mismatched tag.
	g, err = read(t, "set.xml", "<pmc-articleset>"+jatsArticle("1", "<p>a</p>")+jatsArticle("2", "<sec><p>b</sec></p>")+jatsArticle("3", "<p>c</p>")+"</pmc-articleset>")
	if err != nil || len(g.recs) != 2 || len(g.skips) != 1 || g.skips[0].Source.Offset == 0 {
		t.Errorf("%v, %d records, skips %+v", err, len(g.recs), g.skips)
	}
}

func TestWrongFormats(t *testing.T) {
	p := filepath.Join(t.TempDir(), "x.xml")
	if err := os.WriteFile(p, []byte("<PubmedArticleSet></PubmedArticleSet>"), 0o644); err != nil {
		t.Fatal(err)
	}
	g := &got{}
	err := Read(context.Background(), "jats", p, g.handler())
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "pubmed") || !strings.Contains(err.Error(), "jats") {
		t.Error(err)
	}
	for name, content := range map[string]string{"a.xml": "<html></html>", "b.bin": "\x00\x01", "c.jsonl": `{"foo":1}`, "d.xml": ""} {
		if _, err := read(t, name, content); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := read(t, "latin.xml", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>"+article("1", "<Article><ArticleTitle>Caf\xe9</ArticleTitle></Article>")); err != nil {
		t.Error(err)
	}
	if err := Read(context.Background(), "", filepath.Join(t.TempDir(), "none"), g.handler()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestTruncatedGzip(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range 2000 {
		_, _ = z.Write([]byte(article("1", "<Article><ArticleTitle>T "+strings.Repeat("x", i%97)+"</ArticleTitle></Article>")))
	}
	z.Close()
	_, err := read(t, "a.xml.gz", b.String()[:b.Len()*2/3])
	if err == nil || !strings.Contains(err.Error(), "a.xml.gz") || !strings.Contains(err.Error(), "compressed bytes") {
		t.Error(err)
	}
}

func TestGuidelineAndMedRAG(t *testing.T) {
	big := strings.Repeat("word ", 4<<20)
	g, err := read(t, "g.jsonl", "\ufeff"+`{"id":"a","title":"A","clean_text":"# H\nx"}`+"\r\n\n"+`{"id":"b","title":"B","clean_text":"y"}`+"\n"+`{"id":"c","title":"C","clean_text":"y"}`+"\n"+`{bad`+"\n"+`{"id":"d","clean_text":"`+big+`"}`)
	if err != nil || len(g.recs) != 3 || len(g.skips) != 2 {
		t.Fatalf("%v %d records %+v", err, len(g.recs), g.skips)
	}
	if s := g.recs[0].Sections[0]; s.Text != "x" || s.Path[0] != "H" {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(g.skips[1].Detail, "g.jsonl:5") {
		t.Errorf("%+v", g.skips[1])
	}
	g, err = read(t, "m.jsonl", `{"id":"x_1","title":"T","content":"c","contents":"T. c"}`)
	if err != nil || len(g.recs) != 1 || text(g.recs[0]) != "c" {
		t.Errorf("%v %+v", err, g)
	}
}

// The accounts close on real files: element starts counted by a plain scan of the
// bytes = records + skips.
func TestRealFilesAccount(t *testing.T) {
	for _, c := range []struct {
		path, format string
		elements     string
	}{
		{"pubmed/pubmed21n0001.xml.gz", "pubmed", `<PubmedArticle>`}, {"pubmed/pubmed21n1000.xml.gz", "pubmed", `<PubmedArticle>`},
		{"pubmed/pubmed21n1001.xml.gz", "pubmed", `<PubmedArticle>`}, {"pubmed/medsamp2014.xml.gz", "pubmed", `<MedlineCitation[ >]`},
		{"pubmed/efetch_single_records.tar.gz", "pubmed", `<(PubmedArticle|PubmedBookArticle)[ >]`}, {"pubmed/book.xml", "pubmed", `<PubmedBookArticle[ >]`},
		{"pubmed/mathml_abstract.xml", "pubmed", `<PubmedArticle[ >]`}, {"pmc/oa_articles.tar.gz", "jats", `<article[ >]`},
		{"cpg/guidelines.jsonl.gz", "guideline", `(?m)^\{`}, {"cpg/ngc", "guideline", `<Version[ >]`},
		{"textbooks/anatomy_physiology_2e.cnxml.tar.gz", "textbook", `<document[ >]`}, {"textbooks/microbiology.cnxml.tar.gz", "textbook", `<document[ >]`},
	} {
		t.Run(c.path, func(t *testing.T) {
			p := shared.Data(t, c.path)
			want := 0
			re := regexp.MustCompile(c.elements)
			err := input.Walk(context.Background(), p, nil, func(m input.Member) error {
				var b bytes.Buffer
				_, err := b.ReadFrom(m.R)
				want += len(re.FindAll(b.Bytes(), -1))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			g := &got{}
			if err := Read(context.Background(), "auto", p, g.handler()); err != nil {
				t.Fatal(err)
			}
			if want == 0 || len(g.recs)+len(g.skips) != want {
				t.Errorf("%d elements, %d records + %d skips", want, len(g.recs), len(g.skips))
			}
			reasons := map[string]int{}
			for _, s := range g.skips {
				reasons[s.Reason]++
			}
			passages := 0
			for _, r := range g.recs {
				r.Corpus = "x"
				ps, err := corpusio.Chunk(r, corpusio.ChunkOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if len(ps) == 0 {
					t.Errorf("%s: no passage", r.ID)
				}
				passages += len(ps)
			}
			t.Logf("%s: %d elements = %d records + %d skips %v; %d deletions; %d passages", c.path, want, len(g.recs), len(g.skips), reasons, len(g.deleted), passages)
			if strings.Contains(c.path, "medsamp") && (want != 161 || len(g.deleted) != 7) {
				t.Errorf("medsamp2014: %d records, %d deletions", want, len(g.deleted))
			}
		})
	}
}

func FuzzReaders(f *testing.F) {
	f.Add([]byte(article("1", "<Article><ArticleTitle>T</ArticleTitle></Article>")))
	f.Add([]byte(jatsArticle("1", "<sec><p>a</p></sec>")))
	f.Add([]byte(`{"id":"x","clean_text":"c"}`))
	f.Add([]byte(`<document><title>a</title><content><para>x</para></content></document>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := filepath.Join(t.TempDir(), "x.xml")
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		g := &got{}
		_ = Read(context.Background(), "auto", p, g.handler())
	})
}
