// Package simd holds the vector kernels of index and engine: dot products, the
// packed matrix multiply (Gemm) and elementwise operations on float32 (Unary,
// Binary, Where, Sum, Maximum). Each has a plain Go twin that runs where the CPU
// lacks the instructions, and when RAG2_ISA=generic asks for it.
//
// # Levels
//
// The best level of the CPU is used, or the one that RAG2_ISA names. "avx2" has every
// kernel but those of attention over caches. "avx512" has its own products (of float32, of
// GGUF blocks and 16-bit elements), attention over caches, elementwise loops and float
// distances and shares the others; "avx512vnni" adds 8-bit products, block products that
// add in one instruction, and code scores; "avx512bf16" adds products of bfloat16 pairs
// (BlockBF16Pairs). "neon" has float products, elementwise loops,
// distances and code scores; int8 products and GGUF blocks are plain Go there.
//
// Results do not depend on the caller's threads. They differ between instruction
// set levels by rounding only. Nothing here allocates or keeps its arguments;
// everything may be called concurrently on disjoint destinations.
package simd
