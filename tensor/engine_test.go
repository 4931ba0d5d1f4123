package tensor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/backends"
)

// noPlugins hides every plugin of this machine.
func noPlugins(t *testing.T) {
	t.Helper()
	d := t.TempDir()
	for _, k := range []string{"RAG2_HOME", "RAG2_CACHE", "XDG_CACHE_HOME", "HOME"} {
		t.Setenv(k, filepath.Join(d, "none"))
	}
	t.Setenv("RAG2_PJRT_PLUGIN", "")
	old, device := sitePackages, nvidiaDevice
	sitePackages, nvidiaDevice = func() []string { return []string{filepath.Join(d, "site")} }, filepath.Join(d, "nvidia0")
	t.Cleanup(func() { sitePackages, nvidiaDevice = old, device })
}

// cpuPlugin is the plugin of this machine; without one the test is skipped.
func cpuPlugin(t *testing.T) string {
	t.Helper()
	if !xlaBuilt {
		t.Skip("built without cgo: no XLA to test")
	}
	p, err := FindPlugin("xla:cpu", Options{})
	if err != nil {
		t.Skip("XLA:CPU is not tested:", err)
	}
	return p
}

func bogus(t *testing.T, name string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte("not a library"), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUnknownEngine(t *testing.T) {
	if _, err := Open("tpu", Options{}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "xla:cpu") {
		t.Error(err)
	}
	if _, err := Open("go", Options{MemoryFraction: 1.5}); err == nil {
		t.Error("a memory fraction of 1.5 was accepted")
	}
}

func TestBogusPlugin(t *testing.T) {
	noPlugins(t)
	if !xlaBuilt {
		if _, err := Open("xla:cpu", Options{}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "cgo") {
			t.Error(err)
		}
		return
	}
	if _, err := Open("xla:cpu", Options{Plugin: filepath.Join(t.TempDir(), "none.so")}); !errors.Is(err, ErrUnavailable) {
		t.Error("missing plugin:", err)
	}
	cpu, cuda := bogus(t, "libpjrt_cpu.so"), bogus(t, "xla_cuda_plugin.so")
	if _, err := Open("xla:cpu", Options{Plugin: cpu}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "too short") {
		t.Error("bogus plugin, the loader's words are wanted:", err)
	}
	for _, p := range []string{cpu, cuda} {
		if _, err := Open("auto", Options{Plugin: p, Strict: true}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("strict auto fell back past %s: %v", p, err)
		}
		e, err := Open("auto", Options{Plugin: p})
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != "go" || len(e.Warnings) == 0 || !strings.Contains(strings.Join(e.Warnings, "\n"), p) {
			t.Errorf("fell back to %s with %q", e.Name(), e.Warnings)
		}
		e.Close()
	}
}

func TestGPUWithoutPluginIsSaid(t *testing.T) {
	noPlugins(t)
	nvidiaDevice = bogus(t, "nvidia0")
	e, err := Open("auto", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if !strings.Contains(strings.Join(e.Warnings, "\n"), "GPU is present and is not used") {
		t.Errorf("warnings %q", e.Warnings)
	}
	if _, err := Open("auto", Options{Strict: true}); !errors.Is(err, ErrUnavailable) {
		t.Error("strict:", err)
	}
}

func TestPluginOfTheOtherKind(t *testing.T) {
	p := cpuPlugin(t)
	if _, err := Open("xla:cuda", Options{Plugin: p}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "cpu") {
		t.Error("a CPU plugin was taken for CUDA:", err)
	}
	e, err := Open("xla:cpu", Options{Plugin: p})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	i := e.Info()
	if i.Version == "" || i.Devices < 1 || i.Plugin != p || !strings.Contains(i.Device, "cpu") {
		t.Errorf("%+v", i)
	}
}

func TestFindPlugin(t *testing.T) {
	noPlugins(t)
	_, err := FindPlugin("xla:cuda", Options{})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "RAG2_PJRT_PLUGIN") {
		t.Error(err)
	}
	put := func(parts ...string) string {
		p := filepath.Join(parts...)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := func(engine string, opt Options, path string) {
		t.Helper()
		if got, err := FindPlugin(engine, opt); err != nil || got != path {
			t.Errorf("%s: %s (%v), want %s", engine, got, err, path)
		}
	}
	// From the last place that is searched to the first.
	site := sitePackages()[0]
	want("xla:cpu", Options{}, put(site, "fastatomstruct_xla_cpu", "libpjrt_cpu.so"))
	put(site, "jax_plugins", "xla_cuda12", "xla_cuda_plugin.so")
	want("xla:cuda", Options{}, put(site, "jax_plugins", "xla_cuda13", "xla_cuda_plugin.so"))
	for _, k := range []string{"RAG2_CACHE", "RAG2_HOME"} {
		d := t.TempDir()
		t.Setenv(k, d)
		want("xla:cpu", Options{}, put(d, "xla", "libpjrt_cpu.so"))
	}
	d := t.TempDir()
	want("xla:cpu", Options{Home: d}, put(d, "xla", "libpjrt_cpu.so"))
	p := put(t.TempDir(), "my_cpu.so")
	t.Setenv("RAG2_PJRT_PLUGIN", p)
	want("xla:cpu", Options{Home: d}, p)
	if got, err := FindPlugin("xla:cuda", Options{}); err != nil || got == p {
		t.Errorf("xla:cuda took %s (%v)", got, err)
	}
	q := put(t.TempDir(), "other.so")
	want("xla:cuda", Options{Plugin: q}, q)
}

func TestEngineIsShared(t *testing.T) {
	a, err := Open("go", Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open("go", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a.Backend() != b.Backend() {
		t.Error("two backends for one engine")
	}
	a.Close()
	a.Close() // the second time must not take b's share
	if b.Backend().IsFinalized() {
		t.Error("closed under another user")
	}
	if !strings.HasPrefix(b.Describe(), "go: ") {
		t.Error(b.Describe())
	}
	b.Close()
	if !b.Backend().IsFinalized() {
		t.Error("the last Close did not free the backend")
	}
}

func TestRegister(t *testing.T) {
	noPlugins(t)
	if opener("native") != nil {
		t.Skip("this binary registers native itself")
	}
	fail := errors.New("no AVX2")
	Register("native", func(Options) (backends.Backend, error) { return nil, fail })
	t.Cleanup(func() {
		mu.Lock()
		delete(openings, "native")
		mu.Unlock()
	})
	if _, err := Open("auto", Options{Strict: true}); !errors.Is(err, fail) || !errors.Is(err, ErrUnavailable) {
		t.Error("strict:", err)
	}
	e, err := Open("auto", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if e.Name() != "go" || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "no AVX2") {
		t.Errorf("%s, warnings %q", e.Name(), e.Warnings)
	}
	e.Close()
	mu.Lock()
	openings["native"] = func(Options) (backends.Backend, error) { return backends.NewWithConfig("go") }
	mu.Unlock()
	if e, err = Open("auto", Options{}); err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Name() != "native" || len(e.Warnings) != 0 {
		t.Errorf("%s, warnings %q", e.Name(), e.Warnings)
	}
	if k := Known(); strings.Join(k, " ") != "xla:cuda native xla:cpu go" {
		t.Error(k)
	}
}

func TestPanicBecomesError(t *testing.T) {
	// An unknown backend name is a panic in GoMLX.
	_, err := recovered(func() (backends.Backend, error) { return backends.NewWithConfig("nothing:x") })
	if err == nil {
		t.Error("no error")
	}
}

func TestMemory(t *testing.T) {
	d := t.TempDir()
	write := func(name, s string) {
		if err := os.WriteFile(filepath.Join(d, name), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\nbroken\n")
	check := func(wantTotal, wantFree int64) {
		t.Helper()
		if total, free := hostMemory(filepath.Join(d, "meminfo"), d); total != wantTotal || free != wantFree {
			t.Errorf("%d, %d, want %d, %d", total, free, wantTotal, wantFree)
		}
	}
	check(2<<20, 1<<20)
	write("memory.max", "max\n")
	check(2<<20, 1<<20)
	write("memory.max", "1048576\n")
	write("memory.current", "1000000\n")
	check(1<<20, 48576)
	write("memory.stat", "anon 1\ninactive_file 300000\nactive_file 100000\n")
	check(1<<20, 448576)
	if total, _ := hostMemory(filepath.Join(d, "none"), d); total != 0 {
		t.Error(total)
	}
	var i Info
	i.readSMI("NVIDIA H100 80GB HBM3, 570.86.15, 81559, 81000\nNVIDIA H100, 570, 1, 1\n")
	if i.Device != "NVIDIA H100 80GB HBM3" || i.Driver != "570.86.15" || i.MemoryTotal != 81559<<20 || i.MemoryFree != 81000<<20 {
		t.Errorf("%+v", i)
	}
	i = Info{}
	i.readSMI("NVIDIA GB10, 580.1, [N/A], [N/A]")
	if i.MemoryTotal != 0 || i.Driver != "580.1" {
		t.Errorf("%+v", i)
	}
	i.readSMI("No devices were found")
}
