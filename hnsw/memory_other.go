//go:build !unix

package hnsw

func newMemory(n int) ([]byte, error) { return make([]byte, n), nil }

func freeMemory([]byte) error { return nil }
