// Package models holds what the pipeline asks of neural models: Encoder,
// CrossEncoder, Filter and Generator, and their implementations on a
// tensor.Engine.
//
// Batching is by token budget over a few padded shapes; the result of one input
// never depends on its batch mates. Implementations are safe for concurrent
// use unless they say otherwise.
package models
