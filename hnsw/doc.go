// Package hnsw finds the rows of vector files that are nearest to a query: exactly,
// by scanning, or through a hierarchical navigable small world graph (Malkov &
// Yashunin 2018) that is mapped from one file beside the vectors.
//
// # What it does
//
// Vectors are .npy files (float32 or float16, n × dim, one or several), read in place
// and never copied into the index. Nearness is the inner product (the default, on
// vectors as they are), Euclidean distance or cosine; the score is always the larger
// the nearer. Zero, NaN and infinite vectors are refused, at build and as queries.
// Rows with the content of an earlier row are kept out of the graph and come back
// beside it. Every other row is reachable: a build ends with a check and repair.
//
// The walk reads the vectors or codes of them (8, 4 or 1 bit a dimension, or 4 bits of
// each of the quarter of principal directions, see Codes);
// with codes, full vectors only rescore the best. Scores of hits are always those of
// an exact search, bit for bit.
//
// Build places nodes in rounds against the graph as it was before the round (as
// ParlayANN, Dobson et al. 2023, does), so that the file depends on vectors, options
// and instruction set level, not on threads or interruptions. Checkpoints make a
// killed build resumable.
//
// A Set is a folder of segments with deletions and a small part that is scanned;
// Merge makes fewer segments of many. Plan predicts sizes, Tune picks the breadth of
// the walk for a recall, ImportMedCPT reads NCBI's embeddings.
//
// # What it does not do
//
// It does not embed texts, keep them, or change an index in place.
//
// # Concurrency and lifetime
//
// An Index or Set may be searched by any number of goroutines. Close needs them to
// have returned. Returned hits are the caller's. A file that is cut while it is
// mapped makes searches fail with mmapfile.ErrFault.
//
// # Memory
//
// Open maps its files and reads the header alone; nothing else is resident until a
// search reads it. A walk reads lists (one page each) and codes at random, rescoring
// reads whole vectors, one or two pages each. All of these pages are clean and backed
// by files: under memory pressure the kernel drops them, and a search then waits for
// the disk, slower but correct: at 1,000,000 × 768 with a quarter of the graph cached, a
// query at recall 0.95 took 6 ms (4-bit codes, median; 0.6 ms in memory), and none of
// 300 took half a second. Codes belong in memory, since a walk scores some
// twenty rows for each list it reads; Warm "codes" reads them ahead. Cold lets a disk
// serve the rows of a rescoring together. Resident copies graph and codes to huge
// pages, which the kernel cannot drop: for indexes that fit. Index.Resident tells how
// much of each section is in memory, Plan what each takes.
//
// Building holds 8-bit codes and lengths (dim+12 bytes a row) and level 0 (8M bytes a
// row) in memory; vectors are read in order, twice.
//
// # File format
//
// Little-endian. A file is a header and sections at multiples of 4096, with zeros
// between; the header is checked at open, the rest by Verify.
//
//	 0  8  "RAG2HNSW" (an index) or "RAG2CKPT" (a checkpoint of a build)
//	 8  4  u32 format version: 2. A reader refuses versions it does not know.
//	12  4  u32 feature version: 1. Higher ones add sections that may be ignored.
//	16  4  u32 length of the header: 64 + 32 × sections
//	20  4  u32 number of sections
//	24  8  u64 length of the file
//	32  4  u32 CRC-32C of the header without these four bytes
//	36 28  zero
//	64 32  for each section: 4 bytes tag, u32 CRC-32C of the section, u64 offset,
//	       u64 length, 8 bytes zero
//
// Sections, n rows, dim dimensions, M neighbours, in this order:
//
//	PARM  160 bytes:
//	        0 u64 n           8 u32 dim        12 u32 M      16 u32 efConstruction
//	       20 u32 metric (0 ip, 1 l2, 2 cosine)
//	       24 u32 codes (0 none, 1 int8, 2 4-bit, 3 1-bit, 4 principal)
//	       28 u32 1 when the graph was built from full vectors
//	       32 u64 seed       40 u32 entry: row 44 u32 entry: number above level 0
//	       48 u32 top level  52 f32 largest norm
//	       56 u64 nodes above level 0          64 u64 their lists
//	       72 u64 copies     80 u64 rows in the graph (less than n in a checkpoint)
//	       88 u64 rounds     96 32 bytes SHA-256 naming the vectors' content:
//	          of a line "dtype rows sha256-of-array\n" for each shard
//	      128 u64 rows whose graph was taken over from another index (Merge)
//	      136 u32 how edges were chosen: 1 inner products less an eighth of the
//	          squared length, 0 plain products; for other metrics the same
//	      140 zero
//	SHRD  JSON: the .npy files (see Shard)                        (index)
//	ISAL  instruction set level, ASCII                            (checkpoint)
//	MEAN  dim × f32: the mean row, of unit rows for cosine        (index)
//	DUPS  {u32 first row, u32 its copy} sorted by both            (index)
//	NORM  n × f32: |x|² for l2, 1/|x| for cosine; absent for ip   (index)
//	UPRW  u32 for each node above level 0: its row, ascending
//	UPFL  u32 for each of them: its first list in UPLS; then the number of lists
//	UPLS  lists of M u32, one for each level from 1 up: numbers of neighbours (which
//	      count nodes above level 0, not rows), 0xffffffff from the first free place
//	LVL0  n lists of 2M u32: neighbours' rows, 0xffffffff likewise
//	PROJ  w × dim × f32, the matrix P of principal codes, w being dim/4 rounded to a
//	      multiple of 64, at least 64; for other codes absent
//	CODE  n codes: f32 A, f32 B, then per 64 dimensions (dim is rounded up with zeros)
//	      int8:  64 signed bytes
//	      4-bit: 32 bytes, low halves dimensions 0…31, high halves 32…63, value-7.5
//	      1-bit: u64, bit i set where dimension i is positive
//	      principal: as 4-bit, w dimensions
//
// Codes are of T(x-mean), with T = H₃S₃H₂S₂H₁S₁H₀S₀: Sᵢ flips signs (bit 0 of
// mix(seed, i<<32|j)), Hᵢ is the orthogonal Walsh–Hadamard transform of the largest
// power of two p ≤ rounded dim, on the first p coordinates for even i, the last p for
// odd i; when p is all of them, i = 3 is left out. Principal codes are of P(x-mean):
// orthonormal directions in which a sample of rows differs most, turned by such a T of
// w dimensions. A and B are explained at coder. Level-0 lists of a power of two up to M 512 never cross a page.
//
// History: format 1, a fixed header without sections, was never released.
package hnsw
