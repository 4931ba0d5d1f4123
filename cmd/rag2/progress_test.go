package main

import (
	"testing"
	"time"
)

func TestProgressLine(t *testing.T) {
	var p progress
	begin := time.Now()
	p.update("pairs", 800, 1000) // a journal held 800
	p.start, p.note = begin, "5 tokens read"
	for done, want := range map[int]string{
		800: "pairs: 800 of 1000, 5 tokens read", 810: "pairs: 810 of 1000, about 6m20s left, 5 tokens read",
		900: "pairs: 900 of 1000, about 20s left, 5 tokens read", 1000: "pairs: 1000 of 1000, about 0s left, 5 tokens read",
	} {
		if got := p.line(done, 1000, begin.Add(20*time.Second)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	p.note = ""
	if got := p.line(900, 0, begin); got != "pairs: 900" {
		t.Errorf("without a total: %q", got)
	}
}
