package label

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
)

// bar is a piece of a plot, in SVG units.
type bar struct {
	X, Y, W, H float64
	Class      Label
	Tip        string
}

type plotText struct {
	X, Y float64
	Text string
}

// corpusRow is a row of the counts per corpus.
type corpusRow struct {
	Corpus                         string
	Helpful, NotHelpful, Discarded int
	Bars                           []bar
}

type cellRow struct {
	Without, With, Reach string
	N                    int
	Label                Label
}

// page is what the template shows.
type page struct {
	Settings         Settings
	Tau              string
	Questions, Pairs int
	Unscored         map[string]int
	Histogram        []bar
	Ticks            []plotText
	TauX             float64
	HasTau           bool
	Corpora          []corpusRow
	Cells            []cellRow
	RightWithout     int
	RightWith        int
	Agree            string
	Compare          string
}

const (
	plotW, plotH = 720.0, 240.0
	plotBins     = 48
)

var labelOrder = []Label{Helpful, NotHelpful, Discard}

// Report is a page about a label file, one HTML document without outside parts. other,
// when not nil, is compared pair by pair. It holds no text of questions or snippets.
func Report(f, other *File) ([]byte, error) {
	p := page{Settings: f.Settings, Questions: len(f.Questions), Unscored: map[string]int{}, Tau: "one for each question"}
	corpora := map[string]map[Label]int{}
	cells := map[Cell]int{}
	var scored []Pair
	for _, q := range f.Questions {
		if q.Right {
			p.RightWithout++
		}
		for _, x := range q.Pairs {
			p.Pairs++
			if x.Right {
				p.RightWith++
			}
			c := cmp.Or(x.Snippet.Corpus, "(none)")
			if corpora[c] == nil {
				corpora[c] = map[Label]int{}
			}
			corpora[c][x.Label]++
			if x.Delta == nil || x.Tau == nil {
				p.Unscored[cmp.Or(x.Unscored, "no perplexity")]++
				continue
			}
			scored = append(scored, x)
			cells[Cell{x.RightWithout, x.Right, *x.Delta >= *x.Tau}]++
			if f.Settings.Population == Global {
				p.Tau = fmt.Sprintf("%.6g", *x.Tau)
			}
		}
	}
	p.histogram(scored, f.Settings.Population == Global)
	most := 1
	for _, c := range corpora {
		most = max(most, c[Helpful]+c[NotHelpful]+c[Discard])
	}
	for _, name := range slices.Sorted(maps.Keys(corpora)) {
		c := corpora[name]
		row := corpusRow{name, c[Helpful], c[NotHelpful], c[Discard], nil}
		x := 0.0
		for _, l := range labelOrder {
			w := 400 * float64(c[l]) / float64(most)
			row.Bars = append(row.Bars, bar{X: x, W: w, H: 16, Class: l})
			x += w
		}
		p.Corpora = append(p.Corpora, row)
	}
	yes := map[bool]string{true: "right", false: "wrong"}
	var answers, reaches []bool
	for _, without := range []bool{true, false} {
		for _, with := range []bool{true, false} {
			for _, r := range []bool{true, false} {
				c := Cell{without, with, r}
				p.Cells = append(p.Cells, cellRow{yes[without], yes[with], map[bool]string{true: "≥ τ", false: "< τ"}[r], cells[c], Table[c]})
				if without != with { // only there does the answer say something
					for range cells[c] {
						answers, reaches = append(answers, with), append(reaches, r)
					}
				}
			}
		}
	}
	p.Agree = agreement(answers, reaches)
	if other != nil {
		p.Compare = compare(f, other)
	}
	var b bytes.Buffer
	if err := reportPage.Execute(&b, p); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return b.Bytes(), nil
}

// histogram draws ΔPPL between the 1st and the 99th percentile; what lies outside is in
// the outermost bins.
func (p *page) histogram(pairs []Pair, global bool) {
	if len(pairs) == 0 {
		return
	}
	slices.SortFunc(pairs, func(a, b Pair) int { return cmp.Compare(*a.Delta, *b.Delta) })
	lo, hi := *pairs[len(pairs)/100].Delta, *pairs[len(pairs)-1-len(pairs)/100].Delta
	if hi <= lo {
		lo, hi = lo-0.5, hi+0.5
	}
	counts := [plotBins]map[Label]int{}
	most := 1
	for i := range counts {
		counts[i] = map[Label]int{}
	}
	for _, x := range pairs {
		i := int((*x.Delta - lo) / (hi - lo) * plotBins)
		i = min(max(i, 0), plotBins-1)
		counts[i][x.Label]++
		most = max(most, counts[i][Helpful]+counts[i][NotHelpful]+counts[i][Discard])
	}
	w := plotW / plotBins
	for i, c := range counts {
		y := plotH
		for _, l := range labelOrder {
			h := plotH * float64(c[l]) / float64(most)
			y -= h
			from := lo + (hi-lo)*float64(i)/plotBins
			p.Histogram = append(p.Histogram, bar{float64(i) * w, y, w - 1, h, l, fmt.Sprintf("from %.3g: %d %s", from, c[l], l)})
		}
	}
	for i := range 7 {
		p.Ticks = append(p.Ticks, plotText{plotW * float64(i) / 6, plotH + 16, fmt.Sprintf("%.3g", lo+(hi-lo)*float64(i)/6)})
	}
	if global {
		p.TauX = (*pairs[0].Tau - lo) / (hi - lo) * plotW
		p.HasTau = p.TauX >= 0 && p.TauX <= plotW
	}
}

