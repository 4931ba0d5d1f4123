package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rag2/models/hub/hubtest"
)

const repo = "acme/tiny-model"

func content(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func files() map[string][]byte {
	return map[string][]byte{
		repo + "/config.json":              []byte(`{"model_type":"bert"}`),
		repo + "/empty.txt":                nil,
		repo + "/model.safetensors":        content(100_000),
		repo + "/1_Pooling/config.json":    []byte(`{}`),
		repo + "/onnx/model with é.bin":    content(3000),
		repo + "/tokenizer.json":           content(50_001),
		"acme/other/model.safetensors":     content(1),
		repo + "/unwanted/pytorch_big.bin": content(2000),
	}
}

var want = []string{"*.json", "model.safetensors", "empty.txt", "onnx/*"}

// client makes one that does not really pause; pauses are collected.
func client(t *testing.T, h *hubtest.Hub, o Options) (*Client, *[]time.Duration) {
	t.Helper()
	o.Endpoint = h.URL
	if o.CacheDir == "" {
		o.CacheDir = t.TempDir()
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var pauses []time.Duration
	ch := make(chan time.Duration, 10000)
	c.sleep = func(ctx context.Context, d time.Duration) error { ch <- d; return context.Cause(ctx) }
	t.Cleanup(func() {
		close(ch)
		for d := range ch {
			pauses = append(pauses, d)
		}
	})
	return c, &pauses
}

func checkSnapshot(t *testing.T, s *Snapshot, h *hubtest.Hub) {
	t.Helper()
	if len(s.Files) != 6 {
		t.Errorf("%d files: %v", len(s.Files), s.Files)
	}
	for _, f := range s.Files {
		b, err := os.ReadFile(filepath.Join(s.Dir, f.Path))
		if err != nil || !bytes.Equal(b, h.Files[repo+"/"+f.Path]) {
			t.Errorf("%s: %d bytes, %v", f.Path, len(b), err)
		}
	}
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
}

func TestPullThroughFaults(t *testing.T) {
	for name, f := range map[string]hubtest.Faults{
		"none":                  {},
		"cut at every 10 %":     {CutEvery: 10},
		"cut, no ranges, large": {CutEvery: 60, NoRange: true, Busy: 1},
		"redirect and cut":      {CutEvery: 10, Redirect: true, Token: "hf_secret"},
		"429 twice":             {Busy: 2, RetryAfter: "7"},
		"wrong bytes once":      {WrongBytes: 1},
		"pages":                 {PageSize: 2},
		"mirror":                {NoRevision: true},
		"token":                 {Token: "hf_secret"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hubtest.New(t, files(), f)
			if f.NoRange { // such a file can never arrive in pieces
				f.CutEvery = 0
				h.Set(f)
			}
			c, _ := client(t, h, Options{Token: "hf_secret"})
			var last Progress
			s, err := c.Pull(context.Background(), Request{Repo: repo, Want: want, Progress: func(p Progress) { last = p }})
			if err != nil {
				t.Fatal(err)
			}
			checkSnapshot(t, s, h)
			if h.TokenLeaked() {
				t.Error("another host saw the token")
			}
			if last.Done != last.Total || last.Total != s.Size() {
				t.Errorf("progress ends with %+v, %d bytes", last, s.Size())
			}
			if f.CutEvery == 10 && !slices.Contains(h.Ranges(), "bytes=10000-") {
				t.Errorf("no resume after 10 %%: %v", h.Ranges())
			}
			if left, _ := filepath.Glob(filepath.Join(c.repoDir(repo), "blobs", "*.incomplete")); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
			// A second pull asks for no content, and the cache alone gives the same.
			n := len(h.Ranges())
			if _, err := c.Pull(context.Background(), Request{Repo: repo, Want: want}); err != nil || len(h.Ranges()) != n {
				t.Errorf("second pull: %v, %d requests for files", err, len(h.Ranges())-n)
			}
			off, err := New(Options{Endpoint: h.URL, CacheDir: c.CacheDir(), Offline: true})
			if err != nil {
				t.Fatal(err)
			}
			s2, err := off.Pull(context.Background(), Request{Repo: repo, Want: want})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s2.Files, s.Files) || s2.Dir != s.Dir {
				t.Errorf("offline: %+v\nonline: %+v", s2, s)
			}
			if !f.NoRevision && filepath.Base(s.Dir) != hubtest.Commit {
				t.Errorf("snapshot %s", s.Dir)
			}
			to, err := os.Readlink(filepath.Join(s.Dir, "1_Pooling", "config.json"))
			if err != nil || !strings.HasPrefix(filepath.ToSlash(to), "../../../blobs/") {
				t.Errorf("link to %q, %v", to, err)
			}
		})
	}
}

