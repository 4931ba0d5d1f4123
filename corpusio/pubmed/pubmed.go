// Package pubmed reads PubMed citations: PubmedArticleSet (baseline, updates,
// efetch), the older MedlineCitationSet, book records, and single records without
// a set. One record that does not parse is skipped with its position; the rest of
// the file is kept.
//
// A citation becomes a Record whose sections are the labelled parts of its
// abstract ("LABEL: text"). Without an Abstract the first OtherAbstract is used.
// A citation with a title alone is a Record without sections, whose
// title is its text.
package pubmed

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"rag2/corpusio"
	"rag2/corpusio/input"
	"rag2/corpusio/xmldoc"
)

var roots = []string{"PubmedArticleSet", "MedlineCitationSet", "PubmedBookArticleSet", "PubmedArticle", "MedlineCitation", "PubmedBookArticle", "DeleteCitation"}
var records = []string{"PubmedArticle", "MedlineCitation", "PubmedBookArticle", "DeleteCitation"}

// Roots are the root elements this package reads.
func Roots() []string { return roots }

// Read reads path (file, .gz, .tar.gz or directory) and hands its citations to h.
func Read(ctx context.Context, path string, h corpusio.Handler) error {
	return input.Walk(ctx, path, h.Progress, func(m input.Member) error {
		r, err := xmldoc.UTF8(m.R)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Label(), err)
		}
		n := 0
		err = xmldoc.Split(r, roots, records, func(el xmldoc.Element) error {
			n++
			if n%256 == 0 {
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			return one(el, corpusio.Source{File: m.File, Member: m.Name, Offset: el.Offset}, h)
		})
		if err != nil {
			return fmt.Errorf("pubmed: %s: %w", m.Label(), err)
		}
		return nil
	})
}

func one(el xmldoc.Element, src corpusio.Source, h corpusio.Handler) error {
	skip := func(id, reason, detail string) error {
		if h.Skip == nil {
			return nil
		}
		return h.Skip(corpusio.Skip{Source: src, ID: id, Reason: reason, Detail: detail})
	}
	if el.Err != nil {
		return skip("", "malformed", el.Err.Error())
	}
	n, err := xmldoc.Parse(el.Bytes)
	if err != nil {
		return skip("", "malformed", err.Error())
	}
	if n.Name == "DeleteCitation" {
		if h.Delete == nil {
			return nil
		}
		for _, p := range n.All("PMID") {
			if id := p.String(); id != "" {
				if err := h.Delete(id); err != nil {
					return err
				}
			}
		}
		return nil
	}
	r := &corpusio.Record{Source: src}
	if n.Name == "PubmedBookArticle" {
		book(n.Kid("BookDocument"), r)
	} else {
		if n.Name == "PubmedArticle" {
			n = n.Kid("MedlineCitation")
		}
		citation(n, r)
	}
	switch {
	case r.ID == "":
		return skip("", "no PMID", "")
	case !digits(r.ID):
		return skip(r.ID, "bad PMID", r.ID)
	case r.Title == "" && len(r.Sections) == 0:
		return skip(r.ID, "no text", "neither title nor abstract")
	}
	r.URL = "https://pubmed.ncbi.nlm.nih.gov/" + r.ID + "/"
	return h.Record(r)
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// text is descendant text with MathML reduced to its symbols and sub- and
// superscripts in place.
func text(n *xmldoc.Node) string { return n.String("annotation", "annotation-xml") }

func citation(n *xmldoc.Node, r *corpusio.Record) {
	if n == nil {
		return
	}
	r.ID = n.Kid("PMID").String()
	a := n.Kid("Article")
	r.Title = text(a.Kid("ArticleTitle"))
	if v := text(a.Kid("VernacularTitle")); v != "" && (r.Title == "" || strings.EqualFold(strings.Trim(r.Title, "[]. "), "Not Available")) {
		r.Title = v
	}
	// NLM puts translated titles in brackets.
	if strings.HasPrefix(r.Title, "[") && strings.HasSuffix(r.Title, "].") {
		r.Title = r.Title[1:len(r.Title)-2] + "."
	}
	r.Sections = abstract(a.Kid("Abstract"))
	if len(r.Sections) == 0 {
		for _, o := range n.All("OtherAbstract") {
			if r.Sections = abstract(o); len(r.Sections) > 0 {
				break
			}
		}
	}
	r.Journal = a.Kid("Journal/Title").String()
	if r.Journal == "" {
		r.Journal = n.Kid("MedlineJournalInfo/MedlineTA").String()
	}
	r.Year = year(a.Kid("Journal/JournalIssue/PubDate"))
	if r.Year == 0 {
		r.Year = year(a.Kid("ArticleDate"))
	}
	for _, m := range n.Kid("MeshHeadingList").All("MeshHeading") {
		if d := m.Kid("DescriptorName").String(); d != "" {
			r.MeSH = append(r.MeSH, d)
		}
	}
}

func abstract(a *xmldoc.Node) (out []corpusio.Section) {
	for _, t := range a.All("AbstractText") {
		s := text(t)
		if s == "" {
			continue
		}
		if label := xmldoc.Fold(t.At("Label")); label != "" && !strings.EqualFold(label, "UNLABELLED") {
			s = label + ": " + s
		}
		out = append(out, corpusio.Section{Text: s})
	}
	return out
}

func book(n *xmldoc.Node, r *corpusio.Record) {
	if n == nil {
		return
	}
	r.ID = n.Kid("PMID").String()
	r.Title = text(n.Kid("ArticleTitle"))
	r.Journal = text(n.Kid("Book/BookTitle"))
	if r.Title == "" {
		r.Title = r.Journal
	}
	r.Sections = abstract(n.Kid("Abstract"))
	if r.Year = year(n.Kid("ContributionDate")); r.Year == 0 {
		r.Year = year(n.Kid("Book/PubDate"))
	}
}

var reYear = regexp.MustCompile(`(?:1[5-9]|20)\d\d`)

// year is Year, or the first four digits that look like one of MedlineDate or
// whatever else the date holds.
func year(d *xmldoc.Node) int {
	if d == nil {
		return 0
	}
	s := d.Kid("Year").String()
	if s == "" {
		s = d.String()
	}
	y, _ := strconv.Atoi(reYear.FindString(s))
	return y
}
