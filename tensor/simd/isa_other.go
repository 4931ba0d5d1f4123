//go:build !amd64 && !arm64

package simd

func supported() []ISA { return []ISA{Generic} }
