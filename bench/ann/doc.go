// Command ann measures this module's index beside hnswlib, faiss and usearch in one
// run: recall@10 against queries a second on one thread, over the same vectors and
// queries, with builds on all cores. It writes a table and a plot.
//
//	go run ./bench/ann -python PYTHON -data FOLDER -work FOLDER -out bench
//
// FOLDER of -data holds passages.npy and questions.npy. PYTHON has numpy, hnswlib,
// faiss-cpu and usearch; a peer that is missing is said to be missing. Contestants
// take turns, each point is the best of the rounds, and nobody's threads spin while
// another is timed.
//
// The second data set is synthetic, 768-d, fitted to the first (synth.go). It is
// accepted when its local intrinsic dimension lies within 1.5 times the real one's.
package main
