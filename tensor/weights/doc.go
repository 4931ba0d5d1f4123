// Package weights reads model weights from safetensors files (single or
// sharded by an index) and GGUF files over read-only mappings. Opening costs
// the header alone; tensors are converted to float32 when asked for, or handed
// out as the mapped bytes they are.
//
// Every offset of a file is checked when it is opened: a truncated or
// contradictory file is an *ErrCorrupt that names file, section and position,
// never a panic. A File may be read by any number of goroutines until Close;
// slices returned by Raw are valid until then and must not be written.
package weights
