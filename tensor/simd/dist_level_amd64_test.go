package simd

// setDistAVX2 switches the assembly off or back on and returns the value before.
func setDistAVX2(on bool) bool {
	old := distAVX2
	distAVX2 = on
	return old
}
