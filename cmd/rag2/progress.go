package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how a long job gets on: a bar on a terminal, a line every ten
// seconds elsewhere. It writes to standard error only.
type progress struct {
	bar   *progressbar.ProgressBar
	step  string
	note  string // shown behind the step, may change
	first int    // done at the first update, which a resumed job does not begin with 0
	total int
	start time.Time
	last  time.Time
}

func onTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }

// update shows a step's state; total 0 = not known.
func (p *progress) update(step string, done, total int) {
	now := time.Now()
	if step != p.step {
		p.done()
		p.step, p.start, p.last, p.first, p.total = step, now, now, done, total
		if onTerminal() {
			n := total
			if n == 0 {
				n = -1
			}
			p.bar = progressbar.NewOptions(n, progressbar.OptionSetDescription(step), progressbar.OptionSetWriter(os.Stderr),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetPredictTime(true),
				progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		}
	}
	if p.bar != nil {
		if total != p.total && total > 0 {
			p.bar.ChangeMax(total)
			p.total = total
		}
		if p.note != "" {
			p.bar.Describe(step + ", " + p.note)
		}
		_ = p.bar.Set(done)
		return
	}
	if now.Sub(p.last) < 10*time.Second {
		return
	}
	p.last = now
	fmt.Fprintln(os.Stderr, p.line(done, total, now))
}

// line is the state in words. The time that is left follows from what was done since the
// first update: what a journal or a checkpoint held then took no time.
func (p *progress) line(done, total int, now time.Time) string {
	line := fmt.Sprintf("%s: %d", p.step, done)
	if total > 0 {
		line += fmt.Sprintf(" of %d", total)
	}
	if total > 0 && done > p.first {
		left := time.Duration(float64(now.Sub(p.start)) / float64(done-p.first) * float64(total-done)).Round(time.Second)
		line += fmt.Sprintf(", about %s left", left)
	}
	if p.note != "" {
		line += ", " + p.note
	}
	return line
}

// done clears the bar.
func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
	}
	p.step = ""
}
