package simd

// Pause waits for a few dozen nanoseconds, leaving the core to its other thread.
func Pause()
