package corpusio

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ChunkOptions size the passages.
type ChunkOptions struct {
	Words   int // words in a window; 0 = 128
	Overlap int // words that a window shares with the one before; -1 = none, 0 = 32
	// MaxWord is the longest word in bytes: longer runs without white space
	// (sequences, tables gone wrong) are cut. 0 = 200.
	MaxWord int
}

// Defaults fills what is zero and checks the rest.
func (o ChunkOptions) Defaults() (ChunkOptions, error) {
	if o.Words == 0 {
		o.Words = 128
	}
	switch {
	case o.Overlap == 0:
		o.Overlap = min(32, o.Words/4)
	case o.Overlap < 0:
		o.Overlap = 0
	}
	if o.MaxWord == 0 {
		o.MaxWord = 200
	}
	if o.Words < 1 || o.Overlap >= o.Words || o.MaxWord < utf8.UTFMax {
		return o, fmt.Errorf("chunks of %d words with %d overlap and words of %d bytes: overlap must be smaller than the window, words at least %d bytes", o.Words, o.Overlap, o.MaxWord, utf8.UTFMax)
	}
	return o, nil
}

// word is a span of a section's text.
type word struct {
	text    string
	section int
	brk     bool // a line break stands before it
}

// Chunk cuts a record into passages: windows of Words words, each beginning
// Words−Overlap after the one before, over the record's text in order. Sections
// with headings are windows of their own, unless a section is no longer than the
// overlap, in which case it continues its predecessor; sections without headings
// (an abstract) are one text. The last window ends with the text and is never a
// mere repetition of overlap. A record without sections is its title.
func Chunk(r *Record, o ChunkOptions) ([]Passage, error) {
	o, err := o.Defaults()
	if err != nil {
		return nil, err
	}
	var runs [][]word
	var names []string
	last := ""
	for i, s := range r.Sections {
		w := words(s.Text, i, o.MaxWord)
		if len(w) == 0 {
			continue
		}
		name := strings.Join(s.Path, " > ")
		if len(runs) > 0 && (name == last || len(w) <= o.Overlap) {
			w[0].brk = true
			runs[len(runs)-1] = append(runs[len(runs)-1], w...)
			continue
		}
		runs, names, last = append(runs, w), append(names, name), name
	}
	if len(runs) == 0 {
		if r.Title == "" {
			return nil, nil
		}
		runs, names = [][]word{words(r.Title, 0, o.MaxWord)}, []string{""}
	}
	var out []Passage
	base := 0
	for i, run := range runs {
		for at := 0; ; at += o.Words - o.Overlap {
			end := min(at+o.Words, len(run))
			out = append(out, Passage{
				ID: fmt.Sprintf("%s:%s#%d", r.Corpus, r.ID, len(out)), Corpus: r.Corpus, Doc: r.ID, Title: r.Title, Section: names[i],
				Text: join(run[at:end]), Year: r.Year, Journal: r.Journal, MeSH: r.MeSH, URL: r.URL, Start: base + at, End: base + end,
			})
			if end == len(run) {
				break
			}
		}
		base += len(run)
	}
	return out, nil
}

// words splits text at white space; runs longer than max bytes are cut at a
// character boundary.
func words(text string, section, max int) []word {
	var out []word
	for _, line := range strings.Split(text, "\n") {
		brk := true
		for _, f := range strings.Fields(line) {
			for len(f) > max {
				n := max
				for n > 1 && !utf8.RuneStart(f[n]) {
					n--
				}
				out = append(out, word{f[:n], section, brk})
				f, brk = f[n:], false
			}
			out = append(out, word{f, section, brk})
			brk = false
		}
	}
	return out
}

func join(ws []word) string {
	var b strings.Builder
	for i, w := range ws {
		if i > 0 {
			if w.brk {
				b.WriteByte('\n')
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteString(w.text)
	}
	return b.String()
}
