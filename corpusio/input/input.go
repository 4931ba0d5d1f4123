// Package input opens corpus files: plain, .gz, .tar, .tar.gz/.tgz and
// directories of these, as a sequence of members. Damaged compression is an error
// that names file and position.
package input

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Member is one file, or one file of an archive.
type Member struct {
	File string // path on disk
	Name string // name inside the archive; "" for a file of its own
	R    *bufio.Reader
}

// Label names the member in messages.
func (m Member) Label() string {
	if m.Name == "" {
		return m.File
	}
	return m.File + ":" + m.Name
}

// Base is the member's own file name without directory and .gz.
func (m Member) Base() string {
	n := m.Name
	if n == "" {
		n = m.File
	}
	return strings.TrimSuffix(filepath.Base(n), ".gz")
}

// counter counts compressed bytes for progress and positions.
type counter struct {
	r  io.Reader
	n  int64
	on func(int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.on != nil {
		c.on(c.n)
	}
	return n, err
}

// Walk calls f for every member of path, directories in name order. progress, if
// not nil, is told the bytes read so far of the current file on disk.
func Walk(ctx context.Context, path string, progress func(int64), f func(Member) error) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return walkFile(ctx, path, progress, f)
	}
	var files []string
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasPrefix(d.Name(), ".") {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: the directory holds no files", path)
	}
	slices.Sort(files)
	for _, p := range files {
		if err := walkFile(ctx, p, progress, f); err != nil {
			return err
		}
	}
	return nil
}

func walkFile(ctx context.Context, path string, progress func(int64), f func(Member) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	c := &counter{r: file, on: progress}
	br := bufio.NewReaderSize(c, 1<<16)
	var r io.Reader = br
	if head, _ := br.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(br)
		if err != nil {
			return fmt.Errorf("%s: gzip header: %w", path, err)
		}
		r = z
	}
	in := bufio.NewReaderSize(&positioned{r, path, c}, 1<<16)
	if head, _ := in.Peek(262); len(head) >= 262 && string(head[257:262]) == "ustar" {
		t := tar.NewReader(in)
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			h, err := t.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: tar: %w", path, err)
			}
			if h.Typeflag != tar.TypeReg || strings.HasPrefix(filepath.Base(h.Name), "._") {
				continue
			}
			if err := f(Member{path, h.Name, bufio.NewReaderSize(t, 1<<16)}); err != nil {
				return err
			}
		}
	}
	return f(Member{path, "", in})
}

// positioned adds file and position to the errors of decompression.
type positioned struct {
	r    io.Reader
	path string
	c    *counter
}

func (p *positioned) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%s: damaged or cut after %d compressed bytes: %w", p.path, p.c.n, err)
	}
	return n, err
}
