package tune

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"text/tabwriter"

	"rag2/internal/plot"
)

// JudgeScores are the scores of one of several filters.
type JudgeScores struct {
	Judge string `json:"judge"`
	FilterScores
}

// String is the figure with its interval.
func (i Interval) String() string { return fmt.Sprintf("%.3f [%.3f, %.3f]", i.Value, i.Low, i.High) }

// WriteScores prints a table.
func WriteScores(w io.Writer, all []JudgeScores) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintf(w, "%d pairs of %d questions, %d of them helpful; always the more frequent label: %s\n", all[0].Pairs, all[0].Questions, all[0].Helpful, all[0].Majority)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JUDGE\tTHRESHOLD\tACCURACY\tGAIN\tF1 HELPFUL\tF1 NOT HELPFUL\tAUROC\tECE")
	for _, s := range all {
		fmt.Fprintf(t, "%s\t%.3f\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Judge, s.Threshold, s.Accuracy, s.Gain, s.F1Helpful, s.F1NotHelpful, s.AUROC, s.ECE)
	}
	return t.Flush()
}

// Report is a page with the table and a reliability diagram for each judge, one HTML
// document without outside parts.
func Report(title string, all []JudgeScores) ([]byte, error) {
	type judge struct {
		JudgeScores
		Diagram template.HTML
	}
	var js []judge
	for _, s := range all {
		points := plot.Series{Name: "share of helpful pairs", Dots: true}
		for _, b := range s.Bins {
			if b.N > 0 {
				points.X, points.Y = append(points.X, b.P), append(points.Y, b.Helpful)
			}
		}
		c := plot.Chart{Title: s.Judge, XLabel: "probability of HELPFUL, mean of a bin", YLabel: "helpful", MaxX: 1, MaxY: 1, Diagonal: true, Series: []plot.Series{points}}
		js = append(js, judge{s, template.HTML(c.SVG())}) // escaped by package plot
	}
	var b bytes.Buffer
	if err := page.Execute(&b, map[string]any{"Title": title, "Judges": js}); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return b.Bytes(), nil
}

// WriteAnswers prints a table.
func WriteAnswers(w io.Writer, r AnswerComparison) error {
	fmt.Fprintf(w, "%d questions answered by %s; gains are paired with the answers without a filter\n", r.Questions, r.Model)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ARM\tTHRESHOLD\tKEPT\tWITHOUT\tACCURACY\tGAIN\tMENDED\tBROKEN\tUNANSWERED\tP(RIGHT)\tGAIN")
	for _, a := range r.Arms {
		threshold, p, gain := "", "", ""
		if a.Threshold != nil {
			threshold = fmt.Sprintf("%.3f", *a.Threshold)
		}
		if a.PGold != nil {
			p, gain = a.PGold.String(), a.GainPGold.String()
		}
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%d\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", a.Arm, threshold, a.Kept, a.Without, a.Accuracy, a.GainFilter, a.Mended, a.Broken, a.Unanswered, p, gain)
	}
	return t.Flush()
}

// AnswerReport is a page with the table and the options' accuracy of each arm, one HTML
// document without outside parts.
func AnswerReport(title string, r AnswerComparison) ([]byte, error) {
	var b bytes.Buffer
	if err := answerPage.Execute(&b, map[string]any{"Title": title, "R": r}); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return b.Bytes(), nil
}

var answerPage = template.Must(template.New("answers").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Filters and the answers to {{.Title}}</title>
` + style + `</head><body>
<h1>Filters and the answers to {{.Title}}</h1>
<p>{{.R.Questions}} questions, answered by {{.R.Model}}. In brackets: 95 % bootstrap over questions; gains are paired by question. An unanswered question counts as wrong.</p>
<table><tr><th>evidence<th>threshold<th>snippets kept<th>questions without<th>accuracy<th>gain over no filter<th>gain over no evidence<th>mended<th>broken<th>unanswered<th>probability of the right option<th>gain over no filter</tr>
{{range .R.Arms}}<tr><td>{{.Arm}}<td>{{with .Threshold}}{{printf "%.3f" .}}{{end}}<td>{{printf "%.2f" .Kept}}<td>{{.Without}}<td>{{.Accuracy}}<td>{{.GainFilter}}<td>{{.GainEvidence}}<td>{{.Mended}}<td>{{.Broken}}<td>{{.Unanswered}}<td>{{with .PGold}}{{.}}{{end}}<td>{{with .GainPGold}}{{.}}{{end}}</tr>
{{end}}</table>
<p>Mended: wrong without a filter and right with it; broken: the other way round.</p>
</body></html>
`))

const style = `<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left}svg{max-width:720px}
</style>
`

var page = template.Must(template.New("judges").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Filters on {{.Title}}</title>
` + style + `</head><body>
<h1>Filters on {{.Title}}</h1>
{{with index .Judges 0}}<p>{{.Pairs}} pairs of {{.Questions}} questions, {{.Helpful}} of them helpful. Always saying the more frequent label is right for {{.Majority}}.
In brackets: 95 % bootstrap over questions.</p>{{end}}
<table><tr><th>judge<th>threshold<th>accuracy<th>gain over the majority<th>F1 HELPFUL<th>F1 NOT_HELPFUL<th>AUROC<th>ECE</tr>
{{range .Judges}}<tr><td>{{.Judge}}<td>{{printf "%.3f" .Threshold}}<td>{{.Accuracy}}<td>{{.Gain}}<td>{{.F1Helpful}}<td>{{.F1NotHelpful}}<td>{{.AUROC}}<td>{{.ECE}}</tr>
{{end}}</table>
<h2>Reliability</h2>
{{range .Judges}}{{.Diagram}}{{end}}
</body></html>
`))
