package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestMain lets the test binary be the program.
func TestMain(m *testing.M) {
	if os.Getenv("RAG2_TEST_MAIN") == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

const (
	demo    = "../../testdata/demo"
	tiny    = "../../testdata/bert/tiny"
	tinyT5  = "../../testdata/t5/flan"
	tinyLLM = "../../testdata/llama/llama3"
)

// result is what a call of the program gave.
type result struct {
	out, err string
	code     int
}

func call(t testing.TB, env []string, stdin string, args ...string) result {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append([]string{"RAG2_TEST_MAIN=1", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	c.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if strings.Contains(errs.String(), "goroutine ") {
		t.Fatalf("%v panicked: %s", args, errs.String())
	}
	return result{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// newHome makes a home with one indexed corpus of tiny vectors.
func newHome(t testing.TB) []string {
	t.Helper()
	env := []string{"RAG2_HOME=" + t.TempDir(), "RAG2_ENCODER=" + abs(t, tiny), "RAG2_ENGINE=native"}
	for _, args := range [][]string{{"corpus", "add", "pubmed", demo + "/pubmed.xml"}, {"index", "build"}} {
		if r := call(t, env, "", args...); r.code != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
	}
	return env
}

func abs(t testing.TB, p string) string {
	t.Helper()
	a, err := filepath.Abs(p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// server is a language model that takes its time.
func server(t testing.TB, delay time.Duration) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"model":"m","choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"It is so [1].\nThe answer is (B)."}}]}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func damaged(t *testing.T, from string, change func(string, []byte) []byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		p := filepath.Join(dir, e.Name())
		b, err := os.ReadFile(p)
		if err == nil {
			err = os.WriteFile(p, change(e.Name(), b), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func cutWeights(name string, b []byte) []byte {
	if strings.HasSuffix(name, ".safetensors") {
		return b[:len(b)-100]
	}
	return b
}

// The bad inputs that people meet, with the exit code and what the message must name.
func TestBadInput(t *testing.T) {
	env := newHome(t)
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	fmt.Fprint(g, "<PubmedArticleSet>"+strings.Repeat("<PubmedArticle/>", 1000)+"</PubmedArticleSet>")
	g.Close()
	gguf, err := os.ReadFile("../../testdata/weights/blocks.gguf")
	if err != nil {
		t.Fatal(err)
	}
	ints := damaged(t, tiny, func(name string, b []byte) []byte {
		if strings.HasSuffix(name, ".safetensors") {
			return bytes.ReplaceAll(b, []byte(`"F32"`), []byte(`"I32"`))
		}
		return b
	})
	unit := server(t, 0)
	q := "Which? A) Iron B) Vitamin B12"
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no command", []string{"nonsense"}, 2, "nonsense"},
		{"unknown flag", []string{"ask", q, "--fast"}, 2, "--fast"},
		{"bad number", []string{"ask", q, "--k", "x"}, 2, "--k"},
		{"missing encoder", []string{"search", q, "--encoder", "no-such-model"}, 1, "no-such-model"},
		{"missing encoder directory", []string{"search", q, "--encoder", "/nowhere/model"}, 1, "/nowhere/model"},
		{"unknown subcommand", []string{"corpus", "nonsense"}, 2, "nonsense"},
		{"wrong type of weights", []string{"search", q, "--encoder", ints}, 1, "I32"},
		{"truncated safetensors", []string{"search", q, "--encoder", damaged(t, tiny, cutWeights)}, 1, "model.safetensors"},
		{"truncated GGUF", []string{"ask", q, "--llm", write("cut.gguf", gguf[:len(gguf)-64])}, 1, "cut.gguf"},
		{"GGUF that is none", []string{"ask", q, "--llm", write("none.gguf", []byte("<html>not found</html>"))}, 1, "none.gguf"},
		{"another encoder than the index's", []string{"search", q, "--encoder", damaged(t, tiny, func(n string, b []byte) []byte {
			if n == "model.safetensors" {
				b[len(b)-1] ^= 1
			}
			return b
		})}, 1, "another model"},
		{"truncated gz", []string{"corpus", "add", "x", write("cut.xml.gz", z.Bytes()[:z.Len()/2])}, 1, "cut.xml.gz"},
		{"wrong format", []string{"corpus", "add", "x", demo + "/pmc.xml", "--format", "pubmed"}, 1, "pmc.xml"},
		{"unknown format", []string{"corpus", "add", "x", demo + "/pmc.xml", "--format", "pdf"}, 2, "pdf"},
		{"no file", []string{"corpus", "add", "x"}, 2, "arg"},
		{"absent file", []string{"corpus", "add", "x", "/nowhere.xml"}, 1, "/nowhere.xml"},
		{"bad corpus name", []string{"corpus", "add", "../x", demo + "/pmc.xml"}, 1, "../x"},
		{"unknown corpus", []string{"search", q, "--corpora", "pubmed,nowhere"}, 1, `"nowhere"`},
		{"unknown corpus to index", []string{"index", "build", "nowhere"}, 1, `"nowhere"`},
		{"empty question", []string{"search", ""}, 2, "empty"},
		{"no question", []string{"ask", "--llm", abs(t, tinyLLM)}, 2, "no question"},
		{"no language model", []string{"ask", q}, 2, "--llm"},
		{"two language models", []string{"ask", q, "--llm", abs(t, tinyLLM), "--llm-url", unit, "--llm-model", "m"}, 2, "exclude"},
		{"bad query kind", []string{"search", q, "--query", "poem"}, 2, "poem"},
		{"rationale without a model", []string{"search", q, "--query", "rationale"}, 1, "language model"},
		{"endpoint down", []string{"ask", q, "--llm-url", down.URL, "--llm-model", "m", "--llm-retries", "0"}, 1, "not available"},
		{"endpoint slow", []string{"ask", q, "--llm-url", server(t, 20*time.Second), "--llm-model", "m", "--llm-retries", "0", "--llm-timeout", "100ms"}, 1, "within 100ms"},
		{"unknown engine", []string{"search", q, "--engine", "gpu"}, 1, "gpu"},
		{"bogus plugin", []string{"search", q, "--engine", "xla:cpu", "--pjrt-plugin", "/nowhere/plugin.so"}, 1, "/nowhere/plugin.so"},
		{"questions that are none", []string{"search", "--file", write("q.jsonl", []byte("{\"question\":\"a\"}\n{\"stem\":1}\n"))}, 1, "q.jsonl:2"},
		{"texts without text", []string{"bench", "quality", "--passages", write("t.jsonl", []byte("{\"text\":\"a\"}\n{\"text\":\"\"}\n")), "--queries", demo + "/questions.jsonl"}, 1, "t.jsonl:2"},
		{"nothing to compare", []string{"bench", "quality", "--passages", demo + "/questions.jsonl"}, 2, "--queries"},
		{"bad option", []string{"search", "Which?", "--option", "Iron"}, 2, "KEY=TEXT"},
		{"unknown model to pull", []string{"models", "pull", "gpt-9"}, 2, "gpt-9"},
		{"pull offline", []string{"models", "pull", "minilm", "--offline"}, 1, "offline"},
		{"config key", []string{"search", q, "--config", write("c.toml", []byte("colour = 1\n"))}, 2, "colour"},
		{"config syntax", []string{"search", q, "--config", write("d.toml", []byte("k = = 1\n"))}, 2, "d.toml"},
		{"config value", []string{"search", q, "--config", write("e.toml", []byte("k = \"many\"\n"))}, 2, "many"},
		{"absent config", []string{"search", q, "--config", "/nowhere.toml"}, 2, "/nowhere.toml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := call(t, env, "", c.args...)
			if r.code != c.code || !strings.Contains(r.err, c.says) || r.out != "" {
				t.Errorf("exit %d, want %d; stderr %q, want %q; stdout %q", r.code, c.code, r.err, c.says, r.out)
			}
		})
	}
}

func TestMainJob(t *testing.T) {
	env := newHome(t)
	ask := func(args ...string) (a struct {
		State  string
		Option string
		Trace  struct {
			Settings struct {
				K int `json:"final_k"`
			}
			Snippets []struct{ N int }
			Corpora  []struct{ Asked, Got int }
		}
	}) {
		t.Helper()
		r := call(t, env, "", append([]string{"ask", "--json", "--llm-url", server(t, 0), "--llm-model", "m"}, args...)...)
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		if err := json.Unmarshal([]byte(r.out), &a); err != nil {
			t.Fatalf("%v: %s", err, r.out)
		}
		return a
	}
	if a := ask("Which? A) Iron B) Vitamin B12"); a.State != "supported" || a.Option != "B" || a.Trace.Corpora[0].Got != 8 {
		t.Errorf("%+v", a)
	}
	// k larger than the corpus gives all of it.
	if a := ask("Which?", "--option", "a=Iron", "--option", "b=B12", "--k", "500"); a.Trace.Corpora[0].Asked != 500 || a.Trace.Corpora[0].Got != 62 {
		t.Errorf("%+v", a.Trace.Corpora)
	}
	r := call(t, env, "Which is low? A) Iron B) Vitamin B12\n", "ask", "-", "--llm-url", server(t, 0), "--llm-model", "m", "--trace")
	if r.code != 0 || !strings.Contains(r.out, "State: supported") || !strings.Contains(r.out, "skipped: no cross-encoder") {
		t.Errorf("%+v", r)
	}
	r = call(t, env, "", "ask", "--file", demo+"/questions.jsonl", "--first", "3", "--llm-url", server(t, 0), "--llm-model", "m", "--json")
	if r.code != 0 || strings.Count(r.out, "\n") != 3 {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"corpus", "list"}, {"corpus", "verify"}, {"index", "inspect"}, {"index", "verify", "pubmed"}, {"models", "list"}, {"models", "verify", abs(t, tiny)}, {"search", "Which?"}} {
		if r := call(t, env, "", args...); r.code != 0 || len(r.out) == 0 {
			t.Errorf("%v: %+v", args, r)
		}
		r := call(t, env, "", append(args, "--json")...)
		if r.code != 0 || !json.Valid([]byte(r.out)) {
			t.Errorf("%v --json: %+v", args, r)
		}
	}
}

// A native language model from end to end, with option probabilities.
func TestNativeModel(t *testing.T) {
	env := newHome(t)
	r := call(t, env, "", "ask", "Low? A) Iron B) Copper", "--llm", abs(t, tinyLLM), "--answer-mode", "logprob", "--query", "question", "--k", "1", "--json")
	var a struct {
		Option        string
		Probabilities map[string]float64 `json:"option_probabilities"`
	}
	if r.code != 0 || json.Unmarshal([]byte(r.out), &a) != nil || a.Option == "" {
		t.Fatalf("%+v", r)
	}
	if s := a.Probabilities["A"] + a.Probabilities["B"]; s < 0.999 || s > 1.001 || a.Probabilities[a.Option] < 0.5 {
		t.Errorf("%+v", a)
	}
}

// Damage to a corpus is found and named.
func TestVerifyFindsDamage(t *testing.T) {
	env := newHome(t)
	files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(env[0], "RAG2_HOME="), "corpora", "pubmed", "g-*", "*"))
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(b)
		bad[len(bad)/2] ^= 0x40
		if err := os.WriteFile(f, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		c, x := call(t, env, "", "corpus", "verify"), call(t, env, "", "index", "verify")
		if c.code == 0 && x.code == 0 {
			t.Errorf("a flipped bit in %s is not found", filepath.Base(f))
		}
		if err := os.WriteFile(f, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r := call(t, env, "", "corpus", "verify", "--json"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}

// Flags win over the environment, the environment over the file.
func TestSettings(t *testing.T) {
	env := newHome(t)
	cfg := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(cfg, []byte("k = 3\nquery = \"question\"\ncorpora = [\"pubmed\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	k := func(env []string, args ...string) int {
		t.Helper()
		r := call(t, env, "", append([]string{"search", "Which?", "--json"}, args...)...)
		var s struct {
			Settings struct {
				K int `json:"final_k"`
			}
		}
		if err := json.Unmarshal([]byte(r.out), &s); err != nil {
			t.Fatalf("%+v", r)
		}
		return s.Settings.K
	}
	env = append(env, "RAG2_CONFIG="+cfg)
	if got := k(env); got != 3 {
		t.Errorf("file: %d", got)
	}
	env = append(env, "RAG2_K=4")
	if got := k(env); got != 4 {
		t.Errorf("environment: %d", got)
	}
	if got := k(env, "--k", "5"); got != 5 {
		t.Errorf("flag: %d", got)
	}
}

// Every command and flag says what it is for, and no two flags of a name mean another thing.
func TestHelp(t *testing.T) {
	usage := map[string]string{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" && c.Name() != "help" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", c.CommandPath(), f.Name)
			}
			if old, ok := usage[f.Name]; ok && old != f.Usage {
				t.Errorf("--%s means %q and %q", f.Name, old, f.Usage)
			}
			usage[f.Name] = f.Usage
		})
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(newRoot())
}
