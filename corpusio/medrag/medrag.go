// Package medrag reads the JSON-lines chunks of MedRAG: {"id", "title", "content",
// "contents"}. Every line is a record of its own.
package medrag

import (
	"context"
	"strings"

	"rag2/corpusio"
	"rag2/corpusio/input"
	"rag2/corpusio/jsonl"
)

type row struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Content  string `json:"content"`
	Contents string `json:"contents"`
}

// Read reads path and hands its chunks to h.
func Read(ctx context.Context, path string, h corpusio.Handler) error {
	return input.Walk(ctx, path, h.Progress, func(m input.Member) error {
		return jsonl.Each(m.Label(), m.R, func(line int, v *row, err error) error {
			if line%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
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
			text := strings.TrimSpace(v.Content)
			if text == "" {
				text = strings.TrimSpace(v.Contents)
			}
			switch {
			case v.ID == "":
				return skip("", "no id", "")
			case text == "":
				return skip(v.ID, "no text", "content and contents are empty")
			}
			return h.Record(&corpusio.Record{ID: v.ID, Title: strings.TrimSpace(v.Title), Source: src, Sections: []corpusio.Section{{Text: text}}})
		})
	})
}
