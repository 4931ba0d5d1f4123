package main

import (
	"os/exec"
	"strings"
	"testing"
)

// allowed says which rooms a room may import, beside internal/ and itself.
var allowed = map[string][]string{
	"tensor/simd":    {},
	"tensor/weights": {},
	"tensor/native":  {"tensor/simd", "tensor/weights", "tensor", "tensor/exec"},
	"tensor/exec":    {"tensor", "tensor/weights"},
	"tensor":         {},
	"models":         {"tensor", "tensor/simd", "tensor/weights", "tensor/native", "tensor/exec"},
	"hnsw":           {"tensor/simd"},
	"corpusio":       {},
	"pipeline":       {"models", "hnsw", "corpusio", "tensor", "tensor/native"},
	"cmd":            {"pipeline", "models", "hnsw", "corpusio", "tensor", "tensor/native", "tensor/simd"},
	"bench":          {"pipeline", "models", "hnsw", "corpusio", "tensor", "tensor/native", "tensor/simd", "tensor/weights"},
	"internal":       {},
}

// room is the longest key of allowed that a package lies in.
func room(pkg string) string {
	pkg = strings.TrimPrefix(pkg, "rag2/")
	best := ""
	for r := range allowed {
		if (pkg == r || strings.HasPrefix(pkg, r+"/")) && len(r) > len(best) {
			best = r
		}
	}
	return best
}

// Data flows one way: what a package may import is the table above; GoMLX is used by
// tensor, models and bench, HTTP by the language model client, the hub, the server and
// the program.
func TestImportDirection(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "rag2/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) < 20 {
		t.Fatalf("only %d packages listed", len(lines))
	}
	for _, line := range lines {
		f := strings.Fields(line)
		from := room(f[0])
		if from == "" {
			t.Errorf("%s lies in no room", f[0])
			continue
		}
		for _, imp := range f[1:] {
			switch {
			case strings.HasPrefix(imp, "rag2/"):
				to := room(imp)
				ok := to == from || to == "internal"
				for _, a := range allowed[from] {
					ok = ok || to == a
				}
				if !ok {
					t.Errorf("%s imports %s", f[0], imp)
				}
			case strings.HasPrefix(imp, "github.com/gomlx/"):
				if from != "models" && from != "bench" && !strings.HasPrefix(from, "tensor") {
					t.Errorf("%s imports %s", f[0], imp)
				}
			case imp == "net/http":
				p := strings.TrimPrefix(f[0], "rag2/")
				if p != "pipeline" && p != "pipeline/llm" && p != "pipeline/server" && !strings.HasPrefix(p, "models/hub") && from != "cmd" {
					t.Errorf("%s imports %s", f[0], imp)
				}
			}
		}
	}
}
