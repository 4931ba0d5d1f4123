//go:build !unix

package hub

import "context"

// freeBytes is not known here: a full disk shows when writing.
func freeBytes(string) (uint64, bool) { return 0, false }

// lockFile does nothing here: two processes must not pull the same file.
func lockFile(context.Context, string) (func(), error) { return func() {}, nil }
