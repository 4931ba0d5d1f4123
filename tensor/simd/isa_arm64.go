package simd

// Every arm64 CPU has NEON.
func supported() []ISA { return []ISA{Generic, NEON} }
