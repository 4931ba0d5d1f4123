// Package hnswtest is the suite that every nearest-neighbour index of this module
// must pass: recall with fixed thresholds on data that break careless indexes, and
// the ordinary edge cases. Run it from a test with a maker of the implementation.
package hnswtest
