package simd

import "golang.org/x/sys/cpu"

func supported() []ISA {
	out := []ISA{Generic}
	x := &cpu.X86
	if !(x.HasAVX2 && x.HasFMA && x.HasBMI2) {
		return out
	}
	out = append(out, AVX2)
	if !(x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL) {
		return out
	}
	out = append(out, AVX512)
	if !x.HasAVX512VNNI {
		return out
	}
	out = append(out, VNNI)
	if x.HasAVX512BF16 {
		out = append(out, BF16)
	}
	return out
}
