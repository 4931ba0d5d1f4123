package hub

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// File is one file of a repository.
type File struct {
	Path   string `json:"path"` // with slashes
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256,omitempty"`
	// GitSHA1 is git's hash of the blob, for small files that are not in LFS.
	GitSHA1 string `json:"git_sha1,omitempty"`
}

// etag is the name of the file's blob.
func (f File) etag() string {
	if f.SHA256 != "" {
		return f.SHA256
	}
	return f.GitSHA1
}

// Listing is what a repository holds at a commit.
type Listing struct {
	Repo, Revision, Commit string
	Files                  []File // sorted by path

	at string // the revision in addresses: the commit, where the hub tells it
}

var (
	repoRE   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,95})?$`)
	commitRE = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sha256RE = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// checkRepo refuses names that the hub does not allow and that would leave the cache.
func checkRepo(repo, rev string) error {
	if !repoRE.MatchString(repo) || strings.Contains(repo, "--") || strings.Contains(repo, "..") {
		return fmt.Errorf("hub: repository %q; organisation/name is needed", repo)
	}
	if rev == "" || len(rev) > 200 || !filepath.IsLocal(rev) || strings.ContainsAny(rev, "\\?#%\x00\n\r") {
		return fmt.Errorf("hub: revision %q; a branch, a tag or a commit is needed", rev)
	}
	return nil
}

// checkPath refuses names of files that would leave the snapshot.
func checkPath(p string) error {
	if p == "" || len(p) > 1000 || !filepath.IsLocal(filepath.FromSlash(p)) || path.Clean(p) != p || strings.ContainsAny(p, "\\:\x00\n\r") {
		return fmt.Errorf("%w: file name %q", ErrListing, p)
	}
	return nil
}

// maxListing bounds an answer of the API, maxFiles the files of a repository.
const (
	maxListing = 64 << 20
	maxFiles   = 100_000
)

// List asks the hub for the files of a repository at a revision ("" = main). It needs
// the network.
func (c *Client) List(ctx context.Context, repo, rev string) (*Listing, error) {
	if rev == "" {
		rev = "main"
	}
	if err := checkRepo(repo, rev); err != nil {
		return nil, err
	}
	if c.opt.Offline {
		return nil, fmt.Errorf("list of %s: %w", repo, ErrOffline)
	}
	l := &Listing{Repo: repo, Revision: rev, Commit: rev}
	if !commitRE.MatchString(rev) {
		var info struct {
			SHA string `json:"sha"`
		}
		_, err := c.getJSON(ctx, c.api(repo, "revision", rev), &info)
		var s *statusError
		switch {
		case errors.As(err, &s) && s.code == http.StatusNotFound:
			// No such revision, which the tree will say, or a mirror without this call.
		case err != nil:
			return nil, explain(err, repo, rev)
		case !commitRE.MatchString(info.SHA):
			return nil, fmt.Errorf("%s: %w: commit %q", repo, ErrListing, info.SHA)
		default:
			l.Commit = info.SHA
		}
	}
	l.at = l.Commit
	seen := map[string]bool{}
	u := c.api(repo, "tree", l.Commit)
	u.RawQuery = "recursive=true"
	for pages := 0; u != nil; pages++ {
		var entries []struct {
			Type string `json:"type"`
			OID  string `json:"oid"`
			Path string `json:"path"`
			Size *int64 `json:"size"`
			LFS  *struct {
				OID  string `json:"oid"`
				Size *int64 `json:"size"`
			} `json:"lfs"`
		}
		next, err := c.getJSON(ctx, u, &entries)
		if err != nil {
			return nil, explain(err, repo, rev)
		}
		for _, e := range entries {
			if e.Type != "file" {
				continue
			}
			f := File{Path: e.Path, GitSHA1: e.OID}
			size := e.Size
			if e.LFS != nil {
				f.SHA256, f.GitSHA1 = strings.TrimPrefix(e.LFS.OID, "sha256:"), ""
				if e.LFS.Size != nil {
					size = e.LFS.Size
				}
			}
			if err := checkPath(f.Path); err != nil {
				return nil, fmt.Errorf("%s: %w", repo, err)
			}
			if size == nil || *size < 0 || f.SHA256 != "" && !sha256RE.MatchString(f.SHA256) || f.SHA256 == "" && !commitRE.MatchString(f.GitSHA1) {
				return nil, fmt.Errorf("%s: %w: %s has no size or no hash", repo, ErrListing, f.Path)
			}
			f.Size = *size
			if !seen[f.Path] {
				seen[f.Path] = true
				l.Files = append(l.Files, f)
			}
		}
		if next != nil && (pages > 1000 || len(l.Files) > maxFiles || origin(next) != origin(c.base)) {
			return nil, fmt.Errorf("%s: %w: it does not end", repo, ErrListing)
		}
		u = next
	}
	slices.SortFunc(l.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	if !commitRE.MatchString(l.Commit) {
		l.Commit = l.contentID()
	}
	return l, nil
}

// contentID stands in for a commit that a mirror does not tell: a hash of the listing.
func (l *Listing) contentID() string {
	h := sha1.New()
	for _, f := range l.Files {
		fmt.Fprintf(h, "%q %d %s\n", f.Path, f.Size, f.etag())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// api is an address of the model API.
func (c *Client) api(repo, verb, rev string) *url.URL {
	u := *c.base
	u.Path = c.base.Path + "/api/models/" + repo + "/" + verb + "/" + rev
	u.RawPath = c.base.EscapedPath() + "/api/models/" + repo + "/" + verb + "/" + url.PathEscape(rev)
	return &u
}

// resolve is the address of a file's content.
func (c *Client) resolve(repo, rev, file string) *url.URL {
	u := *c.base
	u.Path = c.base.Path + "/" + repo + "/resolve/" + rev + "/" + file
	parts := strings.Split(file, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	u.RawPath = c.base.EscapedPath() + "/" + repo + "/resolve/" + url.PathEscape(rev) + "/" + strings.Join(parts, "/")
	return &u
}

// getJSON fetches a document of the API, with retries, and the next page's address.
func (c *Client) getJSON(ctx context.Context, u *url.URL, into any) (next *url.URL, err error) {
	err = c.again(ctx, nil, func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		resp, err := c.do(ctx, u, 0)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxListing+1))
		if err != nil {
			return false, transientError{fmt.Errorf("%s: %w", clean(u), cleanError(err))}
		}
		if len(b) > maxListing {
			return false, fmt.Errorf("%s: %w: more than %d bytes", clean(u), ErrListing, maxListing)
		}
		if err := json.Unmarshal(b, into); err != nil {
			return false, fmt.Errorf("%s: %w: %w", clean(u), ErrListing, err)
		}
		next = nextPage(u, resp.Header.Get("Link"))
		return true, nil
	})
	return next, err
}

var linkRE = regexp.MustCompile(`<([^>]*)>\s*;[^,]*rel="?next"?`)

// nextPage reads an RFC 8288 Link header.
func nextPage(base *url.URL, link string) *url.URL {
	m := linkRE.FindStringSubmatch(link)
	if m == nil {
		return nil
	}
	u, err := base.Parse(m[1])
	if err != nil {
		return nil
	}
	return u
}

// do sends a GET for the bytes from offset on. The answer is 200, or 206 when offset >
// 0; anything else is an error. The caller closes the body.
func (c *Client) do(ctx context.Context, u *url.URL, offset int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("hub: the address is no URL")
	}
	req.Header.Set("Accept-Encoding", "identity")
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := c.http.Do(req)
	if errors.Is(err, errRedirect) {
		return nil, cleanError(err)
	}
	if err != nil {
		return nil, transientError{cleanError(err)}
	}
	if resp.StatusCode == http.StatusOK || offset > 0 && resp.StatusCode == http.StatusPartialContent {
		if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t == "text/html" && !strings.HasSuffix(u.Path, ".html") {
			resp.Body.Close()
			return nil, fmt.Errorf("%s: %w; is there a login page or a proxy in between?", clean(u), ErrHTML)
		}
		return resp, nil
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	resp.Body.Close()
	note := resp.Header.Get("X-Error-Message")
	if len(note) > 200 {
		note = note[:200]
	}
	serr := &statusError{resp.StatusCode, clean(resp.Request.URL), retryAfter(resp.Header.Get("Retry-After"), time.Now()), note}
	if resp.StatusCode == http.StatusForbidden && origin(resp.Request.URL) != origin(c.base) {
		return nil, transientError{serr} // a storage service whose signed address ran out
	}
	return nil, serr
}
