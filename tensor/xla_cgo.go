//go:build cgo && (linux || darwin)

package tensor

import (
	"log/slog"
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
		// The plugin's own default reserves three quarters of the GPU or more.
		o := pjrt.NamedValuesMap{"preallocate": opt.MemoryFraction > 0}
		if opt.MemoryFraction > 0 {
			o["memory_fraction"] = float32(opt.MemoryFraction)
		}
		return backendOrNil(xla.NewWithOptions(plugin, o))
	}
	return backendOrNil(xla.NewWithOptions(plugin+",shared_buffers", nil))
}

// backendOrNil keeps a nil *xla.Backend from becoming a non-nil interface.
func backendOrNil(b *xla.Backend, err error) (backends.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}
