// Command ann measures this module's index beside hnswlib, faiss and usearch in one
// run: recall@10 against queries a second on one thread, over the same vectors and
// queries, with builds on all cores. It writes a table and a plot.
//
//	go run ./bench/ann -python PYTHON -data FOLDER -work FOLDER -out bench
//
// FOLDER of -data holds passages.npy, questions.npy and explanations.npy. PYTHON has
// numpy, hnswlib, faiss-cpu and usearch; a peer that is missing is said to be missing.
// Contestants take turns, each point is the best of the rounds, and nobody's threads
// spin while another is timed.
//
// The second data set is synthetic, 768-d, fitted to the first (synth.go). It is
// accepted when its local intrinsic dimension, and the breadth that hnswlib needs for
// recall 0.95, lie within 1.5 times the real one's.
//
// A run is a sequence of steps, each kept in a file of the work folder when it is done:
// a stopped run goes on at the step it was in, and -for bounds how long one call takes.
// Remove the work folder to measure anew. With -million, a set of a million rows that
// is built and measured in memory and, under a memory limit, on disk.
package main
