//go:build cgo && (linux || darwin)

package tensor

import (
	"os"
	"testing"
)

func TestExactFloat32KeepsTheUsersFlags(t *testing.T) {
	for _, c := range [][4]string{
		{"", "", "--xla_gpu_enable_triton_gemm=false", "0"},
		{"--xla_dump_to=x", "1", "--xla_dump_to=x --xla_gpu_enable_triton_gemm=false", "1"},
		{"--xla_gpu_enable_triton_gemm=true", "", "--xla_gpu_enable_triton_gemm=true", "0"},
	} {
		t.Setenv("XLA_FLAGS", c[0])
		t.Setenv("NVIDIA_TF32_OVERRIDE", c[1])
		if err := exactFloat32(); err != nil {
			t.Fatal(err)
		}
		if a, b := os.Getenv("XLA_FLAGS"), os.Getenv("NVIDIA_TF32_OVERRIDE"); a != c[2] || b != c[3] {
			t.Errorf("%q: %q %q", c, a, b)
		}
	}
}
