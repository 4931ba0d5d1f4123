package pipeline

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteAnswer prints an answer for people: text, citations, state, notes.
func WriteAnswer(w io.Writer, a *Answer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s\n\n", a.Text)
	if a.Option != "" {
		fmt.Fprintf(b, "Answer: %s) %s\n", a.Option, a.OptionText)
	}
	fmt.Fprintf(b, "State: %s\n", a.State)
	if len(a.Probabilities) > 0 {
		fmt.Fprint(b, "Option probabilities (uncalibrated):")
		for _, o := range a.Question.Options {
			fmt.Fprintf(b, " %s %.3f", o.Key, a.Probabilities[o.Key])
		}
		fmt.Fprintln(b)
	}
	for _, n := range a.Notes {
		fmt.Fprintf(b, "Note: %s\n", n)
	}
	if len(a.Citations) > 0 {
		fmt.Fprintln(b, "\nSources:")
	}
	kept := a.Trace.Kept()
	for _, c := range a.Citations {
		s := kept[c.N-1]
		by := "cited by the model"
		if c.By == "attribution" {
			by = fmt.Sprintf("by similarity, cosine %.2f", c.Cosine)
		}
		fmt.Fprintf(b, "  [%d] %s (%s%s) — %s\n", c.N, orText(s.Title, s.ID), s.ID, year(s.Year), by)
		if s.URL != "" {
			fmt.Fprintf(b, "      %s\n", s.URL)
		}
	}
	return b.Flush()
}

func orText(s, or string) string {
	if s == "" {
		return or
	}
	return s
}

func year(y int) string {
	if y == 0 {
		return ""
	}
	return fmt.Sprintf(", %d", y)
}

// WriteTrace prints stages, corpora and snippets for people.
func WriteTrace(w io.Writer, t *Trace) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "STAGE\tMS\tIN\tOUT\tNOTE")
	for _, s := range t.Stages {
		note := s.Note
		if s.Skipped != "" {
			note = "skipped: " + s.Skipped
		}
		if s.Cut > 0 {
			note = strings.TrimPrefix(fmt.Sprintf("%s; %d inputs truncated", note, s.Cut), "; ")
		}
		fmt.Fprintf(tw, "%s\t%.1f\t%d\t%d\t%s\n", s.Name, s.Millis, s.In, s.Out, note)
	}
	fmt.Fprintf(tw, "total\t%.1f\t\t\tprompts %s\n", t.Millis, t.Prompts)
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nQuery (%s): %s\n\n", t.QueryKind, t.Query)
	fmt.Fprintln(tw, "CORPUS\tPASSAGES\tASKED\tGOT\tMS\tNOTE")
	for _, c := range t.Corpora {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%.1f\t%s\n", c.Name, c.Passages, c.Asked, c.Got, c.Millis, c.Note)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintln(tw, "N\tSCORE\tRERANK\tHELPFUL\tPASSAGE\tTITLE\tDROPPED")
	for _, s := range t.Snippets {
		n, rr, vv := "-", "-", "-"
		if s.N > 0 {
			n = fmt.Sprint(s.N)
		}
		if s.Rerank != nil {
			rr = fmt.Sprintf("%.3f", *s.Rerank)
		}
		if s.Verdict != nil {
			vv = fmt.Sprintf("%.3f", s.Verdict.P)
		}
		fmt.Fprintf(tw, "%s\t%.3f\t%s\t%s\t%s\t%s\t%s\n", n, s.Retrieval, rr, vv, s.ID, short(s.Title, 60), s.Dropped)
	}
	return tw.Flush()
}

// short cuts a text at n runes.
func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
