//go:build !linux

package mmapfile

import "errors"

// Resident is not known here.
func (m *File) Resident(off, n int) (int64, error) {
	return 0, errors.New("resident pages are counted on Linux only")
}
