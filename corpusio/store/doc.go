// Package store keeps passages as JSON lines in seekable zstd, with O(1) access by
// row and by id.
//
// passages.jsonl.zst is an ordinary zstd file in the seekable format (frames of at
// most 64 KiB of text, or one larger passage), so zstdcat reads it. passages.idx
// lies beside it and is mapped:
//
//	bytes  content (little-endian)
//	0      "RAG2PIDX"
//	8      u32 format version (1)
//	12     u32 CRC-32C of bytes 16…95
//	16     u64 n, passages
//	24     u64 m, frames
//	32     u64 size of passages.jsonl.zst
//	40     16 bytes store id: SHA-256 (cut) of the uncompressed JSON lines
//	56     u32 CRC-32C of each section: rows, frames, ids, and of
//	       passages.jsonl.zst; 72…95 zero
//	96     rows:   n × {u32 frame, u32 byte within the frame}
//	       frames: (m+1) × u64 position in passages.jsonl.zst; the last is the end
//	       ids:    n × {u64 FNV-1a hash of the id, u64 row}, sorted by hash, then row
//
// Open checks sizes, versions and the header's CRC and costs the same for any
// number of passages; Verify rereads everything. A Store may be read by any number
// of goroutines.
package store
