// Package conformance holds computations that every engine must agree on: each op
// that the project's graphs use on odd shapes, the chains that engines like to fuse,
// and gradients. Compare runs them on two backends and reports where they differ.
package conformance
