package simd

import "testing"

// eachLevel runs f at every level that this CPU has.
func eachLevel(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	was := Level
	defer useLevel(was)
	for _, l := range Supported() {
		useLevel(l)
		t.Run(l.String(), f)
	}
}
