// Package textbook reads textbooks: OpenStax modules in CNXML (alone, in a
// directory or a .tar.gz) and plain text in which lines that begin with # are
// headings. MedRAG's textbook chunks are read by package medrag.
package textbook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"rag2/corpusio"
	"rag2/corpusio/input"
	"rag2/corpusio/xmldoc"
)

// MaxText is the largest plain-text book read.
const MaxText = 256 << 20

// Read reads path and hands its modules or books to h. Members that are neither
// .cnxml, .xml nor .txt are passed over in archives and directories.
func Read(ctx context.Context, path string, h corpusio.Handler) error {
	return input.Walk(ctx, path, h.Progress, func(m input.Member) error {
		head, _ := m.R.Peek(512)
		isXML := strings.HasPrefix(strings.TrimLeft(string(head), "\ufeff \t\r\n"), "<")
		ext := filepath.Ext(m.Base())
		switch {
		case ext == ".cnxml" || isXML && ext == ".xml":
			return cnxml(ctx, m, h)
		case ext == ".txt" || ext == ".md":
			return plain(m, h)
		case m.Name == "" && filepath.Clean(m.File) == filepath.Clean(path):
			return fmt.Errorf("textbook: %s: neither .cnxml nor .txt", m.Label())
		}
		return nil
	})
}

func cnxml(ctx context.Context, m input.Member, h corpusio.Handler) error {
	r, err := xmldoc.UTF8(m.R)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Label(), err)
	}
	err = xmldoc.Split(r, []string{"document"}, []string{"document"}, func(el xmldoc.Element) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		src := corpusio.Source{File: m.File, Member: m.Name, Offset: el.Offset}
		id := filepath.Base(filepath.Dir(m.Name)) // modules/m58780/index.cnxml
		if m.Name == "" || id == "." || id == "modules" {
			id = strings.TrimSuffix(m.Base(), filepath.Ext(m.Base()))
		}
		skip := func(reason, detail string) error {
			if h.Skip == nil {
				return nil
			}
			return h.Skip(corpusio.Skip{Source: src, ID: id, Reason: reason, Detail: detail})
		}
		n, err := xmldoc.Parse(el.Bytes)
		if err = errors.Join(el.Err, err); err != nil {
			return skip("malformed", err.Error())
		}
		if c := n.Kid("metadata/content-id").String(); c != "" {
			id = c
		}
		rec := &corpusio.Record{ID: id, Title: n.Kid("title").String(), Source: src}
		if c := n.Kid("content"); c != nil {
			section(c, nil, rec)
		}
		if len(rec.Sections) == 0 {
			return skip("no text", "")
		}
		return h.Record(rec)
	})
	if err != nil {
		return fmt.Errorf("textbook: %s: %w", m.Label(), err)
	}
	return nil
}

// section appends the text under n under a heading path, each paragraph once.
func section(n *xmldoc.Node, path []string, r *corpusio.Record) {
	var lines []string
	flush := func() {
		if len(lines) > 0 {
			r.Sections = append(r.Sections, corpusio.Section{Path: path, Text: strings.Join(lines, "\n")})
			lines = nil
		}
	}
	add := func(s string) {
		if s != "" {
			lines = append(lines, s)
		}
	}
	var walk func(n *xmldoc.Node)
	walk = func(n *xmldoc.Node) {
		for _, k := range n.Kids {
			switch k.Name {
			case "":
				add(xmldoc.Fold(k.Text))
			case "section":
				flush()
				sub := path
				if t := k.Kid("title").String(); t != "" {
					sub = append(path[:len(path):len(path)], t)
				}
				section(k, sub, r)
			case "title":
				if n.Name != "section" {
					add(k.String())
				}
			case "para", "item", "caption", "equation":
				add(k.String("media", "annotation"))
			case "table":
				table(k, add)
			case "media", "metadata", "glossary":
			case "definition":
				add(k.Kid("term").String() + ": " + k.Kid("meaning").String())
			default:
				walk(k)
			}
		}
	}
	walk(n)
	flush()
}

func table(n *xmldoc.Node, add func(string)) {
	for _, k := range n.Kids {
		switch k.Name {
		case "row":
			var cells []string
			for _, c := range k.All("entry") {
				cells = append(cells, c.String("media"))
			}
			add(strings.Trim(strings.Join(cells, " | "), " |"))
		case "title", "caption":
			add(k.String())
		case "":
		default:
			table(k, add)
		}
	}
}

func plain(m input.Member, h corpusio.Handler) error {
	b, err := io.ReadAll(io.LimitReader(m.R, MaxText+1))
	if err != nil {
		return err
	}
	if len(b) > MaxText {
		return fmt.Errorf("textbook: %s: larger than %d MiB; split it", m.Label(), MaxText>>20)
	}
	text := strings.ToValidUTF8(strings.TrimPrefix(string(b), "\ufeff"), "\uFFFD")
	src := corpusio.Source{File: m.File, Member: m.Name}
	rec := &corpusio.Record{ID: strings.TrimSuffix(m.Base(), filepath.Ext(m.Base())), Source: src}
	rec.Title = strings.ReplaceAll(rec.ID, "_", " ")
	var path, lines []string
	flush := func() {
		if t := strings.TrimSpace(strings.Join(lines, "\n")); t != "" {
			rec.Sections = append(rec.Sections, corpusio.Section{Path: append([]string(nil), path...), Text: t})
		}
		lines = nil
	}
	for _, l := range strings.Split(text, "\n") {
		l = strings.TrimRight(l, "\r")
		depth := len(l) - len(strings.TrimLeft(l, "#"))
		if depth == 0 || depth > 6 || !strings.HasPrefix(l[depth:], " ") {
			lines = append(lines, l)
			continue
		}
		flush()
		path = append(path[:min(depth-1, len(path))], strings.TrimSpace(l[depth:]))
	}
	flush()
	if len(rec.Sections) == 0 {
		if h.Skip == nil {
			return nil
		}
		return h.Skip(corpusio.Skip{Source: src, ID: rec.ID, Reason: "no text"})
	}
	return h.Record(rec)
}
