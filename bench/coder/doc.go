// Package coder records how github.com/coder/hnsw, the best-known HNSW in pure Go,
// does in this module's conformance suite: it fails, since its search stops at the
// first expansion that improves nothing. It is a module of its own so that the
// main one does not depend on it; run `go test -v .` here.
package coder
