package hub

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rag2/internal/atomicfile"

	"golang.org/x/sync/errgroup"
)

// Progress is what a pull has done so far.
type Progress struct {
	File               string // the file that this report is about
	FileDone, FileSize int64  // bytes
	Done, Total        int64  // bytes of all wanted files
	Note               string // why the file pauses, "" while bytes arrive
}

// Request says what to pull.
type Request struct {
	Repo     string
	Revision string // branch, tag or commit; "" = main
	// Want are patterns of file names (see Match). One without * that matches nothing
	// is an error; those of Optional may match nothing. Without either, every file.
	Want, Optional []string
	// Progress is called from one goroutine at a time; nil = no reports.
	Progress func(Progress)
}

func (r Request) all() []string { return append(slices.Clone(r.Want), r.Optional...) }

// Pull brings the wanted files into the cache and returns the snapshot. Files that are
// there already are not read again (Snapshot.Verify does that). When it fails or ctx
// ends, what has arrived is kept and the next Pull goes on from there. Offline, the
// cache must hold everything already.
func (c *Client) Pull(ctx context.Context, r Request) (*Snapshot, error) {
	if c.opt.Offline {
		s, err := c.Cached(r.Repo, r.Revision, r.all(), r.Want...)
		if errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("%s: %w", r.Repo, ErrOffline)
		}
		if err != nil {
			return nil, err
		}
		if len(s.Missing) > 0 || len(s.Files) == 0 {
			return nil, fmt.Errorf("%s: %s: %w", r.Repo, strings.Join(s.Missing, ", "), ErrOffline)
		}
		return s, nil
	}
	l, err := c.List(ctx, r.Repo, r.Revision)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Repo: l.Repo, Revision: l.Revision, Commit: l.Commit, Dir: c.snapshotDir(l.Repo, l.Commit)}
	for _, f := range l.Files {
		if Match(r.all(), f.Path) {
			s.Files = append(s.Files, f)
		}
	}
	s.miss(r.Want)
	if len(s.Missing) > 0 || len(s.Files) == 0 {
		return nil, fmt.Errorf("%s at revision %s: %w: %s", l.Repo, l.Revision, ErrNotFound, strings.Join(append(s.Missing, "files that match"), ", "))
	}
	blobs := filepath.Join(c.repoDir(l.Repo), "blobs")
	for _, d := range []string{blobs, s.Dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, diskError(err, d)
		}
	}
	p := &pull{c: c, listing: l, blobs: blobs, report: r.Progress, total: s.Size(), done: map[string]int64{}}
	if err := p.checkSpace(s.Files); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.opt.Parallel)
	for _, f := range s.Files {
		g.Go(func() error {
			if err := p.file(gctx, f); err != nil {
				return err
			}
			return diskError(link(filepath.Join(blobs, f.etag()), filepath.Join(s.Dir, filepath.FromSlash(f.Path))), s.Dir)
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("pull of %s stopped, what has arrived is kept: %w", l.Repo, context.Cause(ctx))
		}
		return nil, explain(err, l.Repo, l.Revision)
	}
	if err := c.writeRef(l.Repo, l.Revision, l.Commit); err != nil {
		return nil, diskError(err, c.opt.CacheDir)
	}
	return s, nil
}

// pull is one running Pull.
type pull struct {
	c       *Client
	listing *Listing
	blobs   string
	total   int64
	report  func(Progress)

	mu   sync.Mutex
	done map[string]int64 // bytes by file
}

func (p *pull) progress(f File, done int64, note string) {
	if p.report == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[f.Path] = done
	all := int64(0)
	for _, n := range p.done {
		all += n
	}
	p.report(Progress{File: f.Path, FileDone: done, FileSize: f.Size, Done: all, Total: p.total, Note: note})
}

// checkSpace refuses a pull that cannot fit on the disk.
func (p *pull) checkSpace(files []File) error {
	need, seen := int64(0), map[string]bool{}
	for _, f := range files {
		blob := filepath.Join(p.blobs, f.etag())
		if seen[blob] {
			continue
		}
		seen[blob] = true
		if st, err := os.Stat(blob); err == nil && st.Size() == f.Size {
			continue
		}
		need += f.Size
		if st, err := os.Stat(blob + ".incomplete"); err == nil {
			need -= min(st.Size(), f.Size)
		}
	}
	free, ok := freeBytes(p.blobs)
	if ok && uint64(max(need, 0)) > free {
		return fmt.Errorf("%s: %w: %d bytes are needed, %d are free", p.c.opt.CacheDir, ErrDiskFull, need, free)
	}
	return nil
}

