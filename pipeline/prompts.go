package pipeline

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed prompts/*.txt
var builtin embed.FS

// promptNames are the templates that a set holds.
var promptNames = []string{"rationale", "answer", "query2doc"}

// Prompts is a set of prompt templates. rationale.txt is part of the method and
// stands verbatim in the paper (appendix A).
type Prompts struct {
	t    map[string]*template.Template
	hash string
}

// promptSnippet is a snippet as the answer template sees it.
type promptSnippet struct {
	N           int // 1-based
	Title, Text string
}

type promptData struct {
	Question string
	Options  bool
	Snippets []promptSnippet
}

// LoadPrompts reads NAME.txt of every prompt from dir; a file that is not there is
// the built-in one. "" = all built in.
func LoadPrompts(dir string) (*Prompts, error) {
	if dir != "" {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return nil, fmt.Errorf("prompts: %s is not a directory", dir)
		}
	}
	p := &Prompts{t: map[string]*template.Template{}}
	h := sha256.New()
	for _, name := range promptNames {
		b, err := fs.ReadFile(builtin, "prompts/"+name+".txt")
		if err != nil {
			return nil, err
		}
		if dir != "" {
			if own, err := os.ReadFile(filepath.Join(dir, name+".txt")); err == nil {
				b = own
			} else if !os.IsNotExist(err) {
				return nil, err
			}
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
		t, err := template.New(name).Option("missingkey=error").Parse(string(b))
		if err != nil {
			return nil, fmt.Errorf("prompt: %w", err)
		}
		p.t[name] = t
		if _, err := p.render(name, promptData{Question: "q", Options: true, Snippets: []promptSnippet{{1, "t", "x"}}}); err != nil {
			return nil, err
		}
	}
	p.hash = hex.EncodeToString(h.Sum(nil)[:8])
	return p, nil
}

// Hash identifies the set; it is part of every trace.
func (p *Prompts) Hash() string { return p.hash }

func (p *Prompts) render(name string, d promptData) (string, error) {
	var b bytes.Buffer
	if err := p.t[name].Execute(&b, d); err != nil {
		return "", fmt.Errorf("prompt %s: %w", name, err)
	}
	return strings.TrimSpace(b.String()), nil
}
