//go:build !amd64

package fmapeak

var loops map[int]loop
