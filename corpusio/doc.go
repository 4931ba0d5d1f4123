// Package corpusio turns source files into passages: readers emit Records, the
// chunker cuts them into windows of words, and the store keeps them as JSON
// lines in seekable zstd with O(1) access.
//
// Data flows one way: source file → Record → Passage → store. Readers live in
// subpackages named after their format; each reports every source element
// either as a Record or as a Skip with a reason, so that accounts close.
package corpusio
