// Package conformance holds computations that every engine must agree on: each op
// that the project's graphs use on odd shapes and on every dtype, the chains that
// engines like to fuse, attention over caches, caches updated in place, products with
// weights that engines store otherwise, and gradients. Compare runs them on two backends and reports where they differ.
package conformance
