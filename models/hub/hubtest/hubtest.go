// Package hubtest is a loopback Hugging Face hub with faults to order, for tests.
package hubtest

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Commit is the commit of every repository of a Hub.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Faults say what a Hub does wrong. The zero value is a hub without faults.
type Faults struct {
	CutEvery    int    // bodies end after so many per cent of the whole file
	ShortLength bool   // Content-Length and body are one byte short
	LongBody    bool   // one byte too many, without Content-Length
	WrongBytes  int    // the first so many answers with content hold other bytes
	HTML        bool   // a web page instead of files
	Status      int    // every answer for a file
	Busy        int    // the first so many answers for files are 429
	RetryAfter  string // header of 429 and 5xx answers
	NoRange     bool   // Range is ignored
	NoRevision  bool   // the revision call is 404, as on some mirrors
	Token       string // wanted for everything
	Redirect    bool   // LFS files come from another host, as on the real hub
	PageSize    int    // entries in a page of the tree; 0 = all
}

// Hub is a running loopback hub.
type Hub struct {
	URL   string            // the endpoint
	Files map[string][]byte // "org/name/path" → content; files of 1 KiB and more are LFS

	mu          sync.Mutex
	faults      Faults
	leaked      bool // the other host saw an Authorization header
	ranges      []string
	contents    int
	storage     *httptest.Server
	fileAnswers int
}

// New starts a hub that stops with the test.
func New(t testing.TB, files map[string][]byte, f Faults) *Hub {
	t.Helper()
	h := &Hub{Files: files, faults: f}
	api := httptest.NewServer(http.HandlerFunc(h.serve))
	h.storage = httptest.NewServer(http.HandlerFunc(h.serveStorage))
	t.Cleanup(api.Close)
	t.Cleanup(h.storage.Close)
	h.URL = api.URL
	return h
}

// Set changes the faults.
func (h *Hub) Set(f Faults) { h.mu.Lock(); defer h.mu.Unlock(); h.faults = f }

// TokenLeaked reports whether the storage host saw an Authorization header.
func (h *Hub) TokenLeaked() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.leaked }

// Ranges are the Range headers of all requests for files, "" for none.
func (h *Hub) Ranges() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.ranges...)
}

func lfs(b []byte) bool { return len(b) >= 1024 }

func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	f := h.faults
	h.mu.Unlock()
	if f.Token != "" && r.Header.Get("Authorization") != "Bearer "+f.Token {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/models/"); ok {
		h.serveAPI(w, r, rest, f)
		return
	}
	before, after, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/resolve/")
	rev, file, ok2 := strings.Cut(after, "/")
	b, ok3 := h.Files[path.Join(before, file)]
	if !ok || !ok2 || !ok3 || rev != Commit && rev != "main" {
		http.NotFound(w, r)
		return
	}
	if f.Redirect && lfs(b) {
		http.Redirect(w, r, h.storage.URL+"/"+before+"/"+file+"?signature=secret", http.StatusFound)
		return
	}
	h.serveFile(w, r, b, f)
}

func (h *Hub) serveStorage(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	f := h.faults
	if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
		h.leaked = true
	}
	h.mu.Unlock()
	b, ok := h.Files[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h.serveFile(w, r, b, f)
}

func (h *Hub) serveAPI(w http.ResponseWriter, r *http.Request, rest string, f Faults) {
	for _, verb := range []string{"/revision/", "/tree/"} {
		repo, rev, ok := strings.Cut(rest, verb)
		if !ok {
			continue
		}
		entries := h.tree(repo)
		if len(entries) == 0 || rev != "main" && rev != Commit || verb == "/revision/" && f.NoRevision {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if verb == "/revision/" {
			_ = json.NewEncoder(w).Encode(map[string]string{"id": repo, "sha": Commit})
			return
		}
		if f.PageSize > 0 {
			at, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
			at = min(max(at, 0), len(entries))
			end := min(at+f.PageSize, len(entries))
			if end < len(entries) {
				w.Header().Set("Link", fmt.Sprintf(`<%s%s?recursive=true&cursor=%d>; rel="next"`, h.URL, r.URL.Path, end))
			}
			entries = entries[at:end]
		}
		_ = json.NewEncoder(w).Encode(entries)
		return
	}
	http.NotFound(w, r)
}

func (h *Hub) tree(repo string) (out []map[string]any) {
	for name, b := range h.Files {
		p, ok := strings.CutPrefix(name, repo+"/")
		if !ok {
			continue
		}
		blob := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
		e := map[string]any{"type": "file", "path": p, "size": len(b), "oid": hex.EncodeToString(blob[:])}
		if lfs(b) {
			sum := sha256.Sum256(b)
			e["lfs"] = map[string]any{"oid": hex.EncodeToString(sum[:]), "size": len(b), "pointerSize": 134}
		}
		out = append(out, e)
	}
	// Map order must not change between pages.
	for i := range out {
		for j := i; j > 0 && out[j]["path"].(string) < out[j-1]["path"].(string); j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return
}

func (h *Hub) serveFile(w http.ResponseWriter, r *http.Request, b []byte, f Faults) {
	h.mu.Lock()
	h.ranges = append(h.ranges, r.Header.Get("Range"))
	h.fileAnswers++
	n := h.fileAnswers
	h.mu.Unlock()
	retry := func() {
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
	}
	switch {
	case f.Status != 0:
		retry()
		http.Error(w, "ordered", f.Status)
		return
	case n <= f.Busy:
		retry()
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return
	case f.HTML:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!DOCTYPE html><html><body>Please log in</body></html>")
		return
	}
	h.mu.Lock()
	h.contents++
	wrong := h.contents <= f.WrongBytes
	h.mu.Unlock()
	body := b
	if wrong && len(b) > 0 {
		body = append([]byte{b[0] ^ 1}, b[1:]...)
	}
	from := 0
	if v, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && !f.NoRange {
		from, _ = strconv.Atoi(strings.TrimSuffix(v, "-"))
		if from >= len(b) {
			http.Error(w, "range", http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(b)-1, len(b)))
	}
	body = body[from:]
	w.Header().Set("Content-Type", "application/octet-stream")
	switch {
	case f.ShortLength && len(body) > 0:
		body = body[:len(body)-1]
	case f.LongBody:
		body = append(append([]byte(nil), body...), 'x')
	}
	if !f.LongBody {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	if f.CutEvery > 0 {
		if part := max(len(b)*f.CutEvery/100, 1); part < len(body) {
			_, _ = w.Write(body[:part])
			if fl, ok := w.(http.Flusher); ok {
				fl.Flush()
			}
			panic(http.ErrAbortHandler) // the connection breaks
		}
	}
	_, _ = w.Write(body)
}
