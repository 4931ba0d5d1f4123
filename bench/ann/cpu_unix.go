//go:build unix

package main

import "golang.org/x/sys/unix"

// cpuSeconds is the CPU time of this process, user and system.
func cpuSeconds() float64 {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}
