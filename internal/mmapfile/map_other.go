//go:build !unix

package mmapfile

import (
	"io"
	"os"
)

func (m *File) load(f *os.File, size int) error {
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return err
	}
	m.data = b
	return nil
}

func (m *File) unload([]byte) error { return nil }

// Advise does nothing where files are not mapped.
func (m *File) Advise(off, n int, a Advice) {}
