package mmapfile

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Resident is how many of the bytes [off, off+n) lie in memory, by whole pages.
func (m *File) Resident(off, n int) (int64, error) {
	if off < 0 || n <= 0 || off >= len(m.data) {
		return 0, nil
	}
	if !m.mmap {
		return int64(min(n, len(m.data)-off)), nil
	}
	page := os.Getpagesize()
	end := min(off+n, len(m.data))
	start := off - off%page
	vec := make([]byte, (end-start+page-1)/page)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m.data[start])), uintptr(end-start), uintptr(unsafe.Pointer(&vec[0]))); e != 0 {
		return 0, fmt.Errorf("mincore %s: %w", m.path, e)
	}
	in := 0
	for _, v := range vec {
		in += int(v & 1)
	}
	return min(int64(in*page), int64(end-off)), nil
}
