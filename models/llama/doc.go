// Package llama is the Llama family of decoders (Llama, Mistral, SmolLM2) as
// GoMLX graphs: RMSNorm, rotary positions (with Llama-3 scaling), grouped-query
// attention with an optional sliding window, SwiGLU, tied or untied head. It reads
// Hugging Face checkpoints and GGUF files.
//
// The key-value cache lives in host memory that the engine reads in place: a graph
// takes the cache as input and returns only the keys and values of its own tokens,
// which are then copied in. A step therefore costs the same whatever the cache's
// capacity, up to the attention itself, and no engine needs to update in place.
//
// A Model may be shared; each Session (one sequence) belongs to one goroutine at a
// time.
package llama
