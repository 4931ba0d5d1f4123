package reader

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rag2/corpusio"
)

// BenchmarkRead parses 1,000 records of each format.
func BenchmarkRead(b *testing.B) {
	var med, jats, rows strings.Builder
	body := strings.Repeat("Vitamin D<sub>3</sub> and <i>E. coli</i> growth in patients with sepsis. ", 15)
	med.WriteString("<PubmedArticleSet>")
	jats.WriteString("<pmc-articleset>")
	for i := range 1000 {
		fmt.Fprintf(&med, "<PubmedArticle><MedlineCitation><PMID>%d</PMID><Article><ArticleTitle>Title</ArticleTitle><Abstract><AbstractText Label=\"METHODS\">%s</AbstractText></Abstract></Article></MedlineCitation></PubmedArticle>", i+1, body)
		fmt.Fprintf(&jats, "<article><front><article-meta><article-id pub-id-type=\"pmc\">%d</article-id><title-group><article-title>Title</article-title></title-group></article-meta></front><body><sec><title>Methods</title><p>%s</p></sec></body></article>", i+1, body)
		fmt.Fprintf(&rows, "{\"id\":\"g%d\",\"source\":\"x\",\"title\":\"Title\",\"clean_text\":%q}\n", i, fmt.Sprint(i, ". ", body))
	}
	med.WriteString("</PubmedArticleSet>")
	jats.WriteString("</pmc-articleset>")
	for _, c := range []struct{ format, name, text string }{
		{"pubmed", "a.xml", med.String()}, {"jats", "a.nxml", jats.String()}, {"guideline", "a.jsonl", rows.String()},
	} {
		b.Run(c.format, func(b *testing.B) {
			p := filepath.Join(b.TempDir(), c.name)
			if err := os.WriteFile(p, []byte(c.text), 0o644); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				err := Read(b.Context(), c.format, p, corpusio.Handler{
					Record: func(*corpusio.Record) error { n++; return nil },
					Skip:   func(s corpusio.Skip) error { return fmt.Errorf("%+v", s) },
					Delete: func(string) error { return nil },
				})
				if err != nil || n != 1000 {
					b.Fatal(n, err)
				}
			}
		})
	}
}
