// Package t5 is the T5 encoder–decoder (Raffel et al. 2020; version 1.1 and Flan) as
// GoMLX graphs: RMSNorm without a mean before each block, attention without scaling,
// relative position biases of layer 0 shared by all layers, a gated GELU (tanh
// approximation) or ReLU feed-forward, and a head that is its own matrix or the word
// embeddings with their input scaled by d_model^-0.5. It reads Hugging Face
// checkpoints (T5ForConditionalGeneration), sharded or not, and GGUF files of
// architecture t5.
//
// Everything is computed in float32, whatever the checkpoint holds: the feed-forward
// of T5 overflows in float16. Values that are no numbers are ErrNotFinite.
//
// A Model runs two kinds of work: FirstStep, the logits of a few tokens at the first
// decoder step for a batch of inputs (a classifier by label tokens), and Generate,
// greedy decoding of one input with cached cross- and self-attention. Encode, Decode
// and Head build the same network from parameters that the caller owns, with common
// operations that all have gradients: training uses them.
//
// A Model is safe for concurrent use. A row's result does not depend on the others
// of its batch.
package t5