func TestFinalErrors(t *testing.T) {
	for name, x := range map[string]struct {
		f    hubtest.Faults
		want error
		max  int // requests for files
	}{
		"short length":       {hubtest.Faults{ShortLength: true}, ErrLength, 3},
		"long body":          {hubtest.Faults{LongBody: true}, ErrLength, 3},
		"wrong bytes":        {hubtest.Faults{WrongBytes: 99}, ErrChecksum, 3},
		"web page":           {hubtest.Faults{HTML: true}, ErrHTML, 1},
		"401":                {hubtest.Faults{Status: 401}, ErrUnauthorized, 1},
		"403":                {hubtest.Faults{Status: 403}, ErrForbidden, 1},
		"404":                {hubtest.Faults{Status: 404}, ErrNotFound, 1},
		"503 for ever":       {hubtest.Faults{Status: 503}, ErrUnavailable, 3},
		"429 too long":       {hubtest.Faults{Status: 429, RetryAfter: "86400"}, ErrUnavailable, 1},
		"missing token":      {hubtest.Faults{Token: "other"}, ErrUnauthorized, 0},
		"403 of the storage": {hubtest.Faults{Status: 403, Redirect: true}, ErrUnavailable, 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := hubtest.New(t, files(), x.f)
			c, _ := client(t, h, Options{Token: "hf_secret", Retries: 2})
			_, err := c.Pull(context.Background(), Request{Repo: repo, Want: []string{"model.safetensors"}})
			if !errors.Is(err, x.want) {
				t.Fatalf("%v, want %v", err, x.want)
			}
			if n := len(h.Ranges()); n > x.max {
				t.Errorf("%d requests", n)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a token or a signature: %v", err)
			}
			if _, err := c.Cached(repo, "", nil); err == nil {
				t.Error("a failed pull left a revision that counts as pulled")
			}
			t.Log(err)
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	h := hubtest.New(t, files(), hubtest.Faults{Busy: 2, RetryAfter: "7"})
	c, err := New(Options{Endpoint: h.URL, CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var pauses []time.Duration
	c.sleep = func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }
	if _, err := c.Pull(context.Background(), Request{Repo: repo, Want: []string{"model.safetensors"}}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(pauses, []time.Duration{7 * time.Second, 7 * time.Second}) {
		t.Errorf("pauses %v", pauses)
	}
	now := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	for v, want := range map[string]time.Duration{"": -1, "3": 3 * time.Second, "x": -1, "-1": -1,
		"Tue, 02 Jan 2024 03:04:15 GMT": 10 * time.Second, "Tue, 02 Jan 2024 03:04:00 GMT": 0} {
		if got := retryAfter(v, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", v, got, want)
		}
	}
}

func TestCancelledPullResumes(t *testing.T) {
	h := hubtest.New(t, files(), hubtest.Faults{CutEvery: 10})
	c, _ := client(t, h, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	_, err := c.Pull(ctx, Request{Repo: repo, Want: []string{"model.safetensors"}, Progress: func(p Progress) {
		if p.FileDone >= 30_000 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	n := len(h.Ranges())
	s, err := c.Pull(context.Background(), Request{Repo: repo, Want: []string{"model.safetensors"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
	if r := h.Ranges()[n]; !strings.HasPrefix(r, "bytes=") {
		t.Errorf("the second pull began with range %q", r)
	}
}

func TestDamagedLeftoversAndBlobs(t *testing.T) {
	h := hubtest.New(t, files(), hubtest.Faults{})
	c, _ := client(t, h, Options{})
	l, err := c.List(context.Background(), repo, "")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(l.Files, func(f File) bool { return f.Path == "model.safetensors" })
	blobs := filepath.Join(c.repoDir(repo), "blobs")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, left := range map[string][]byte{"other bytes": content(40_000)[1:], "too long": content(100_005), "all but wrong": make([]byte, 100_000), "all": content(100_000)} {
		_ = os.Remove(filepath.Join(blobs, l.Files[i].etag()))
		if err := os.WriteFile(filepath.Join(blobs, l.Files[i].etag()+".incomplete"), left, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := c.Pull(context.Background(), Request{Repo: repo, Want: []string{"model.safetensors"}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Verify(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, err := c.Cached(repo, "main", []string{"model.safetensors", "absent.json"}, "model.safetensors", "absent.json")
	if err != nil || !slices.Equal(s.Missing, []string{"absent.json"}) {
		t.Errorf("%+v, %v", s, err)
	}
	blob := filepath.Join(blobs, l.Files[i].etag())
	if err := os.WriteFile(blob, make([]byte, 100_000), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); !errors.Is(err, ErrChecksum) {
		t.Errorf("damaged blob: %v", err)
	}
	if err := os.WriteFile(blob, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); err == nil {
		t.Error("empty blob passes")
	}
}

func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	h := hubtest.New(t, files(), hubtest.Faults{})
	c, _ := client(t, h, Options{})
	l, err := c.List(context.Background(), repo, "")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(l.Files, func(f File) bool { return f.Path == "model.safetensors" })
	p := &pull{c: c, listing: l, blobs: filepath.Join(c.repoDir(repo), "blobs"), done: map[string]int64{}}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	d := &download{pull: p, f: l.Files[i], url: c.resolve(repo, l.at, l.Files[i].Path).String(), file: full, h: l.Files[i].hasher()}
	err = c.again(context.Background(), nil, func() (bool, error) { return d.try(context.Background()) })
	if !errors.Is(err, ErrDiskFull) {
		t.Errorf("%v", err)
	}
	if err := os.MkdirAll(p.blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, ok := freeBytes(p.blobs); ok {
		if err := p.checkSpace([]File{{Path: "a", Size: 1 << 60, SHA256: strings.Repeat("a", 64)}}); !errors.Is(err, ErrDiskFull) {
			t.Errorf("an exabyte: %v", err)
		}
	}
}

func TestStalledConnection(t *testing.T) {
	h := hubtest.New(t, files(), hubtest.Faults{})
	c, _ := client(t, h, Options{Stall: 30 * time.Millisecond, Retries: 1})
	d := &download{pull: &pull{c: c, listing: &Listing{}, done: map[string]int64{}}, f: File{Size: 9, SHA256: strings.Repeat("a", 64)}}
	ctx, cancel := context.WithCancelCause(context.Background())
	stall := time.AfterFunc(c.opt.Stall, func() { cancel(errStalled) })
	_, err := d.copy(ctx, blocked{ctx}, stall)
	if ok, _ := retriable(err); !ok || !errors.Is(err, errStalled) {
		t.Errorf("%v", err)
	}
}

type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.ctx.Err() }

func TestUnreachableAndOffline(t *testing.T) {
	h := hubtest.New(t, files(), hubtest.Faults{})
	c, err := New(Options{Endpoint: "http://127.0.0.1:1", CacheDir: t.TempDir(), Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pull(context.Background(), Request{Repo: repo}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("unreachable: %v", err)
	}
	off, err := New(Options{Endpoint: h.URL, CacheDir: t.TempDir(), Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := off.Pull(context.Background(), Request{Repo: repo}); !errors.Is(err, ErrOffline) {
		t.Errorf("offline: %v", err)
	}
	if _, err := off.List(context.Background(), repo, ""); !errors.Is(err, ErrOffline) {
		t.Errorf("offline list: %v", err)
	}
	c2, _ := client(t, h, Options{})
	if _, err := c2.Pull(context.Background(), Request{Repo: repo, Want: []string{"nothing.bin"}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := c2.Pull(context.Background(), Request{Repo: "acme/none"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a repository that is not there: %v", err)
	}
}

func TestNamesThatWouldLeaveTheCache(t *testing.T) {
	for _, r := range []string{"", "../x", "a/../b", "a/b/c", "/a", "a/b\x00", "a\\b", "a--b/c", "a/.."} {
		if checkRepo(r, "main") == nil {
			t.Errorf("repository %q passes", r)
		}
	}
	for _, r := range []string{"", "../../x", "/abs", "a\\b", "a?b"} {
		if checkRepo("a/b", r) == nil {
			t.Errorf("revision %q passes", r)
		}
	}
	for _, p := range []string{"", "../x", "/x", "a/../../x", "a\\..\\x", "./a", "a//b", "c:x"} {
		if checkPath(p) == nil {
			t.Errorf("path %q passes", p)
		}
	}
}

func TestTokensAreNotPrinted(t *testing.T) {
	o := Options{Token: "hf_secret"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "token", o.Token, "options", o)
	for _, s := range []string{fmt.Sprint(o), fmt.Sprintf("%+v", o), fmt.Sprintf("%#v", o.Token), fmt.Sprintf("%q", o.Token), log.String()} {
		if strings.Contains(s, "secret") {
			t.Errorf("printed: %s", s)
		}
	}
	if err := (Options{Endpoint: "ftp://x", Token: "a b", Parallel: -1}).Validate(); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("%v", err)
	}
}

func TestEnvironment(t *testing.T) {
	for k, v := range map[string]string{"HF_ENDPOINT": "http://mirror.example", "HF_TOKEN": " hf_x\n", "HF_HUB_CACHE": "/c", "HF_HUB_OFFLINE": "1"} {
		t.Setenv(k, v)
	}
	if o := FromEnv(); o.Endpoint != "http://mirror.example" || o.Token != "hf_x" || o.CacheDir != "/c" || !o.Offline {
		t.Errorf("%+v", o)
	}
}
