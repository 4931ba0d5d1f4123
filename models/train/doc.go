// Package train fine-tunes networks with GoMLX gradients on any engine: AdamW with
// decoupled weight decay (Loshchilov and Hutter, 2019), a linear schedule with warm-up,
// gradient accumulation and clipping by the global norm, all in float32.
//
// A Trainer holds parameters and optimiser state on the host; the engine computes loss
// and gradients of a batch. The update is computed here, in the order of torch's AdamW,
// so that both follow the same curve.
//
// CrossEncoder trains a BERT cross-encoder on groups of one positive and some negatives
// by the softmax over a group's logits, or on single pairs by the logistic loss. It writes
// a Hugging Face directory. A Trainer serves one goroutine.
package train
