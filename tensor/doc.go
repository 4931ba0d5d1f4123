// Package tensor chooses the engine that runs the models' graphs.
//
// Engines are GoMLX backends: "xla:cuda" and "xla:cpu" (a PJRT plugin found at
// run time by FindPlugin; builds with cgo only), "native" (when the binary
// registers one, see Register) and "go" (GoMLX's own interpreter, a reference
// rather than an engine). "native:int8", which computes products with weights in
// integers, runs only when asked for by name. Open("auto") takes the first of these that runs here;
// Known lists them in that order.
//
// Nothing is passed over in silence: Engine.Warnings says which better engine was
// not taken and why, and with Options.Strict that is an error instead. Faults of
// plugins and drivers are errors that wrap ErrUnavailable, never panics.
//
// An Engine is a handle on a shared backend: one PJRT client exists per plugin and
// process, and lives until the last handle is closed. Buffers, programs and models
// made on it must be freed before. All functions may be called concurrently.
package tensor
