package tensor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gomlx/gomlx/backends"
	_ "github.com/gomlx/gomlx/backends/simplego" // the "go" engine
)

// ErrUnavailable reports an engine that cannot run here; the error says why.
var ErrUnavailable = errors.New("engine is not available")

// Options steer Open. The zero value is right for most uses.
type Options struct {
	// Plugin is a PJRT plugin file; "" = search (see FindPlugin). "auto" gives it to
	// the XLA engine that its file name fits.
	Plugin string
	Home   string // rag2's data directory, searched for xla/; "" = $RAG2_HOME
	Strict bool   // "auto" fails where it would fall back with a warning
	// MemoryFraction is the share of the GPU's memory, 0 < f ≤ 1, that xla:cuda
	// reserves when it starts and never exceeds. 0 reserves nothing: memory is
	// taken as it is needed. Engines without a GPU ignore it.
	MemoryFraction float64
}

// Validate lists what is wrong with the options.
func (o Options) Validate() error {
	if o.MemoryFraction < 0 || o.MemoryFraction > 1 || o.MemoryFraction != o.MemoryFraction {
		return fmt.Errorf("engine options: memory fraction %g is not between 0 and 1", o.MemoryFraction)
	}
	return nil
}

// Engine is a handle on an open GoMLX backend.
type Engine struct {
	Warnings []string // what was passed over, and why

	name    string
	bf16    bool
	backend backends.Backend
	plugin  string
	key     string
	closed  bool // guarded by mu
}

// shared is a backend and the number of handles on it.
type shared struct {
	backend  backends.Backend
	fraction float64
	refs     int
}

var (
	mu       sync.Mutex
	open     = map[string]*shared{}
	openings = map[string]Opener{}
)

// Opener makes the backend of a registered engine.
type Opener func(Options) (backends.Backend, error)

// Register adds an engine, for use from an init function. "auto" considers the name
// "native" only; any other is opened by its name. A name that is taken panics.
func Register(name string, f Opener) {
	mu.Lock()
	defer mu.Unlock()
	if openings[name] != nil || slices.Contains([]string{"auto", "go", "xla:cpu", "xla:cuda"}, name) {
		panic("tensor: engine " + name + " is registered twice")
	}
	openings[name] = f
}

func opener(name string) Opener {
	mu.Lock()
	defer mu.Unlock()
	return openings[name]
}

// Known lists the engines that this binary contains or could load, best first; the XLA engines are
// there once, without their ":bf16" form.
func Known() []string {
	names := []string{"xla:cuda"}
	if opener("native") != nil {
		names = append(names, "native")
	}
	names = append(names, "xla:cpu", "go")
	mu.Lock()
	defer mu.Unlock()
	var more []string
	for n := range openings {
		if n != "native" {
			more = append(more, n)
		}
	}
	slices.Sort(more)
	return append(names, more...)
}

