package pipeline

import (
	"regexp"
	"slices"
	"strings"
)

// letter is an option's key with the marks that models put around it.
const letter = `[*_"'“‘\s]*(?:[Oo]ption\s+|[Cc]hoice\s+)?[*_"'“‘]*[(\[]?([A-Z])[)\]]?(?:\b|$)`

// The explicit statements. Of all matches of all of them the last in the text wins.
var (
	reJSON      = regexp.MustCompile(`"answer(?:_choice|_idx)?"\s*:\s*"\s*[(\[]?([A-Z])\b`)
	reExplicit  = regexp.MustCompile(`(?i:\banswer(?:\s+choice|\s+option)?(?:\s+to\s+(?:the|this)\s+question)?\s*(?:is\b|would\s+be\b|should\s+be\b|must\s+be\b|:|=)\s*:?\s*(?:most\s+likely\s+|clearly\s+|therefore\s+)?)` + letter)
	reChoice    = regexp.MustCompile(`(?i:\b(?:correct|best|right|most\s+(?:likely|appropriate))\s+(?:option|choice|answer)\s*(?:is\b|would\s+be\b|:)\s*:?\s*)` + letter)
	reIsCorrect = regexp.MustCompile(`(?i:\b(?:option|choice|answer)\s+)[*_]*[(\[]?([A-Z])[)\]]?[*_]*[^.;!?\n]{0,80}?(?i:\s+(?:is|would\s+be)\s+(?:therefore\s+|thus\s+|clearly\s+)?(?:the\s+)?(?:single\s+)?(?:correct|best|right|most\s+(?:likely|appropriate)))\b`)
	reBoxed     = regexp.MustCompile(`\\boxed\s*\{\s*(?:\\text\s*\{\s*)?\(?([A-Z])\)?\s*\}`)
	reLine      = regexp.MustCompile(`(?m)^[\s*_#>]*[(\[]?([A-Z])[)\]]?[.:]?[\s*_]*$`)
	reLineText  = regexp.MustCompile(`(?m)^[\s*_#>]*[(\[]?([A-Z])(?:[)\]]|[.:])[*_]*\s+(.+?)[\s*_.]*$`)
	reMore      = regexp.MustCompile(`^[*_)\]"”’\s]*(?:,|/|&|\b(?:and|or)\b)[*_(\["“‘\s]*(?:[Oo]ption\s+)?([A-Z])(?:[)\]\s.,;*_]|$)`)
	reArticle   = regexp.MustCompile(`^\s+[a-z]`)
	reNegated   = regexp.MustCompile(`(?i)\b(?:not|isn't|never|neither|incorrect|wrong|rule[sd]?\s+out)\b`)
)

// Extract finds the option that a text states, or "". It never guesses: a letter
// counts where the text says that it is the answer, the last such statement wins,
// and "A or C" is no answer. rest is the explanation: the text before the statement's
// line or, when nothing stands there, the text after it.
func Extract(text string, options []Option) (key, rest string) {
	if len(options) == 0 {
		return "", text
	}
	valid := map[string]bool{}
	for _, o := range options {
		valid[o.Key] = true
	}
	at, best := -1, ""
	offer := func(pos int, k string) {
		if pos >= at {
			at, best = pos, k
		}
	}
	for _, re := range []*regexp.Regexp{reJSON, reExplicit, reChoice, reIsCorrect, reBoxed} {
		for _, m := range re.FindAllStringSubmatchIndex(text, -1) {
			k, after := text[m[2]:m[3]], text[m[3]:]
			if re == reIsCorrect {
				if reNegated.MatchString(text[m[3]:m[1]]) {
					continue
				}
				after = ""
			}
			bare := m[2] == 0 || !strings.ContainsAny(text[m[2]-1:m[2]], "([*_\"'“‘{")
			if (k == "A" || k == "I") && bare && reArticle.MatchString(after) && !startsWithOption(after, k, options) {
				continue // the article, the pronoun
			}
			if !valid[k] {
				k = ""
			}
			if more := reMore.FindStringSubmatch(after); more != nil && valid[more[1]] && more[1] != k {
				k = "" // several at once
			}
			offer(m[0], k)
		}
	}
	if at < 0 {
		at, best = statedText(text, options)
	}
	if at < 0 {
		at, best = loneLine(text, options, valid)
	}
	if at < 0 {
		return "", text
	}
	if nl := strings.LastIndexByte(text[:at], '\n'); nl >= 0 && !strings.ContainsAny(text[nl:at], ".!?") {
		at = nl
	} else if dot := strings.LastIndexAny(text[:at], ".!?\n"); dot >= 0 {
		at = dot + 1
	} else {
		at = 0
	}
	if rest = strings.TrimSpace(text[:at]); rest == "" {
		rest = afterStatement(strings.TrimSpace(text[at:]), best, options)
	}
	return best, rest
}

