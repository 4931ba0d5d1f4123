//go:build !amd64

package simd

import "runtime"

// Pause lets other work of this thread go first.
func Pause() { runtime.Gosched() }
