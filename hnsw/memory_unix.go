//go:build unix

package hnsw

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// newMemory is zeroed memory outside the Go heap, of huge pages where the system
// gives them.
func newMemory(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	const huge = 2 << 20
	b, err := unix.Mmap(-1, 0, (n+huge-1)/huge*huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	if runtime.GOOS == "linux" {
		_ = unix.Madvise(b, 14) // MADV_HUGEPAGE
	}
	return b, nil
}

func freeMemory(b []byte) error { return unix.Munmap(b) }