// Open opens the engine named by spec: "auto" (or ""), "xla:cpu", "xla:cuda", "go"
// or a registered name. With ":bf16" behind it an XLA engine computes the products of
// models in bfloat16; it is the same backend. "auto" is xla:cuda when a CUDA plugin and a device are
// there, else native when the binary has it, else xla:cpu when its plugin is found,
// else go. Errors that mean "not here" wrap ErrUnavailable.
func Open(spec string, opt Options) (*Engine, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if spec != "auto" && spec != "" {
		return openNamed(spec, opt)
	}
	var warnings []string
	skip := func(err error) error {
		if opt.Strict {
			return fmt.Errorf("strict: no fallback to another engine: %w", err)
		}
		warnings = append(warnings, err.Error())
		return nil
	}
	candidates := []string{"xla:cuda", "xla:cpu", "go"}
	if opener("native") != nil {
		candidates = []string{"xla:cuda", "native", "go"}
	}
	for _, name := range candidates {
		opt := opt
		if !fits(name, opt.Plugin) {
			opt.Plugin = "" // meant for the other XLA engine
		}
		if name == "xla:cuda" {
			_, err := FindPlugin(name, opt)
			switch {
			case err != nil && nvidiaPresent():
				err = fmt.Errorf("an NVIDIA GPU is present and is not used: %w", err)
				if err := skip(err); err != nil {
					return nil, err
				}
				continue
			case err != nil:
				continue // no GPU is expected here
			}
		}
		e, err := openNamed(name, opt)
		if err == nil {
			e.Warnings = append(warnings, e.Warnings...)
			return e, nil
		}
		if name == "xla:cpu" {
			err = fmt.Errorf("%w; the slow \"go\" engine runs instead (`make xla` fetches the plugin)", err)
		}
		if err := skip(err); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("auto: %w: %s", ErrUnavailable, strings.Join(warnings, "; "))
}

func openNamed(name string, opt Options) (*Engine, error) {
	e := &Engine{name: name, key: name}
	if base, ok := strings.CutSuffix(name, ":bf16"); ok && strings.HasPrefix(name, "xla:") {
		name, e.key, e.bf16 = base, base, true
	}
	var start func() (backends.Backend, error)
	switch name {
	case "go":
		// With operations in parallel, its workers wait for each other for ever when as many
		// matrix products are ready as there are CPUs.
		start = func() (backends.Backend, error) { return backends.NewWithConfig("go:ops_sequential") }
	case "xla:cpu", "xla:cuda":
		if !xlaBuilt {
			return nil, fmt.Errorf("%s: %w: this binary was built without cgo and contains no XLA; use another engine or a cgo build", name, ErrUnavailable)
		}
		var err error
		if e.plugin, err = FindPlugin(name, opt); err != nil {
			return nil, err
		}
		e.key = name + " " + e.plugin
		start = func() (backends.Backend, error) { return newXLA(name, e.plugin, opt) }
	default:
		f := opener(name)
		if f == nil {
			return nil, fmt.Errorf("engine %q: %w: the engines are auto, %s", name, ErrUnavailable, strings.Join(Known(), ", "))
		}
		start = func() (backends.Backend, error) { return f(opt) }
	}
	mu.Lock()
	defer mu.Unlock()
	s := open[e.key]
	if s == nil {
		b, err := recovered(start)
		if err == nil {
			if err = checkDevice(name, b); err != nil {
				b.Finalize()
			}
		}
		if err != nil {
			at := ""
			if e.plugin != "" {
				at = " plugin " + e.plugin + ":"
			}
			return nil, fmt.Errorf("%s: %w:%s %w", name, ErrUnavailable, at, err)
		}
		s = &shared{backend: b, fraction: opt.MemoryFraction}
		open[e.key] = s
	} else if s.fraction != opt.MemoryFraction {
		e.Warnings = append(e.Warnings, fmt.Sprintf("%s is already open with memory fraction %g; %g is not applied", name, s.fraction, opt.MemoryFraction))
	}
	s.refs++
	e.backend = s.backend
	return e, nil
}

// checkDevice refuses a backend without devices and a plugin of the other kind.
func checkDevice(name string, b backends.Backend) error {
	if b.NumDevices() < 1 {
		return errors.New("it shows no device")
	}
	if !strings.HasPrefix(name, "xla:") {
		return nil
	}
	d := b.DeviceDescription(0)
	if cpu := strings.Contains(strings.ToLower(d), "cpu"); cpu != (name == "xla:cpu") {
		return fmt.Errorf("its device is %q", oneLine(d))
	}
	return nil
}

// recovered turns panics of GoMLX (an unknown backend name, a plugin's fault) into
// errors, and forbids it to download plugins.
func recovered(start func() (backends.Backend, error)) (b backends.Backend, err error) {
	defer func() {
		if r := recover(); r != nil {
			b, err = nil, fmt.Errorf("%v", r)
		}
	}()
	if err := os.Setenv("GOMLX_NO_AUTO_INSTALL", "1"); err != nil {
		return nil, err
	}
	return start()
}

// Backend is the GoMLX backend. It lives until the last handle is closed.
func (e *Engine) Backend() backends.Backend { return e.backend }

// Name is the engine's name: what "auto" became.
func (e *Engine) Name() string { return e.name }

// BF16 tells whether products with weights are to be computed in bfloat16; everything else is
// float32.
func (e *Engine) BF16() bool { return e.bf16 }

// MemoryFraction is the share of the device's memory that was reserved, 0 = none was.
func (e *Engine) MemoryFraction() float64 {
	mu.Lock()
	defer mu.Unlock()
	if s := open[e.key]; s != nil && strings.HasPrefix(e.name, "xla:cuda") {
		return s.fraction
	}
	return 0
}

// Plugin is the PJRT plugin file, "" for engines without one.
func (e *Engine) Plugin() string { return e.plugin }

// Devices is the number of devices the engine can use.
func (e *Engine) Devices() int { return e.backend.NumDevices() }

// Close gives the handle back; the last one frees the backend. Closing a handle
// again does nothing.
func (e *Engine) Close() {
	mu.Lock()
	defer mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	s := open[e.key]
	if s.refs--; s.refs == 0 {
		delete(open, e.key)
		s.backend.Finalize()
	}
}
