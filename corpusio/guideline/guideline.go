// Package guideline reads clinical practice guidelines: JSON lines with the fields
// of epfl-llm/guidelines (id, source, title, clean_text, raw_text, url, overview),
// and the guideline summaries of the National Guideline Clearinghouse (XML with one
// HTML value per field). A text that repeats an earlier one of the same file is
// skipped as a duplicate.
package guideline

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"rag2/corpusio"
	"rag2/corpusio/input"
	"rag2/corpusio/jsonl"
	"rag2/corpusio/xmldoc"

	"golang.org/x/net/html"
)

// row is a line of epfl-llm/guidelines.
type row struct {
	ID       string `json:"id"`
	Source   string `json:"source"`
	Title    string `json:"title"`
	Clean    string `json:"clean_text"`
	Raw      string `json:"raw_text"`
	URL      string `json:"url"`
	Overview string `json:"overview"`
}

// Read reads path and hands its guidelines to h.
func Read(ctx context.Context, path string, h corpusio.Handler) error {
	return input.Walk(ctx, path, h.Progress, func(m input.Member) error {
		head, _ := m.R.Peek(512)
		if t := strings.TrimLeft(string(head), "\ufeff \t\r\n"); strings.HasPrefix(t, "<") {
			return ngc(ctx, m, h)
		}
		seen := map[[32]byte]int{}
		return jsonl.Each(m.Label(), m.R, func(line int, v *row, err error) error {
			if cerr := ctx.Err(); cerr != nil {
				return cerr
			}
			src := corpusio.Source{File: m.File, Member: m.Name, Line: line}
			skip := func(id, reason, detail string) error {
				if h.Skip == nil {
					return nil
				}
				return h.Skip(corpusio.Skip{Source: src, ID: id, Reason: reason, Detail: detail})
			}
			if err != nil {
				return skip("", "malformed", err.Error())
			}
			text := v.Clean
			if strings.TrimSpace(text) == "" {
				text = v.Raw
			}
			sum := sha256.Sum256([]byte(xmldoc.Fold(text)))
			switch first, dup := seen[sum]; {
			case v.ID == "":
				return skip("", "no id", fmt.Sprintf("title %q", v.Title))
			case strings.TrimSpace(text) == "":
				return skip(v.ID, "no text", "clean_text and raw_text are empty")
			case dup:
				return skip(v.ID, "duplicate", fmt.Sprintf("same text as line %d", first))
			}
			seen[sum] = line
			return h.Record(&corpusio.Record{ID: v.ID, Title: xmldoc.Fold(v.Title), Journal: v.Source, URL: v.URL, Source: src, Sections: split(text)})
		})
	})
}

// split makes sections of text with Markdown headings; without any it is one.
func split(text string) (out []corpusio.Section) {
	var path, lines []string
	flush := func() {
		if t := strings.TrimSpace(strings.Join(lines, "\n")); t != "" {
			out = append(out, corpusio.Section{Path: append([]string(nil), path...), Text: t})
		}
		lines = nil
	}
	for _, l := range strings.Split(text, "\n") {
		depth := len(l) - len(strings.TrimLeft(l, "#"))
		if depth == 0 || depth > 6 || len(l) == depth || l[depth] != ' ' {
			lines = append(lines, l)
			continue
		}
		flush()
		path = append(path[:min(depth-1, len(path))], strings.TrimSpace(l[depth:]))
	}
	flush()
	return
}

// ngc reads one guideline summary.
func ngc(ctx context.Context, m input.Member, h corpusio.Handler) error {
	r, err := xmldoc.UTF8(m.R)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Label(), err)
	}
	err = xmldoc.Split(r, []string{"Version"}, []string{"Version"}, func(el xmldoc.Element) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		src := corpusio.Source{File: m.File, Member: m.Name, Offset: el.Offset}
		id := strings.TrimSuffix(m.Base(), filepath.Ext(m.Base()))
		n, err := xmldoc.Parse(el.Bytes)
		if err = errors.Join(el.Err, err); err != nil {
			if h.Skip == nil {
				return nil
			}
			return h.Skip(corpusio.Skip{Source: src, ID: id, Reason: "malformed", Detail: err.Error()})
		}
		rec := &corpusio.Record{ID: id, Source: src, Journal: "National Guideline Clearinghouse"}
		for _, sec := range n.All("Section") {
			for _, f := range sec.All("Field") {
				var parts []string
				for _, v := range f.All("FieldValue") {
					if t := htmlText(v.At("Value")); t != "" {
						parts = append(parts, t)
					}
				}
				text := strings.Join(parts, "\n")
				switch name := f.At("Name"); {
				case text == "":
				case name == "Guideline Title":
					rec.Title = xmldoc.Fold(text)
				default:
					if name == "Bibliographic Source(s)" {
						rec.Year, _ = strconv.Atoi(reYear.FindString(text))
					}
					rec.Sections = append(rec.Sections, corpusio.Section{Path: []string{name}, Text: text})
				}
			}
		}
		if len(rec.Sections) == 0 {
			if h.Skip == nil {
				return nil
			}
			return h.Skip(corpusio.Skip{Source: src, ID: id, Reason: "no text"})
		}
		return h.Record(rec)
	})
	if err != nil {
		return fmt.Errorf("guideline: %s: %w", m.Label(), err)
	}
	return nil
}

var reYear = regexp.MustCompile(`\b(?:19|20)\d\d\b`)

// htmlText is the text of an HTML fragment: blocks on lines of their own, table
// cells separated by " | ".
func htmlText(s string) string {
	z := html.NewTokenizer(strings.NewReader(s))
	var b strings.Builder
	for {
		switch z.Next() {
		case html.ErrorToken:
			if !errors.Is(z.Err(), io.EOF) {
				return ""
			}
			var lines []string
			for _, l := range strings.Split(b.String(), "\n") {
				if l = strings.Trim(xmldoc.Fold(l), "| "); l != "" {
					lines = append(lines, l)
				}
			}
			return strings.Join(lines, "\n")
		case html.TextToken:
			b.WriteString(strings.ReplaceAll(string(z.Text()), "\n", " "))
		case html.StartTagToken, html.EndTagToken, html.SelfClosingTagToken:
			name, _ := z.TagName()
			switch string(name) {
			case "p", "div", "li", "ul", "ol", "tr", "table", "br", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "dd":
				b.WriteByte('\n')
			case "td", "th":
				b.WriteString(" | ")
			}
		}
	}
}