// file brings one blob into the cache.
func (p *pull) file(ctx context.Context, f File) error {
	blob := filepath.Join(p.blobs, f.etag())
	there := func() bool {
		st, err := os.Stat(blob)
		return err == nil && st.Mode().IsRegular() && st.Size() == f.Size
	}
	if there() {
		p.progress(f, f.Size, "")
		return nil
	}
	locks := filepath.Join(p.c.opt.CacheDir, ".locks", filepath.Base(p.c.repoDir(p.listing.Repo)))
	if err := os.MkdirAll(locks, 0o755); err != nil {
		return diskError(err, locks)
	}
	unlock, err := lockFile(ctx, filepath.Join(locks, f.etag()+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if there() { // another process was first
		p.progress(f, f.Size, "")
		return nil
	}
	d := &download{pull: p, f: f, url: p.c.resolve(p.listing.Repo, p.listing.at, f.Path).String()}
	if err := d.open(blob + ".incomplete"); err != nil {
		return diskError(err, p.blobs)
	}
	defer d.file.Close()
	note := func(s string) { p.progress(f, d.at, s) }
	if err := p.c.again(ctx, note, func() (bool, error) { return d.try(ctx) }); err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	err = d.file.Sync()
	if err == nil {
		err = os.Rename(blob+".incomplete", blob)
	}
	if err == nil {
		err = atomicfile.SyncDir(p.blobs)
	}
	return diskError(err, p.blobs)
}

// download is a blob on its way.
type download struct {
	*pull
	f     File
	url   string
	file  *os.File
	h     hash.Hash // of the first at bytes of file
	at    int64
	wrong int // answers of a wrong length or hash
}

// open opens what an earlier pull left and hashes it.
func (d *download) open(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	d.file = f
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() > d.f.Size {
		return d.restart()
	}
	d.h = d.f.hasher()
	d.at, err = io.Copy(d.h, f)
	d.progress(d.f, d.at, "")
	return err
}

// restart drops what has arrived.
func (d *download) restart() error {
	d.h, d.at = d.f.hasher(), 0
	if err := d.file.Truncate(0); err != nil {
		return err
	}
	_, err := d.file.Seek(0, io.SeekStart)
	return err
}

var rangeRE = regexp.MustCompile(`^bytes (\d+)-(\d+)/(\d+|\*)$`)

// try asks for the missing bytes once. It returns nil when the blob is complete and
// its hash is right.
func (d *download) try(ctx context.Context) (progress bool, err error) {
	if d.at < d.f.Size {
		if progress, err = d.fetch(ctx); err != nil {
			return progress, err
		}
	}
	if got := hex.EncodeToString(d.h.Sum(nil)); got != d.f.etag() {
		return false, d.refuse(fmt.Errorf("%w: %s, the hub says %s", ErrChecksum, got, d.f.etag()))
	}
	return true, nil
}

// maxWrong answers of a wrong length or hash are no fault of the line.
const maxWrong = 3

// refuse drops what has arrived; err is final when the server has sent wrong bytes
// before.
func (d *download) refuse(err error) error {
	if rerr := d.restart(); rerr != nil {
		return diskError(rerr, d.blobs)
	}
	if d.wrong++; d.wrong >= maxWrong {
		return err
	}
	return transientError{err}
}

func (d *download) fetch(ctx context.Context) (progress bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u, err := d.c.base.Parse(d.url)
	if err != nil {
		return false, errors.New("hub: the address is no URL")
	}
	resp, err := d.c.do(ctx, u, d.at)
	if err != nil {
		var s *statusError
		if errors.As(err, &s) && s.code == http.StatusRequestedRangeNotSatisfiable && d.at > 0 {
			return false, d.refuse(err)
		}
		return false, err
	}
	defer resp.Body.Close()
	size := d.f.Size - d.at // what the answer must hold
	if resp.StatusCode == http.StatusPartialContent {
		var ok bool
		if size, ok = d.span(resp.Header.Get("Content-Range")); !ok {
			return false, d.refuse(fmt.Errorf("%w: the server sent range %.60q of a file of %d bytes", ErrLength, resp.Header.Get("Content-Range"), d.f.Size))
		}
	} else if d.at > 0 { // the server cannot resume
		if err := d.restart(); err != nil {
			return false, diskError(err, d.blobs)
		}
		size = d.f.Size
	}
	if n := resp.ContentLength; n >= 0 && n != size {
		return false, d.refuse(fmt.Errorf("%w: the server announces %d bytes instead of %d", ErrLength, n, size))
	}
	stall := time.AfterFunc(d.c.opt.Stall, func() { cancel(errStalled) })
	defer stall.Stop()
	return d.copy(ctx, resp.Body, stall)
}

// span is the length of a partial answer that begins where it should.
func (d *download) span(contentRange string) (int64, bool) {
	m := rangeRE.FindStringSubmatch(contentRange)
	if m == nil {
		return 0, false
	}
	from, err1 := strconv.ParseInt(m[1], 10, 64)
	to, err2 := strconv.ParseInt(m[2], 10, 64)
	whole := strconv.FormatInt(d.f.Size, 10)
	return to - from + 1, err1 == nil && err2 == nil && from == d.at && to >= from && to < d.f.Size && (m[3] == whole || m[3] == "*")
}

var errStalled = errors.New("the connection stalled")

// copy appends the body to the file.
func (d *download) copy(ctx context.Context, body io.Reader, stall *time.Timer) (progress bool, err error) {
	buf := make([]byte, 256<<10)
	var told time.Time
	for {
		n, rerr := body.Read(buf)
		stall.Reset(d.c.opt.Stall)
		if n > 0 {
			if d.at+int64(n) > d.f.Size {
				return false, d.refuse(fmt.Errorf("%w: the server sent more than %d bytes", ErrLength, d.f.Size))
			}
			w, err := d.file.Write(buf[:n])
			d.h.Write(buf[:w])
			d.at += int64(w)
			if err != nil {
				return progress, diskError(err, d.blobs)
			}
			progress = true
			if now := time.Now(); now.Sub(told) > 100*time.Millisecond {
				told = now
				d.progress(d.f, d.at, "")
			}
		}
		if rerr == io.EOF && d.at == d.f.Size {
			d.progress(d.f, d.at, "")
			return progress, nil
		}
		if rerr == io.EOF {
			rerr = io.ErrUnexpectedEOF
		}
		if rerr != nil {
			if cause := context.Cause(ctx); cause != nil {
				rerr = cause
			}
			return progress, transientError{fmt.Errorf("cut after %d of %d bytes: %w", d.at, d.f.Size, cleanError(rerr))}
		}
	}
}
