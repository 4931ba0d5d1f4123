// Package hnsw finds the rows of a vector file with the largest inner product with
// a query: exactly, by scanning, or through a hierarchical navigable small world
// graph (Malkov & Yashunin 2018) kept in one mapped file beside the vectors.
//
// Vectors are .npy files (float32 or float16) read in place. They are not
// normalised: nearness, in building as in searching, is the inner product itself,
// and the neighbour heuristic keeps edges that lead to larger products. Zero, NaN
// and infinite vectors are refused, at build and as queries.
//
// The file (little-endian, magic "RAG2HNSW"):
//
//	0    magic
//	8    u32 format version (1); 12: u32 CRC-32C of bytes 16…127
//	16   u64 n; 24: u32 dim; 28: u32 M; 32: u32 efConstruction; 36: u32 entry row
//	40   u32 top level; 44: f32 largest norm; 48: u64 seed
//	56   u64 number of nodes above level 0
//	64   u32 CRC-32C of each section: level 0, upper index, upper lists; 76…127 zero
//	128  level 0:     n × (1+2M) u32: number of neighbours, their rows
//	     upper index: u × {u32 row, u32 first list}, sorted by row
//	     upper lists: one (1+M) u32 list per node and level ≥ 1
//
// An Index may be searched by any number of goroutines.
package hnsw
