package tensor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// FindPlugin names the PJRT plugin file of "xla:cpu" or "xla:cuda". It looks, in
// this order, at Options.Plugin, the environment (RAG2_PJRT_PLUGIN for either,
// when the file's name fits), xla/ in rag2's data directory and caches (Options.Home
// or $RAG2_HOME, $RAG2_CACHE, the user's cache directory), and python3's site-packages
// (the wheels fastatomstruct-xla-cpu and jax-cuda12/13-pjrt). The path is absolute.
// Errors wrap ErrUnavailable and list where was looked.
func FindPlugin(engine string, opt Options) (string, error) {
	if opt.Plugin != "" {
		return pluginFile(engine, opt.Plugin)
	}
	if p := os.Getenv("RAG2_PJRT_PLUGIN"); p != "" && fits(engine, p) {
		return pluginFile(engine, p)
	}
	file := "libpjrt_cpu.so"
	cuda := engine == "xla:cuda"
	if cuda {
		file = "xla_cuda_plugin.so"
	}
	var dirs []string
	if opt.Home != "" {
		dirs = append(dirs, opt.Home)
	} else if d := os.Getenv("RAG2_HOME"); d != "" {
		dirs = append(dirs, d)
	}
	if d := os.Getenv("RAG2_CACHE"); d != "" {
		dirs = append(dirs, d)
	}
	if d, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(d, "rag2"))
	}
	for _, d := range dirs {
		if p := filepath.Join(d, "xla", file); isFile(p) {
			return pluginFile(engine, p)
		}
	}
	patterns := []string{"fastatomstruct_xla_cpu/libpjrt_cpu.so"}
	if cuda {
		patterns = []string{"jax_plugins/xla_cuda*/xla_cuda_plugin.so"}
	}
	for _, d := range sitePackages() {
		for _, p := range patterns {
			if m, _ := filepath.Glob(filepath.Join(d, p)); len(m) > 0 {
				return pluginFile(engine, m[len(m)-1])
			}
		}
	}
	return "", fmt.Errorf("%s: %w: no PJRT plugin %s in %s/xla or python3's site-packages; set RAG2_PJRT_PLUGIN to its path", engine, ErrUnavailable, file, strings.Join(dirs, "/xla, "))
}

// fits tells by its file name whether a plugin is meant for the engine.
func fits(engine, plugin string) bool {
	return strings.Contains(strings.ToLower(filepath.Base(plugin)), "cuda") == (engine == "xla:cuda")
}

func isFile(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode().IsRegular()
}

func pluginFile(engine, p string) (string, error) {
	if !isFile(p) {
		return "", fmt.Errorf("%s: %w: plugin %s is not a file", engine, ErrUnavailable, p)
	}
	return filepath.Abs(p)
}

// sitePackages asks python3 once per process; none when there is no python3.
var sitePackages = sync.OnceValue(func() []string {
	out, err := exec.Command("python3", "-c", "import site,sysconfig;print('\\n'.join([sysconfig.get_paths()['purelib']]+site.getsitepackages()+[site.getusersitepackages()]))").Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
})
