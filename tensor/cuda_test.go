package tensor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The CUDA libraries that a plugin names are found, or named with what brings them.
func TestCUDALibraries(t *testing.T) {
	noPlugins(t)
	dir := t.TempDir()
	plugin := filepath.Join(dir, "xla_cuda12", "xla_cuda_plugin.so")
	libs := filepath.Join(dir, "lib")
	for _, d := range []string{filepath.Dir(plugin), libs} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, s string) {
		if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(plugin, "")
	for _, l := range cudaLibraries[4:] {
		write(filepath.Join(libs, l.name+".so.12"), "")
	}
	f := libraries(plugin, []string{libs})
	if f.OK || !strings.Contains(f.Detail, "not found: libcuda, libcublas, libcublasLt, libcudart;") || !strings.Contains(f.Detail, "install nvidia-cublas-cu12 nvidia-cuda-runtime-cu12 brings") ||
		!strings.Contains(f.Detail, "--gpus all") {
		t.Errorf("%+v", f)
	}
	for _, l := range cudaLibraries[:4] {
		write(filepath.Join(libs, l.name+".so.1"), "")
	}
	if f := libraries(plugin, []string{libs}); !f.OK {
		t.Errorf("%+v", f)
	}
	if fs := CUDA(Options{}); len(fs) != 1 || fs[0].OK {
		t.Errorf("without a GPU: %+v", fs)
	}
	nvidiaDevice = bogus(t, "nvidia0")
	t.Setenv("RAG2_PJRT_PLUGIN", "")
	if fs := CUDA(Options{}); len(fs) != 2 || fs[1].OK || !strings.Contains(fs[1].Detail, "jax-cuda12-plugin") {
		t.Errorf("without a plugin: %+v", fs)
	}
	t.Setenv("LD_LIBRARY_PATH", libs)
	if fs := CUDA(Options{Plugin: plugin}); len(fs) != 3 || !fs[2].OK || fs[1].Detail != plugin {
		t.Errorf("%+v", fs)
	}
	version := filepath.Join(dir, "version")
	write(version, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23\nGCC version\n")
	if f := driverFinding(version); !f.OK || f.Detail != "570.86.15" {
		t.Errorf("%+v", f)
	}
}
