// Package jats reads full-text articles in JATS (PMC's .nxml and .xml, alone or in
// a pmc-articleset or an OAI-PMH answer). One article that does not parse is
// skipped with its position; the rest of the file is kept.
//
// Sections carry their heading path, and every paragraph appears once. Tables keep
// caption and cells, cells separated by " | ", rows by line breaks. Of a formula's
// alternatives one is kept, LaTeX without its preamble. Reviewers' letters and
// replies (sub-article, response), references, acknowledgements, comments and
// processing instructions are left out.
package jats

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"rag2/corpusio"
	"rag2/corpusio/input"
	"rag2/corpusio/xmldoc"
)

var roots = []string{"article", "pmc-articleset", "OAI-PMH", "collection"}

// Roots are the root elements this package reads.
func Roots() []string { return roots }

// Read reads path (file, .gz, .tar.gz or directory; members that are not .xml or
// .nxml are passed over) and hands its articles to h.
func Read(ctx context.Context, path string, h corpusio.Handler) error {
	return input.Walk(ctx, path, h.Progress, func(m input.Member) error {
		if m.Name != "" {
			if ext := filepath.Ext(m.Base()); ext != ".xml" && ext != ".nxml" {
				return nil
			}
		}
		r, err := xmldoc.UTF8(m.R)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Label(), err)
		}
		err = xmldoc.Split(r, roots, []string{"article"}, func(el xmldoc.Element) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return one(el, corpusio.Source{File: m.File, Member: m.Name, Offset: el.Offset}, h)
		})
		if err != nil {
			return fmt.Errorf("jats: %s: %w", m.Label(), err)
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
	r := &corpusio.Record{Source: src}
	meta := n.Kid("front/article-meta")
	front(n.Kid("front"), meta, r)
	for _, a := range meta.All("abstract") {
		if t := a.At("abstract-type"); t == "" || t == "executive-summary" || t == "summary" || t == "plain-language-summary" {
			head := []string{"Abstract"}
			if h := a.Kid("title").String(); h != "" {
				head = []string{h}
			}
			section(a, head, r)
		}
	}
	if b := n.Kid("body"); b != nil {
		section(b, nil, r)
	}
	switch {
	case r.ID == "":
		return skip("", "no article id", "")
	case r.Title == "" && len(r.Sections) == 0:
		return skip(r.ID, "no text", "neither title, abstract nor body")
	}
	return h.Record(r)
}

func front(f, meta *xmldoc.Node, r *corpusio.Record) {
	ids := map[string]string{}
	for _, id := range meta.All("article-id") {
		ids[id.At("pub-id-type")] = id.String()
	}
	pmc := ids["pmcid"]
	if pmc == "" {
		pmc = ids["pmc"]
	}
	if pmc != "" && !strings.HasPrefix(pmc, "PMC") {
		pmc = "PMC" + pmc
	}
	switch {
	case pmc != "":
		r.ID, r.URL = pmc, "https://pmc.ncbi.nlm.nih.gov/articles/"+pmc+"/"
	case ids["pmid"] != "":
		r.ID, r.URL = "pmid"+ids["pmid"], "https://pubmed.ncbi.nlm.nih.gov/"+ids["pmid"]+"/"
	case ids["doi"] != "":
		r.ID, r.URL = ids["doi"], "https://doi.org/"+ids["doi"]
	case ids["publisher-id"] != "":
		r.ID = ids["publisher-id"]
	}
	r.Title = inline(meta.Kid("title-group/article-title"))
	r.Journal = f.Kid("journal-meta/journal-title-group/journal-title").String()
	if r.Journal == "" {
		r.Journal = f.Kid("journal-meta/journal-title").String()
	}
	for _, d := range meta.All("pub-date") {
		if y, err := strconv.Atoi(d.Kid("year").String()); err == nil && (r.Year == 0 || y < r.Year) {
			r.Year = y
		}
	}
}

// left out of running text wherever they stand.
var dropped = map[string]bool{"sub-article": true, "response": true, "ref-list": true, "ack": true, "fn-group": true, "back": true,
	"object-id": true, "label": true, "supplementary-material": true, "media": true, "graphic": true, "inline-graphic": true,
	"permissions": true, "attrib": true, "alt-text": true, "long-desc": true, "fn": true, "annotation": true}

// section appends the text under n: its own paragraphs as one Section, then its
// subsections with longer paths.
func section(n *xmldoc.Node, path []string, r *corpusio.Record) {
	var paras []string
	flush := func() {
		if len(paras) > 0 {
			r.Sections = append(r.Sections, corpusio.Section{Path: path, Text: strings.Join(paras, "\n")})
			paras = nil
		}
	}
	var walk func(n *xmldoc.Node)
	walk = func(n *xmldoc.Node) {
		for _, k := range n.Kids {
			switch {
			case k.Name == "sec" || k.Name == "app":
				flush()
				sub := path
				if t := inline(k.Kid("title")); t != "" {
					sub = append(path[:len(path):len(path)], t)
				}
				section(k, sub, r)
			case k.Name == "title" || k.Name == "sec-meta" || dropped[k.Name]:
			case k.Name == "p":
				paras = append(paras, paragraph(k)...)
			case k.Name == "table-wrap" || k.Name == "array":
				if t := table(k); t != "" {
					paras = append(paras, t)
				}
			case k.Name == "disp-formula":
				if t := inline(k); t != "" {
					paras = append(paras, t)
				}
			case k.Name == "":
				if t := xmldoc.Fold(k.Text); t != "" {
					paras = append(paras, t)
				}
			default: // lists, boxes, figures, quotes and groups of them
				walk(k)
			}
		}
	}
	walk(n)
	flush()
}

