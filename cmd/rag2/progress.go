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
	start time.Time
	last  time.Time
}

func onTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }

// update shows a step's state; total 0 = not known.
func (p *progress) update(step string, done, total int) {
	now := time.Now()
	if step != p.step {
		p.done()
		p.step, p.start, p.last = step, now, now
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
	line := fmt.Sprintf("%s: %d", step, done)
	if total > 0 && done > 0 {
		left := time.Duration(float64(now.Sub(p.start)) / float64(done) * float64(total-done)).Round(time.Second)
		line += fmt.Sprintf(" of %d, about %s left", total, left)
	}
	if p.note != "" {
		line += ", " + p.note
	}
	fmt.Fprintln(os.Stderr, line)
}

// done clears the bar.
func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
	}
	p.step = ""
}
