// Package native is a GoMLX backend in Go and assembly: no library, no plugin, one
// static binary. Importing it registers the engines "native", "native:bf16",
// "native:f16" and "native:int8" with package tensor.
//
// # What it runs
//
// Every op that the BERT, T5 and Llama graphs of this project and their gradients
// use, on float32, and more slowly on float64, integers, booleans, float16 and
// bfloat16 (computed in float32). An op that is missing is an error that names it,
// when the graph is built. One device, no sharding, no complex numbers.
//
// # How it runs
//
// Compile turns the graph into steps. Reshape, Transpose, BroadcastInDim and Slice
// are views (offset and strides) and cost nothing. Elementwise float32 operations
// and reductions of the last axes become row programs: one pass over tiles that fit
// L1, whatever the chain is (layer norm, softmax, GELU and so on need no pattern of
// their own). DotGeneral runs on packed panels of its right operand; the panels of a
// buffer that came from the host (a weight) are made once and kept on the buffer.
// Intermediate arrays share one arena whose layout is fixed by Compile.
//
// # Weights
//
// A float32 matrix may be stored otherwise than it looks: a weight that was packed
// drops its flat copy, and Backend.BlockBuffer keeps GGUF blocks and 16-bit elements as
// they are. Products and row gathers read both; any other op makes the flat form
// again. The engine "native:int8" keeps weights in 7-bit integers and quantises
// activations per row; "native:bf16" and "native:f16" round weights to 16 bits and
// widen them in products, whose sums stay float32; with AVX512-BF16 "native:bf16" multiplies
// in bfloat16, activations rounded too. Weights that come through
// Backend.LazyBuffer are read one after the other as they are converted, so that the
// process never holds more than one of them twice.
//
// # Attention
//
// The softmax of masked scores over one or several segments of keys, times values,
// becomes one step, which reads only what the masks show (see opAttention): a step of
// generation does not pay for a cache's room. A DynamicUpdateSlice of a donated
// parameter writes to the parameter's memory.
//
// # Concurrency
//
// Everything may be called concurrently. An execution uses the calling goroutine and
// the backend's workers (GOMAXPROCS-1 of them, parked when idle); executions that
// run at the same time share the workers. Results do not depend on the number of
// workers.
//
// # Lifetime
//
// Buffers hold Go memory; BufferFinalize gives it back for reuse by later outputs.
// A slice from BufferData or NewSharedBuffer is invalid after that. Donated inputs
// are finalized by Execute.
package native
