package mmapfile

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
)

// ErrFault reports that mapped bytes could not be read: the file was truncated
// or its device failed after it was opened.
var ErrFault = errors.New("mapped file is no longer readable")

// Advice tells the kernel how a range will be used.
type Advice int

const (
	Normal Advice = iota
	Random
	Sequential
	WillNeed
	DontNeed
)

// File is a read-only view of a whole file.
type File struct {
	path string
	data []byte
	mmap bool
}

// Open maps path. An empty file gives an empty view.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return nil, fmt.Errorf("%s: is a directory, not a file", path)
	}
	size := st.Size()
	if size != int64(int(size)) {
		return nil, fmt.Errorf("%s: %d bytes do not fit this platform's address space", path, size)
	}
	m := &File{path: path}
	if size == 0 {
		return m, nil
	}
	if err := m.load(f, int(size)); err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return m, nil
}

// Path is the name the file was opened by.
func (m *File) Path() string { return m.path }

// Bytes is the whole file; it must not be written to.
func (m *File) Bytes() []byte { return m.data }

// Len is the file's size in bytes at the time it was opened.
func (m *File) Len() int { return len(m.data) }

// Close unmaps the file. Later calls do nothing.
func (m *File) Close() error {
	data := m.data
	m.data = nil
	if data == nil {
		return nil
	}
	return m.unload(data)
}

// Guard runs f, which reads mapped bytes, and returns ErrFault when a read
// faults. Other panics pass through.
func Guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		// A fault is a runtime.Error that also carries the address.
		if e, ok := r.(interface {
			runtime.Error
			Addr() uintptr
		}); ok && e.Addr() > 4096 {
			err = fmt.Errorf("%w (address %#x)", ErrFault, e.Addr())
			return
		}
		panic(r)
	}()
	return f()
}
