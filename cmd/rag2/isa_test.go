package main

import (
	"strings"
	"testing"
)

// A level that does not exist, or that the CPU lacks, is not passed over in silence.
func TestWrongInstructionSet(t *testing.T) {
	if r := call(t, []string{"RAG2_ISA=nope"}, "", "doctor"); r.code != 2 || !strings.Contains(r.err, "RAG2_ISA") {
		t.Errorf("%+v", r)
	}
	if r := call(t, []string{"RAG2_ISA=generic"}, "", "doctor"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}