// agreement is the share of equal values and Cohen's kappa.
func agreement[T comparable](a, b []T) string {
	if len(a) == 0 {
		return "no pairs to compare"
	}
	ca, cb, same := map[T]float64{}, map[T]float64{}, 0.0
	for i := range a {
		ca[a[i]]++
		cb[b[i]]++
		if a[i] == b[i] {
			same++
		}
	}
	n := float64(len(a))
	chance := 0.0
	for k, v := range ca {
		chance += v / n * cb[k] / n
	}
	kappa := (same/n - chance) / (1 - chance)
	if math.IsNaN(kappa) {
		return fmt.Sprintf("%.0f of %.0f agree; κ is not defined with one class", same, n)
	}
	return fmt.Sprintf("%.0f of %.0f agree (%.1f %%), Cohen's κ %.3f", same, n, 100*same/n, kappa)
}

// compare is the agreement of two files on the pairs that both hold.
func compare(f, g *File) string {
	type key struct{ q, s string }
	labels := map[key]Label{}
	for _, q := range g.Questions {
		for _, p := range q.Pairs {
			labels[key{q.ID, p.Snippet.ID}] = p.Label
		}
	}
	var a, b []Label
	for _, q := range f.Questions {
		for _, p := range q.Pairs {
			if l, ok := labels[key{q.ID, p.Snippet.ID}]; ok {
				a, b = append(a, p.Label), append(b, l)
			}
		}
	}
	return agreement(a, b)
}

var reportPage = template.Must(template.New("report").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Perplexity labels</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left}
.n{text-align:right}.HELPFUL{fill:#2a7f62}.NOT_HELPFUL{fill:#b5483a}.discard{fill:#c3c3c3}text{font-size:11px;fill:#555}
</style></head><body>
<h1>Perplexity labels</h1>
<p>{{.Questions}} questions, {{.Pairs}} pairs. Model {{.Settings.Model}}, prompts {{.Settings.Prompts}}, scored text: {{.Settings.Scored}}, answers: {{.Settings.Answers}}. τ = {{.Tau}} ({{if .Settings.Tau}}given{{else}}quartile, {{.Settings.Population}}{{end}}).</p>
<p>Right without evidence: {{.RightWithout}} of {{.Questions}} questions. Right with a snippet: {{.RightWith}} of {{.Pairs}} pairs.</p>
<p><svg width="12" height="12"><rect class="HELPFUL" width="12" height="12"/></svg> HELPFUL
<svg width="12" height="12"><rect class="NOT_HELPFUL" width="12" height="12"/></svg> NOT_HELPFUL
<svg width="12" height="12"><rect class="discard" width="12" height="12"/></svg> discarded</p>
<h2>ΔPPL</h2>
<svg viewBox="-20 -10 760 275" role="img" aria-label="histogram of ΔPPL by label" width="100%">
{{range .Histogram}}{{if .H}}<rect class="{{.Class}}" x="{{printf "%.1f" .X}}" y="{{printf "%.1f" .Y}}" width="{{printf "%.1f" .W}}" height="{{printf "%.1f" .H}}"><title>{{.Tip}}</title></rect>{{end}}{{end}}
<line x1="0" x2="720" y1="240" y2="240" stroke="#888"/>
{{range .Ticks}}<text x="{{printf "%.1f" .X}}" y="{{.Y}}" text-anchor="middle">{{.Text}}</text>{{end}}
{{if .HasTau}}<line x1="{{printf "%.1f" .TauX}}" x2="{{printf "%.1f" .TauX}}" y1="-8" y2="240" stroke="#222" stroke-dasharray="4 3"/><text x="{{printf "%.1f" .TauX}}" y="0" dx="4">τ</text>{{end}}
</svg>
<p>ΔPPL = PPL(without) − PPL(with); the outermost bars also hold the lowest and the highest percent.</p>
<h2>Labels by corpus</h2>
<table><tr><th>corpus<th class="n">HELPFUL<th class="n">NOT_HELPFUL<th class="n">discarded<th></tr>
{{range .Corpora}}<tr><td>{{.Corpus}}<td class="n">{{.Helpful}}<td class="n">{{.NotHelpful}}<td class="n">{{.Discarded}}<td><svg width="400" height="16">{{range .Bars}}<rect class="{{.Class}}" x="{{printf "%.1f" .X}}" width="{{printf "%.1f" .W}}" height="{{.H}}"/>{{end}}</svg></tr>
{{end}}</table>
<h2>Cells of the label table</h2>
<table><tr><th>without d<th>with d<th>ΔPPL<th>label<th class="n">pairs</tr>
{{range .Cells}}<tr><td>{{.Without}}<td>{{.With}}<td>{{.Reach}}<td>{{.Label}}<td class="n">{{.N}}</tr>
{{end}}</table>
{{if .Unscored}}<h3>Pairs without ΔPPL</h3><table>{{range $why, $n := .Unscored}}<tr><td>{{$why}}<td class="n">{{$n}}</tr>{{end}}</table>{{end}}
<h2>Agreement</h2>
<p>Where a snippet changes the answer, does ΔPPL ≥ τ go with a change to the right one? {{.Agree}}.</p>
{{if .Compare}}<p>With the other label file, over the pairs that both hold: {{.Compare}}.</p>{{end}}
</body></html>
`))
