// Package llama is the Llama family of decoders (Llama, Mistral, SmolLM2) as
// GoMLX graphs: RMSNorm, rotary positions (with Llama-3 scaling), grouped-query
// attention with an optional sliding window, SwiGLU, tied or untied head. It reads
// Hugging Face checkpoints and GGUF files.
//
// The key-value cache lives in host memory that the engine reads in place: a graph
// takes the cache as input and returns only the keys and values of its own tokens,
// which are then copied in. A cache grows with the tokens in use, so that a step costs
// the same whatever the model's context; the native engine reads only the rows in use.
//
// A Session is one sequence. Sequences that begin alike may share the cache of the
// beginning (Session.Continue). A Batch decodes several sequences together. With
// weights in blocks on the native engine a sequence's logits are the same, bit by bit,
// alone, in a batch, and in whatever pieces its prompt was read; elsewhere up to
// rounding.
//
// A Model may be shared; each Session and Batch belongs to one goroutine at a time.
package llama
