//go:build cgo && (linux || darwin)

package tensor

import _ "github.com/gomlx/gomlx/backends/xla" // the "xla:*" engines

const xlaBuilt = true
