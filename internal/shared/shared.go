// Package shared finds the real data that some tests use, which lie outside the
// repository.
package shared

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Data is the path of a file or folder of the shared data; the test is skipped,
// saying so, where it is absent. RAG2_SHARED names the folder; by default it is
// ../shared beside the repository.
func Data(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("RAG2_SHARED")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..", "..", "shared")
	}
	p := filepath.Join(dir, "data", name)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("shared data %s is not here", name)
	}
	return p
}
