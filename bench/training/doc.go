// Command training measures training steps (forward, backward, AdamW) of a BERT
// cross-encoder and of a T5 filter on the native engine and in torch, taking turns in one
// run:
//
//	go run ./bench/training -python PYTHON -bert DIR -t5 DIR
//
// DIR are Hugging Face directories. Wall time and CPU time of a step are medians over the
// rounds; the ratio is paired by round.
package main
