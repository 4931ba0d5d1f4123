package fmapeak

//go:noescape
func fma256(n int)

//go:noescape
func fma512(n int)

// The callers see to it that the CPU has the instructions.
var loops = map[int]loop{256: {fma256, 12 * 8 * 2}, 512: {fma512, 24 * 16 * 2}}