// paragraph is a paragraph's own text, followed by the blocks that stand inside it.
func paragraph(p *xmldoc.Node) []string {
	var own strings.Builder
	var blocks []string
	var walk func(n *xmldoc.Node)
	walk = func(n *xmldoc.Node) {
		for _, k := range n.Kids {
			switch k.Name {
			case "table-wrap", "array":
				if t := table(k); t != "" {
					blocks = append(blocks, t)
				}
			case "fig", "boxed-text", "list", "disp-quote", "def-list", "fig-group", "table-wrap-group":
				sub := &corpusio.Record{}
				section(k, nil, sub)
				for _, s := range sub.Sections {
					blocks = append(blocks, strings.Split(s.Text, "\n")...)
				}
			default:
				if k.Name == "" {
					own.WriteString(k.Text)
				} else if isInlineAtom(k.Name) {
					own.WriteString(atom(k))
				} else if !dropped[k.Name] {
					walk(k)
				}
			}
		}
	}
	walk(p)
	var out []string
	if s := xmldoc.Fold(own.String()); s != "" {
		out = append(out, s)
	}
	return append(out, blocks...)
}

// inline is the text of a title, cell or formula.
func inline(n *xmldoc.Node) string {
	if n == nil {
		return ""
	}
	var b strings.Builder
	var walk func(n *xmldoc.Node)
	walk = func(n *xmldoc.Node) {
		for _, k := range n.Kids {
			switch {
			case k.Name == "":
				b.WriteString(k.Text)
			case isInlineAtom(k.Name):
				b.WriteString(atom(k))
			case k.Name == "break" || k.Name == "p" || k.Name == "list-item":
				b.WriteByte(' ')
				walk(k)
				b.WriteByte(' ')
			case !dropped[k.Name]:
				walk(k)
			}
		}
	}
	if isInlineAtom(n.Name) {
		return xmldoc.Fold(atom(n))
	}
	walk(n)
	return xmldoc.Fold(b.String())
}

func isInlineAtom(name string) bool {
	return name == "alternatives" || name == "tex-math" || name == "math" || name == "inline-formula" || name == "disp-formula"
}

// atom is one formula: MathML's symbols when there are any, else its LaTeX.
func atom(n *xmldoc.Node) string {
	if n.Name == "inline-formula" || n.Name == "disp-formula" {
		for _, k := range n.Kids {
			if k.Name == "alternatives" || k.Name == "tex-math" || k.Name == "math" {
				return " " + atom(k) + " "
			}
		}
		return n.String("label", "graphic", "inline-graphic")
	}
	switch n.Name {
	case "math":
		return n.String("annotation", "annotation-xml")
	case "tex-math":
		return latex(n.String())
	}
	if m := n.Kid("math"); m != nil {
		if s := atom(m); s != "" {
			return s
		}
	}
	if t := n.Kid("tex-math"); t != nil {
		return atom(t)
	}
	for _, k := range n.Kids {
		if k.Name != "" && !dropped[k.Name] {
			return inline(k)
		}
	}
	return ""
}

var reTeX = regexp.MustCompile(`\\(?:documentclass|usepackage|setlength|oddsidemargin|pagestyle)(?:\[[^\]]*\])?(?:\{[^{}]*\})*(?:-?[\d.]+pt)?`)

// latex strips preamble and document environment.
func latex(s string) string {
	if _, after, ok := strings.Cut(s, `\begin{document}`); ok {
		s, _, _ = strings.Cut(after, `\end{document}`)
	}
	s = reTeX.ReplaceAllString(s, "")
	return strings.Trim(xmldoc.Fold(s), "$ ")
}

// table is caption and rows; cells are separated by " | ", rows by line breaks.
func table(n *xmldoc.Node) string {
	var lines []string
	if c := inline(n.Kid("caption")); c != "" {
		lines = append(lines, c)
	}
	var walk func(n *xmldoc.Node)
	walk = func(n *xmldoc.Node) {
		for _, k := range n.Kids {
			switch k.Name {
			case "tr":
				var cells []string
				for _, c := range k.Kids {
					if c.Name == "td" || c.Name == "th" {
						cells = append(cells, inline(c))
					}
				}
				if row := strings.Trim(strings.Join(cells, " | "), " |"); row != "" {
					lines = append(lines, row)
				}
			case "caption", "label", "table-wrap-foot", "object-id", "graphic":
			default:
				walk(k)
			}
		}
	}
	walk(n)
	return strings.Join(lines, "\n")
}
