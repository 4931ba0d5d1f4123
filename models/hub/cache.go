package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"rag2/internal/atomicfile"
)

// repoDir is the cache folder of a repository.
func (c *Client) repoDir(repo string) string {
	return filepath.Join(c.opt.CacheDir, "models--"+strings.ReplaceAll(repo, "/", "--"))
}

func (c *Client) snapshotDir(repo, commit string) string {
	return filepath.Join(c.repoDir(repo), "snapshots", commit)
}

// Snapshot is a revision of a repository in the cache.
type Snapshot struct {
	Repo, Revision, Commit string
	Dir                    string // snapshots/COMMIT
	Files                  []File // the wanted files that are there, sorted by path
	Missing                []string
}

// Size is the number of bytes of the files that are there.
func (s *Snapshot) Size() (n int64) {
	for _, f := range s.Files {
		n += f.Size
	}
	return
}

// Cached looks a revision ("" = main) up in the cache, without the network. want
// selects files by patterns (see Match). A pattern of must without * that matches
// nothing is Missing; without any snapshot the error is ErrNotFound.
func (c *Client) Cached(repo, rev string, want []string, must ...string) (*Snapshot, error) {
	if rev == "" {
		rev = "main"
	}
	if err := checkRepo(repo, rev); err != nil {
		return nil, err
	}
	commit := rev
	if !commitRE.MatchString(rev) {
		b, err := os.ReadFile(filepath.Join(c.repoDir(repo), "refs", filepath.FromSlash(rev)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cache of %s at revision %s: %w", repo, rev, ErrNotFound)
		}
		if err != nil {
			return nil, err
		}
		if commit = strings.TrimSpace(string(b)); !commitRE.MatchString(commit) {
			return nil, fmt.Errorf("cache of %s: refs/%s holds %.60q, which is no commit", repo, rev, commit)
		}
	}
	s := &Snapshot{Repo: repo, Revision: rev, Commit: commit, Dir: c.snapshotDir(repo, commit)}
	if _, err := os.Stat(s.Dir); err != nil {
		return nil, fmt.Errorf("cache of %s at revision %s: %w", repo, rev, ErrNotFound)
	}
	err := filepath.WalkDir(s.Dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := os.Stat(p)
		if err != nil || !st.Mode().IsRegular() {
			return nil // a link whose blob is gone
		}
		rel, err := filepath.Rel(s.Dir, p)
		if err != nil {
			return err
		}
		f := File{Path: filepath.ToSlash(rel), Size: st.Size()}
		if to, err := os.Readlink(p); err == nil {
			switch name := filepath.Base(to); {
			case sha256RE.MatchString(name):
				f.SHA256 = name
			case commitRE.MatchString(name):
				f.GitSHA1 = name
			}
		}
		if Match(want, f.Path) {
			s.Files = append(s.Files, f)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	s.miss(must)
	return s, nil
}

// miss fills Missing.
func (s *Snapshot) miss(must []string) {
	for _, w := range must {
		if !strings.ContainsAny(w, "*?[") && !slices.ContainsFunc(s.Files, func(f File) bool { return f.Path == w }) {
			s.Missing = append(s.Missing, w)
		}
	}
}

// Match reports whether a path is selected: patterns are those of path.Match, tried
// on the whole path and, when the pattern holds no slash, on the last element.
// No patterns select everything.
func Match(patterns []string, p string) bool {
	if len(patterns) == 0 {
		return true
	}
	for _, w := range patterns {
		if ok, _ := path.Match(w, p); ok {
			return true
		}
		if !strings.Contains(w, "/") {
			if ok, _ := path.Match(w, path.Base(p)); ok && strings.ContainsAny(w, "*?[") {
				return true
			}
		}
	}
	return false
}

// hasher is the hash that names f's blob, begun for a blob of f.Size bytes.
func (f File) hasher() hash.Hash {
	if f.SHA256 != "" {
		return sha256.New()
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", f.Size)
	return h
}

// VerifyFile reads a file and compares its length and hash with what the hub said.
// The errors are ErrLength and ErrChecksum, or of the file system.
func VerifyFile(name string, f File) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	h := f.hasher()
	n, err := io.Copy(h, in)
	if err != nil {
		return err
	}
	if n != f.Size {
		return fmt.Errorf("%s: %w: %d bytes, the hub says %d", name, ErrLength, n, f.Size)
	}
	if got := hex.EncodeToString(h.Sum(nil)); f.etag() != "" && got != f.etag() {
		return fmt.Errorf("%s: %w: %s, the hub says %s", name, ErrChecksum, got, f.etag())
	}
	return nil
}

// Verify rereads the files of a snapshot and compares them with the hashes that their
// blobs are named by. It needs no network.
func (s *Snapshot) Verify() error {
	var errs []error
	for _, f := range s.Files {
		if f.etag() == "" {
			errs = append(errs, fmt.Errorf("%s: it is no link to a blob, so that its hash is not known", filepath.Join(s.Dir, f.Path)))
			continue
		}
		if err := VerifyFile(filepath.Join(s.Dir, filepath.FromSlash(f.Path)), f); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// link makes the snapshot's name of a blob: a relative symbolic link, as
// huggingface_hub does, or a hard link where the file system has none.
func link(blob, name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	rel, err := filepath.Rel(filepath.Dir(name), blob)
	if err != nil {
		return err
	}
	if to, err := os.Readlink(name); err == nil && to == rel {
		return nil
	}
	tmp := fmt.Sprintf("%s.tmp-%d", name, os.Getpid())
	_ = os.Remove(tmp)
	if err := os.Symlink(rel, tmp); err != nil {
		if lerr := os.Link(blob, tmp); lerr != nil {
			return fmt.Errorf("link %s: %w", name, errors.Join(err, lerr))
		}
	}
	if err := os.Rename(tmp, name); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return nil
}

// writeRef records the commit of a branch or tag.
func (c *Client) writeRef(repo, rev, commit string) error {
	if commitRE.MatchString(rev) {
		return nil
	}
	p := filepath.Join(c.repoDir(repo), "refs", filepath.FromSlash(rev))
	if b, err := os.ReadFile(p); err == nil && string(b) == commit {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(p, []byte(commit))
}
