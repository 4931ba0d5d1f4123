package tensor

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Finding is one thing that an engine needs from its machine.
type Finding struct {
	Name   string
	OK     bool
	Detail string // what is there, or what is missing and what to do
}

// CUDA says what xla:cuda needs and finds here: the NVIDIA driver, the PJRT plugin and the CUDA
// libraries that the plugin loads. On a machine without an NVIDIA GPU that is all it says.
func CUDA(opt Options) []Finding {
	if !nvidiaPresent() {
		return []Finding{{"nvidia driver", false, "no NVIDIA GPU is shown here (" + nvidiaDevice + " is not there); in a container: run it with --gpus all"}}
	}
	out := []Finding{driverFinding("/proc/driver/nvidia/version")}
	plugin, err := FindPlugin("xla:cuda", opt)
	if err != nil {
		return append(out, Finding{"cuda plugin", false, err.Error() + "; python3 -m pip install \"jax-cuda12-plugin[with-cuda]\" brings one and its libraries"})
	}
	out = append(out, Finding{"cuda plugin", true, plugin})
	return append(out, libraries(plugin, libraryDirs(plugin)))
}

var driverVersion = regexp.MustCompile(`\b\d{3}\.\d+(\.\d+)?\b`)

// driverFinding reads the version that the kernel module reports.
func driverFinding(path string) Finding {
	b, err := os.ReadFile(path)
	if err != nil {
		return Finding{"nvidia driver", false, "a GPU is there but no kernel module of the driver: " + err.Error() + "; install the NVIDIA driver"}
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if v := driverVersion.FindString(line); v != "" {
		line = v
	}
	return Finding{"nvidia driver", true, line}
}

// cudaLibraries are what the plugin loads at run time, with the Python packages that bring them,
// which end in the version of CUDA.
var cudaLibraries = []struct{ name, wheel string }{{"libcuda", ""}, {"libcublas", "nvidia-cublas"}, {"libcublasLt", "nvidia-cublas"}, {"libcudart", "nvidia-cuda-runtime"},
	{"libcudnn", "nvidia-cudnn"}, {"libcufft", "nvidia-cufft"}, {"libcupti", "nvidia-cuda-cupti"}, {"libcusolver", "nvidia-cusolver"}, {"libcusparse", "nvidia-cusparse"},
	{"libnccl", "nvidia-nccl"}, {"libnvJitLink", "nvidia-nvjitlink"}}

// libraries looks for the CUDA libraries in dirs.
func libraries(plugin string, dirs []string) Finding {
	var missing, pip []string
	for _, l := range cudaLibraries {
		if slices.ContainsFunc(dirs, func(d string) bool {
			m, _ := filepath.Glob(filepath.Join(d, l.name+".so.*"))
			return len(m) > 0
		}) {
			continue
		}
		missing = append(missing, l.name)
		w := l.wheel
		switch {
		case w == "":
			continue
		case !strings.Contains(plugin, "cuda13"):
			w += "-cu12"
		case l.name == "libcudnn" || l.name == "libnccl": // others of CUDA 13 carry no number
			w += "-cu13"
		}
		if !slices.Contains(pip, w) {
			pip = append(pip, w)
		}
	}
	if len(missing) == 0 {
		return Finding{"cuda libraries", true, fmt.Sprintf("all %d that the plugin loads are there", len(cudaLibraries))}
	}
	detail := "not found: " + strings.Join(missing, ", ")
	if len(pip) > 0 {
		detail += "; python3 -m pip install " + strings.Join(pip, " ") + " brings them"
	}
	if missing[0] == "libcuda" {
		detail += "; libcuda comes with the NVIDIA driver (in a container: --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
	}
	return Finding{"cuda libraries", false, detail}
}

// libraryDirs are the directories that the dynamic loader searches for a plugin.
func libraryDirs(plugin string) (dirs []string) {
	add := func(paths string) {
		for _, d := range filepath.SplitList(paths) {
			d = strings.ReplaceAll(strings.ReplaceAll(d, "${ORIGIN}", "$ORIGIN"), "$ORIGIN", filepath.Dir(plugin))
			if d != "" && !slices.Contains(dirs, d) {
				dirs = append(dirs, filepath.Clean(d))
			}
		}
	}
	if f, err := elf.Open(plugin); err == nil {
		for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
			if s, err := f.DynString(tag); err == nil {
				for _, p := range s {
					add(p)
				}
			}
		}
		_ = f.Close()
	}
	add(os.Getenv("LD_LIBRARY_PATH"))
	if out, err := exec.Command("ldconfig", "-p").Output(); err == nil {
		for l := range strings.Lines(string(out)) {
			if _, p, ok := strings.Cut(l, "=> "); ok {
				add(filepath.Dir(strings.TrimSpace(p)))
			}
		}
	}
	add("/usr/lib/x86_64-linux-gnu:/usr/lib64:/usr/lib:/usr/local/cuda/lib64:/usr/local/nvidia/lib64")
	return dirs
}
