package tensor

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/gomlx/gomlx/backends"
	_ "github.com/gomlx/gomlx/backends/simplego" // the "go" engine
)

// ErrUnavailable reports an engine that cannot run here; the error says why.
var ErrUnavailable = errors.New("engine is not available")

// Options steer Open. The zero value is right for most uses.
type Options struct {
	Plugin string // PJRT plugin file; "" = search (see FindPlugin)
	Home   string // rag2's data directory, searched for xla/libpjrt_cpu.so
	Strict bool   // "auto" must not fall back past a plugin that fails to load
}

// Engine is an open GoMLX backend.
type Engine struct {
	name     string
	backend  backends.Backend
	plugin   string
	Warnings []string // what was passed over, and why
	key      string
}

type shared struct {
	engine *Engine
	refs   int
}

var (
	mu   sync.Mutex
	open = map[string]*shared{}
)

// Open opens the engine named by spec: "auto", "xla:cpu", "xla:cuda" or "go".
// "auto" is xla:cuda when a CUDA plugin and a device are there, else xla:cpu when
// its plugin is found, else go.
func Open(spec string, opt Options) (*Engine, error) {
	if spec == "" {
		spec = "auto"
	}
	if spec != "auto" {
		return openNamed(spec, opt)
	}
	var warnings []string
	for _, name := range []string{"xla:cuda", "xla:cpu"} {
		if _, err := FindPlugin(name, opt); err != nil {
			if name == "xla:cpu" {
				warnings = append(warnings, fmt.Sprintf("%v; running on the slow \"go\" engine (`make xla` fetches the plugin)", err))
			}
			continue
		}
		e, err := openNamed(name, opt)
		if err == nil {
			e.Warnings = append(warnings, e.Warnings...)
			return e, nil
		}
		if opt.Strict {
			return nil, err
		}
		warnings = append(warnings, err.Error())
	}
	e, err := openNamed("go", opt)
	if err != nil {
		return nil, err
	}
	e.Warnings = append(warnings, e.Warnings...)
	return e, nil
}

func openNamed(name string, opt Options) (*Engine, error) {
	var plugin string
	config := ""
	switch name {
	case "go":
		config = "go"
	case "xla:cpu", "xla:cuda":
		if !xlaBuilt {
			return nil, fmt.Errorf("%s: %w: this binary was built without cgo and contains no XLA; use the engine \"go\" or a cgo build", name, ErrUnavailable)
		}
		var err error
		if plugin, err = FindPlugin(name, opt); err != nil {
			return nil, err
		}
		config = "xla:" + plugin
		if name == "xla:cpu" {
			config += ",shared_buffers"
		}
	default:
		return nil, fmt.Errorf("engine %q: %w: the engines are auto, xla:cpu, xla:cuda, go", name, ErrUnavailable)
	}
	mu.Lock()
	defer mu.Unlock()
	s := open[config]
	if s == nil {
		b, err := newBackend(config)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: plugin %s: %v", name, ErrUnavailable, orNone(plugin), err)
		}
		s = &shared{engine: &Engine{name: name, backend: b, plugin: plugin, key: config}}
		open[config] = s
	}
	s.refs++
	e := *s.engine
	return &e, nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// newBackend turns GoMLX's panics into errors.
func newBackend(config string) (b backends.Backend, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	if err := os.Setenv("GOMLX_NO_AUTO_INSTALL", "1"); err != nil {
		return nil, err
	}
	return backends.NewWithConfig(config)
}

// Backend is the GoMLX backend.
func (e *Engine) Backend() backends.Backend { return e.backend }

// Name is "xla:cpu", "xla:cuda" or "go".
func (e *Engine) Name() string { return e.name }

// Plugin is the PJRT plugin file, "" for engines without one.
func (e *Engine) Plugin() string { return e.plugin }

// Devices is the number of devices the engine can use.
func (e *Engine) Devices() int { return e.backend.NumDevices() }

// Describe is one line: engine, device, version and plugin.
func (e *Engine) Describe() string {
	d := strings.Join(strings.Fields(e.backend.Description()), " ")
	s := fmt.Sprintf("%s: %s, %d device(s): %s", e.name, d, e.backend.NumDevices(), strings.Join(strings.Fields(e.backend.DeviceDescription(0)), " "))
	if e.plugin != "" {
		s += ", plugin " + e.plugin
	}
	return s
}

// Close gives the engine back; the last Close frees it.
func (e *Engine) Close() {
	mu.Lock()
	defer mu.Unlock()
	s := open[e.key]
	if s == nil {
		return
	}
	if s.refs--; s.refs == 0 {
		delete(open, e.key)
		s.engine.backend.Finalize()
	}
}
