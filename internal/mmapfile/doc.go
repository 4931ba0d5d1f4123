// Package mmapfile maps files read-only.
//
// A File's bytes stay valid until Close; slices handed out of it must not be
// used afterwards. Any number of goroutines may read. A file that shrinks under
// its mapping raises a fault at the next read of the lost pages: code that
// walks mapped bytes runs inside Guard, which turns that fault into ErrFault.
// Where mapping is not available the file is read into memory instead.
package mmapfile
