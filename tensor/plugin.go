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
// when the file's name fits), rag2's data directory and cache (xla/), and
// python3's site-packages (the wheels fastatomstruct-xla-cpu and jax-cuda12/13-pjrt).
// The path is absolute.
func FindPlugin(engine string, opt Options) (string, error) {
	cuda := engine == "xla:cuda"
	if opt.Plugin != "" {
		return pluginFile(engine, opt.Plugin)
	}
	if p := os.Getenv("RAG2_PJRT_PLUGIN"); p != "" && strings.Contains(filepath.Base(p), "cuda") == cuda {
		return pluginFile(engine, p)
	}
	file := "libpjrt_cpu.so"
	if cuda {
		file = "xla_cuda_plugin.so"
	}
	var dirs []string
	if opt.Home != "" {
		dirs = append(dirs, opt.Home)
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