var (
	// reStatement ends a sentence; a letter with a period is an option.
	reStatement = regexp.MustCompile(`[^\s(\[*_"“][^\s(\[*_"“]["”’)\]*_]*[.!?]+["”’)*_]*\s+`)
	reLetterEnd = regexp.MustCompile(`(?:^|[\s(\[*_"“])([A-Z])["”’)\]*_]*\.["”’)*_]*\s+`)
)

// afterStatement is what follows the line, or in one line the sentence, in which a text
// begins with stating option key.
func afterStatement(text, key string, options []Option) string {
	if nl := strings.IndexByte(text, '\n'); nl >= 0 {
		return strings.TrimSpace(text[nl:])
	}
	if m := reLetterEnd.FindStringSubmatchIndex(text); m != nil && text[m[2]:m[3]] == key && !startsWithOption(text[m[1]:], key, options) {
		return strings.TrimSpace(text[m[1]:])
	}
	if m := reStatement.FindStringIndex(text); m != nil {
		return strings.TrimSpace(text[m[1]:])
	}
	return ""
}

func startsWithOption(after, key string, options []Option) bool {
	for _, o := range options {
		if o.Key == key {
			return strings.HasPrefix(fold(after), fold(o.Text))
		}
	}
	return false
}

var reStated = regexp.MustCompile(`(?i)\banswer\s*(?:is\b|would\s+be\b|:)\s*:?\s*["“*_]*([^\n]+)`)

// statedText reads "the answer is <text of an option>".
func statedText(text string, options []Option) (at int, key string) {
	at = -1
	for _, m := range reStated.FindAllStringSubmatchIndex(text, -1) {
		got := fold(text[m[2]:m[3]])
		longest := 0
		for _, o := range options {
			want := fold(o.Text)
			if n := len(want); n > longest && strings.HasPrefix(got, want) && (len(got) == n || got[n] == ' ') {
				longest, at, key = n, m[0], o.Key
			}
		}
	}
	return at, key
}

// loneLine reads a line that holds a letter alone or an option as it was given, or a
// text that is an option.
func loneLine(text string, options []Option, valid map[string]bool) (at int, key string) {
	at = -1
	for _, m := range reLine.FindAllStringSubmatchIndex(text, -1) {
		if k := text[m[2]:m[3]]; valid[k] {
			at, key = m[0], k
		}
	}
	// A list of options is no answer; one option on a line of its own is.
	var lines [][]int
	for _, m := range reLineText.FindAllStringSubmatchIndex(text, -1) {
		if valid[text[m[2]:m[3]]] {
			lines = append(lines, m)
		}
	}
	if len(lines) == 1 && lines[0][0] > at && startsWithOption(text[lines[0][4]:], text[lines[0][2]:lines[0][3]], options) {
		at, key = lines[0][0], text[lines[0][2]:lines[0][3]]
	}
	if at < 0 {
		for _, o := range options {
			if fold(text) == fold(o.Text) {
				return 0, o.Key
			}
		}
	}
	return at, key
}

// dropOptionLines removes the lines that only repeat an option, with or without its
// key: they explain nothing.
func dropOptionLines(text string, options []Option) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		f := fold(line)
		repeats := slices.ContainsFunc(options, func(o Option) bool {
			t := fold(o.Text)
			return f == t || f == fold(o.Key)+" "+t || f == "option "+fold(o.Key)+" "+t
		})
		if !repeats {
			out = append(out, line)
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// fold is text in lower case, words separated by single blanks, without marks.
func fold(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return strings.ContainsRune(" \t\r\n.,;:!?\"'“”‘’()[]*_", r)
	}), " ")
}

var mirageRules = []*regexp.Regexp{
	regexp.MustCompile(`^\s*(A|B|C|D)$`),
	regexp.MustCompile(`^\s*(A|B|C|D) or`),
	regexp.MustCompile(`^\s*(A|B|C|D) and`),
	regexp.MustCompile(`^\s*(A|B|C|D)/`),
	regexp.MustCompile(`^\s*(A|B|C|D),`),
	regexp.MustCompile(`[Oo]ption (A|B|C|D)`),
	regexp.MustCompile(`:\s*(A|B|C|D)`),
	regexp.MustCompile(`^\s*(A|B|C|D)\.`),
	regexp.MustCompile(`^\s*(A|B|C|D)"`),
	regexp.MustCompile(`^\s*(A|B|C|D):`),
}

// ExtractMIRAGE reads an answer as the MIRAGE benchmark does (Xiong et al., 2024):
// the first of its patterns that matches behind "answer_choice", and A when none
// does. It is for comparison with published figures only.
func ExtractMIRAGE(text string) string {
	if i := strings.LastIndex(text, `"answer_choice": "`); i >= 0 {
		text = text[i+len(`"answer_choice": "`):]
	}
	text = strings.TrimSpace(text)
	for _, re := range mirageRules {
		if m := re.FindStringSubmatch(text); m != nil {
			return m[1]
		}
	}
	return "A"
}
