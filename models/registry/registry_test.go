package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rag2/models/hub"
	"rag2/models/hub/hubtest"
	"rag2/tensor"
)

const tinyBERT = "../../testdata/bert/tiny"

// repoFiles are the files of a directory as those of a repository.
func repoFiles(t *testing.T, repo, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, n := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		out[repo+"/"+n] = b
	}
	out[repo+"/pytorch_model.bin"] = make([]byte, 5000)
	out[repo+"/onnx/config.json"] = []byte("{}")
	return out
}

func hubClient(t *testing.T, h *hubtest.Hub) *hub.Client {
	t.Helper()
	c, err := hub.New(hub.Options{Endpoint: h.URL, CacheDir: t.TempDir(), Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPullListResolveVerify(t *testing.T) {
	ctx := context.Background()
	files := map[string][]byte{}
	for _, p := range []string{"Query-Encoder", "Article-Encoder", "Cross-Encoder"} {
		for k, v := range repoFiles(t, "ncbi/MedCPT-"+p, tinyBERT) {
			files[k] = v
		}
	}
	h := hubtest.New(t, files, hubtest.Faults{Redirect: true})
	s := Store{Dir: t.TempDir(), Hub: hubClient(t, h)}
	if _, err := s.Resolve("medcpt-query"); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "rag2 models pull medcpt-query") {
		t.Errorf("before the pull: %v", err)
	}
	snaps, err := s.Pull(ctx, "MedCPT", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(snaps) != 3 || len(snaps[0].Files) != 3 {
		t.Errorf("%d snapshots, files %v", len(snaps), snaps[0].Files)
	}
	n := len(h.Ranges())
	if _, err := s.Pull(ctx, "medcpt", false, nil); err != nil || len(h.Ranges()) != n {
		t.Errorf("second pull: %v", err)
	}
	ready := 0
	for _, st := range s.List() {
		if st.Ready() {
			ready++
			if st.OnDisk == 0 || st.Format != "safetensors" || st.Licence == "" {
				t.Errorf("%+v", st)
			}
		}
	}
	if ready != 3 {
		t.Errorf("%d models are ready", ready)
	}
	spec, err := s.EncoderSpec("medcpt")
	if err != nil || !spec.PairArticles || spec.Pooling != "cls" || spec.QueryTokens != 512 || spec.QueryDir == spec.ArticleDir {
		t.Errorf("%+v, %v", spec, err)
	}
	if _, err := s.EncoderSpec("medcpt-cross"); err == nil {
		t.Error("a cross-encoder passes as an encoder")
	}
	e, err := tensor.Open("go", tensor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r, err := s.Verify(ctx, e, "medcpt-query")
	if err != nil || !r.OK() || len(r.Steps) != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	// Same shapes, other weights than MedCPT's: the published values must not come out.
	if r, err = s.Verify(ctx, e, "medcpt-cross"); err != nil || r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
	last := r.Steps[len(r.Steps)-1]
	if last.Name != "golden values" || last.OK {
		t.Errorf("%+v", last)
	}
	// A damaged file is told.
	dir, err := s.Resolve("medcpt-query")
	if err != nil {
		t.Fatal(err)
	}
	blob, err := filepath.EvalSymlinks(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(blob, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Verify(ctx, nil, "medcpt-query"); err != nil || r.OK() || r.Steps[1].Name != "hashes" || r.Steps[1].OK {
		t.Errorf("damaged: %+v, %v", r, err)
	}
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve("medcpt-query"); !errors.Is(err, ErrIncomplete) {
		t.Errorf("without weights: %v", err)
	}
}

func TestPlainDirectoriesAndNames(t *testing.T) {
	dir := t.TempDir()
	bert, err := filepath.Abs(tinyBERT)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bert, filepath.Join(dir, "minilm")); err != nil {
		t.Fatal(err)
	}
	s := Store{Dir: dir}
	if got, err := s.Resolve("minilm"); err != nil || got != filepath.Join(dir, "minilm") {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.Resolve(bert); err != nil || got != bert {
		t.Errorf("%q, %v", got, err)
	}
	for _, n := range []string{"", "medcpt", "nothing", "../x", "a/b"} {
		if _, err := s.Resolve(n); err == nil {
			t.Errorf("%q resolves", n)
		}
	}
	if _, err := s.Pull(context.Background(), "minilm", false, nil); err == nil {
		t.Error("pull without a hub")
	}
	for _, n := range Names() {
		if _, err := Find(n); err != nil {
			t.Error(err)
		}
	}
	if _, err := Find("gpt-5"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "flan-t5-large") {
		t.Errorf("%v", err)
	}
	h := hubtest.New(t, map[string][]byte{"a/b/config.json": []byte("{}"), "a/b/pytorch_model.bin": make([]byte, 2000), "a/b/tokenizer.json": []byte("{}")}, hubtest.Faults{})
	s.Hub = hubClient(t, h)
	if _, err := s.Pull(context.Background(), "a/b", false, nil); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a repository without safetensors: %v", err)
	}
}

// TestRealModels verifies every model that is in RAG2_MODELS_DIR, MedCPT's published
// values included.
func TestRealModels(t *testing.T) {
	dir := os.Getenv("RAG2_MODELS_DIR")
	if dir == "" || testing.Short() {
		t.Skip("RAG2_MODELS_DIR is not set, or -short: no real weights to verify")
	}
	e, err := tensor.Open("xla:cpu", tensor.Options{})
	if err != nil {
		t.Skip(err)
	}
	defer e.Close()
	s := Store{Dir: dir}
	n := 0
	for _, st := range s.List() {
		if !st.Ready() {
			continue
		}
		n++
		r, err := s.Verify(context.Background(), e, st.Name)
		if err != nil || !r.OK() {
			t.Errorf("%+v, %v", r, err)
		}
		t.Logf("%+v", r)
	}
	if n == 0 {
		t.Errorf("%s holds no model that is known", dir)
	}
}
