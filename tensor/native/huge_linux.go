package native

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages; a kernel that has none is no worse than before.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
