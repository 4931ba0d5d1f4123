// Package atomicfile writes files that are either wholly there or not there at
// all: bytes go to a temporary name in the same directory, are synced, and take
// their final name by rename; the directory is synced last. A killed process
// leaves at most a "*.tmp-*" file, never a short one under the final name.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// File is a file being written. It is an *os.File until Commit or Abort.
type File struct {
	*os.File
	final string
	done  bool
}

// Create begins writing path. The caller ends with Commit or Abort; deferring
// Abort is safe, since it does nothing after Commit.
func Create(path string) (*File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return &File{File: f, final: path}, nil
}

// Commit syncs and renames. On error nothing is left under either name.
func (f *File) Commit() error {
	if f.done {
		return errors.New("atomicfile: already committed or aborted")
	}
	f.done = true
	err := f.Chmod(0o644)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.File.Close())
	if err == nil {
		err = os.Rename(f.Name(), f.final)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", f.final, err)
	}
	return SyncDir(filepath.Dir(f.final))
}

// Abort drops what was written.
func (f *File) Abort() {
	if f.done {
		return
	}
	f.done = true
	_ = f.File.Close()
	_ = os.Remove(f.Name())
}

// WriteFile writes data to path atomically.
func WriteFile(path string, data []byte) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Commit()
}

// SyncDir makes a rename in dir durable. Systems that cannot sync a directory
// are not treated as failing.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, os.ErrInvalid) && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
