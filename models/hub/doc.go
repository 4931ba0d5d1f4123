// Package hub downloads models from a Hugging Face hub into the standard cache
// layout of huggingface_hub, so that both share one copy:
//
//	CACHE/models--ORG--NAME/refs/REVISION         the commit that a branch or tag stood at
//	                       /blobs/HASH            contents, named by sha256 (LFS) or git's sha1
//	                       /blobs/HASH.incomplete what has arrived so far; a later pull resumes here
//	                       /snapshots/COMMIT/PATH relative links to blobs
//	CACHE/.locks/models--ORG--NAME/HASH.lock      held while a blob is written
//
// Names, sizes and hashes come from the hub's API (/api/models/REPO/tree/REV). A
// body that is cut is continued by a Range request; one of another length or hash
// never takes its final name. 429, 5xx, cut and stalled bodies are tried again with
// growing pauses (Retry-After is honoured) as long as bytes arrive now and then;
// 401, 403, 404, web pages instead of files and a full disk are errors at once.
// The token goes to the endpoint's own scheme, host and port, and to no other, also
// after redirects; it is never part of an error or a log line.
//
// A Client is safe for concurrent use, in several processes too (on systems with
// flock). What the package does not do: upload, list repositories, or follow the
// Xet protocol (the hub's plain HTTP bridge serves the same bytes).
package hub
