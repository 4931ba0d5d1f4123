// Package simd holds the vector kernels of index and engine: dot products, the
// packed matrix multiply (Gemm) and elementwise operations on float32 (Unary,
// Binary, Where, Sum, Maximum). Each has a plain Go twin that runs where the CPU
// lacks the instructions, and when RAG2_ISA=generic asks for it.
//
// Results do not depend on the caller's threads. They differ between instruction
// set levels by rounding only. Nothing here allocates or keeps its arguments;
// everything may be called concurrently on disjoint destinations.
package simd
