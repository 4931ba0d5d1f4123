//go:build !linux

package native

func adviseHuge([]byte) {}
