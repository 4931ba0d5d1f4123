package pipeline

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Citation links a sentence of the answer to a snippet.
type Citation struct {
	N      int     `json:"n"` // number of the snippet in the answer
	ID     string  `json:"id"`
	Corpus string  `json:"corpus"`
	By     string  `json:"by"` // "model" or "attribution"
	Cosine float64 `json:"cosine,omitempty"`
}

var reCitation = regexp.MustCompile(`\s*\[(\d{1,4}(?:\s*[,;–-]\s*\d{1,4})*)\]`)

// maxSpan bounds a citation like [2-5]; longer ones name numbers, not snippets.
const maxSpan = 50

// Cite reads the bracketed numbers of a text. Numbers from 1 to kept stay, in the
// normal form [1][3]; all others are removed and counted as foreign. used are the
// numbers that stay, in order of first use.
func Cite(text string, kept int) (clean string, used []int, foreign int) {
	clean = reCitation.ReplaceAllStringFunc(text, func(m string) string {
		body := strings.Trim(strings.TrimSpace(m), "[]")
		var ns []int
		for _, part := range strings.FieldsFunc(body, func(r rune) bool { return r == ',' || r == ';' }) {
			ends := strings.FieldsFunc(part, func(r rune) bool { return r == '-' || r == '–' })
			lo, _ := strconv.Atoi(strings.TrimSpace(ends[0]))
			hi, _ := strconv.Atoi(strings.TrimSpace(ends[len(ends)-1]))
			if hi < lo || hi-lo > maxSpan {
				foreign++
				continue
			}
			for n := lo; n <= hi; n++ {
				ns = append(ns, n)
			}
		}
		out := ""
		for _, n := range ns {
			if n < 1 || n > kept {
				foreign++
				continue
			}
			out += "[" + strconv.Itoa(n) + "]"
			if !slices.Contains(used, n) {
				used = append(used, n)
			}
		}
		if out == "" {
			return ""
		}
		return m[:len(m)-len(strings.TrimLeft(m, " \t\n"))] + out
	})
	return clean, used, foreign
}

var reSentence = regexp.MustCompile(`(?s).+?(?:[.!?]["”)\]]*(?:\s*\[\d+\])*(?:\s+|$)|\n+|$)`)

// sentences cuts a text; the pieces joined are the text.
func sentences(text string) []string { return reSentence.FindAllString(text, -1) }

// minSentence is the least number of words that attribution looks at.
const minSentence = 4

// cosine of two vectors; 0 when one has no direction.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}
