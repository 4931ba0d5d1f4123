// Package bench measures the engines beside their peers. `make bench-peers` runs
// them in turn (A B A B …) in one run and writes RESULTS.md.
//
// A contestant is a process that reads lines "NAME ARGS…" and answers each with the
// seconds that the work took, or with "error …"; the first line it writes is "ready"
// and what it is. bench/encoder is our contestant, peers.py the others'. `make
// bench-quality` sets what fewer bits cost in accuracy beside onnxruntime's (quality.py).
package bench
