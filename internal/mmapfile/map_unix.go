//go:build unix

package mmapfile

import (
	"os"

	"golang.org/x/sys/unix"
)

func (m *File) load(f *os.File, size int) error {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	m.data, m.mmap = b, true
	return nil
}

func (m *File) unload(b []byte) error { return unix.Munmap(b) }

// Advise applies to bytes [off, off+n), widened to whole pages; advice that the
// kernel refuses is not an error.
func (m *File) Advise(off, n int, a Advice) {
	if !m.mmap || off < 0 || n <= 0 || off >= len(m.data) {
		return
	}
	page := os.Getpagesize()
	end := min(off+n, len(m.data))
	off -= off % page
	how := [...]int{Normal: unix.MADV_NORMAL, Random: unix.MADV_RANDOM, Sequential: unix.MADV_SEQUENTIAL,
		WillNeed: unix.MADV_WILLNEED, DontNeed: unix.MADV_DONTNEED}
	_ = unix.Madvise(m.data[off:end], how[a])
}
