// Package reader picks the reader for a corpus file: by name, or by looking at the
// root element or the fields of the first JSON line.
package reader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rag2/corpusio"
	"rag2/corpusio/guideline"
	"rag2/corpusio/input"
	"rag2/corpusio/jats"
	"rag2/corpusio/medrag"
	"rag2/corpusio/pubmed"
	"rag2/corpusio/textbook"
)

// ErrFormat reports a file that is of no known format, or not of the one asked for.
var ErrFormat = errors.New("wrong corpus format")

// Func reads path and hands its records to h.
type Func func(ctx context.Context, path string, h corpusio.Handler) error

var formats = map[string]Func{
	"pubmed": pubmed.Read, "jats": jats.Read, "guideline": guideline.Read, "textbook": textbook.Read, "medrag": medrag.Read,
}

// Formats lists the names of formats.
func Formats() []string { return slices.Sorted(maps.Keys(formats)) }

// Read reads path as format, or as what it looks like when format is "" or "auto".
func Read(ctx context.Context, format, path string, h corpusio.Handler) error {
	found, err := Detect(ctx, path)
	if err != nil {
		return err
	}
	if format == "" || format == "auto" {
		format = found
	}
	f, ok := formats[format]
	switch {
	case format == "":
		return fmt.Errorf("%s: %w: it looks like none of %s; name the format", path, ErrFormat, strings.Join(Formats(), ", "))
	case !ok:
		return fmt.Errorf("format %q: %w: the formats are %s", format, ErrFormat, strings.Join(Formats(), ", "))
	case found != "" && found != format:
		return fmt.Errorf("%s: %w: it looks like %s, not %s", path, ErrFormat, found, format)
	}
	return f(ctx, path, h)
}

var errDone = errors.New("done")

var reRoot = regexp.MustCompile(`<([A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)`)

// Detect names the format of the first member of path that has one, "" when none.
func Detect(ctx context.Context, path string) (format string, err error) {
	err = input.Walk(ctx, path, nil, func(m input.Member) error {
		head, _ := m.R.Peek(1 << 16)
		if format = sniff(string(head), m.Base()); format != "" {
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		err = nil
	}
	return format, err
}

func sniff(head, name string) string {
	head = strings.TrimLeft(head, "\ufeff \t\r\n")
	if strings.HasPrefix(head, "<") {
		for strings.HasPrefix(head, "<?") || strings.HasPrefix(head, "<!") {
			end := ">"
			if strings.HasPrefix(head, "<!--") {
				end = "-->"
			} else if i, j := strings.IndexByte(head, '['), strings.IndexByte(head, '>'); i >= 0 && i < j {
				end = "]>"
			}
			_, after, ok := strings.Cut(head, end)
			if !ok {
				return ""
			}
			head = strings.TrimLeft(after, " \t\r\n")
		}
		m := reRoot.FindStringSubmatch(head)
		switch {
		case m == nil:
			return ""
		case slices.Contains(pubmed.Roots(), m[2]):
			return "pubmed"
		case slices.Contains(jats.Roots(), m[2]):
			return "jats"
		case m[2] == "document":
			return "textbook"
		case m[2] == "Version":
			return "guideline"
		}
		return ""
	}
	if strings.HasPrefix(head, "{") {
		line, _, _ := strings.Cut(head, "\n")
		keys := map[string]json.RawMessage{}
		has := func(k string) bool { _, ok := keys[k]; return ok || strings.Contains(line, `"`+k+`":`) }
		_ = json.Unmarshal([]byte(line), &keys)
		switch {
		case has("clean_text") || has("raw_text"):
			return "guideline"
		case has("content") || has("contents"):
			return "medrag"
		}
		return ""
	}
	if ext := filepath.Ext(name); ext == ".txt" || ext == ".md" {
		return "textbook"
	}
	return ""
}
