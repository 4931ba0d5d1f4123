// Package tensor chooses the engine that runs the models' graphs.
//
// Engines are GoMLX backends: "xla:cpu" and "xla:cuda" (a PJRT plugin found at
// run time; builds with cgo only) and "go" (GoMLX's own simple interpreter).
// Open("auto") takes the best one present. What was chosen, and anything that was
// passed over, is in Engine.Describe and Engine.Warnings; with Options.Strict a
// fallback is an error instead.
//
// An Engine is shared: one PJRT client exists per plugin and process, and Open
// returns the same one until the last Close.
package tensor
