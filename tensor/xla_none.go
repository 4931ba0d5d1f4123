//go:build !cgo || !(linux || darwin)

package tensor

import "github.com/gomlx/gomlx/backends"

const xlaBuilt = false

// newXLA is not reached: Open checks xlaBuilt first.
func newXLA(string, string, Options) (backends.Backend, error) { return nil, ErrUnavailable }
