//go:build cgo && (linux || darwin)

package tensor

import (
	"log/slog"
	"os"
	"strings"

	"github.com/gomlx/go-xla/pkg/pjrt"
	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/xla"
	"k8s.io/klog/v2"
)

const xlaBuilt = true

func init() {
	// go-xla logs through klog what it also returns as an error.
	klog.LogToStderr(false)
	klog.SetOutput(debugLog{})
}

type debugLog struct{}

func (debugLog) Write(p []byte) (int, error) {
	slog.Debug("xla", "message", strings.TrimSpace(string(p)))
	return len(p), nil
}

// newXLA starts a PJRT client.
func newXLA(name, plugin string, opt Options) (backends.Backend, error) {
	xla.EnableAutoInstall(false)
	if name == "xla:cuda" {
		if err := exactFloat32(); err != nil {
			return nil, err
		}
		// The plugin's own default reserves three quarters of the GPU or more.
		o := pjrt.NamedValuesMap{"preallocate": opt.MemoryFraction > 0}
		if opt.MemoryFraction > 0 {
			o["memory_fraction"] = float32(opt.MemoryFraction)
		}
		return backendOrNil(xla.NewWithOptions(plugin, o))
	}
	return backendOrNil(xla.NewWithOptions(plugin+",shared_buffers", nil))
}

// exactFloat32 makes products of float32 on NVIDIA GPUs float32: by default XLA rounds their
// factors to TF32 (10 bits), in cuBLAS and in kernels of its own, which have no switch but to be
// left out. GoMLX sets no precision in its products, so that the process's environment is where
// it can be said. What the user set there stays.
func exactFloat32() error {
	const triton = "xla_gpu_enable_triton_gemm"
	if flags := os.Getenv("XLA_FLAGS"); !strings.Contains(flags, triton) {
		if err := os.Setenv("XLA_FLAGS", strings.TrimSpace(flags+" --"+triton+"=false")); err != nil {
			return err
		}
	}
	if os.Getenv("NVIDIA_TF32_OVERRIDE") == "" {
		return os.Setenv("NVIDIA_TF32_OVERRIDE", "0")
	}
	return nil
}

// backendOrNil keeps a nil *xla.Backend from becoming a non-nil interface.
func backendOrNil(b *xla.Backend, err error) (backends.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}
