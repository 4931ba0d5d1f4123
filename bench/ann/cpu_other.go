//go:build !unix

package main

import "time"

var start = time.Now()

// cpuSeconds is wall time where CPU time is not asked for.
func cpuSeconds() float64 { return time.Since(start).Seconds() }
