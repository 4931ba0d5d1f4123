//go:build !amd64

package simd

func setDistAVX2(bool) bool { return false }
