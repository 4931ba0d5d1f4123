//go:build !cgo || !(linux || darwin)

package tensor

const xlaBuilt = false
