package simd

import (
	"os"
	"testing"
)

// eachLevel runs f at every level that this CPU has, or at the one that RAG2_ISA names.
func eachLevel(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	was := Level
	defer useLevel(was)
	if LevelError != nil {
		t.Fatal(LevelError)
	}
	for _, l := range Supported() {
		if os.Getenv("RAG2_ISA") == "" || l == was {
			useLevel(l)
			t.Run(l.String(), f)
		}
	}
}
