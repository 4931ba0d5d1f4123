package tensor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Info says what an engine runs on.
type Info struct {
	Engine  string `json:"engine"`
	Device  string `json:"device"`
	Devices int    `json:"devices"`
	Version string `json:"version,omitempty"` // PJRT API of the plugin
	Plugin  string `json:"plugin,omitempty"`
	Driver  string `json:"driver,omitempty"` // NVIDIA driver
	// Memory of the device, for a CPU that of the process's control group or the
	// machine; bytes, 0 = not known.
	MemoryTotal int64 `json:"memory_total,omitempty"`
	MemoryFree  int64 `json:"memory_free,omitempty"`
}

var versionPattern = regexp.MustCompile(`\bv(\d+\.\d+)\b`)

// Info asks the engine, and for a GPU nvidia-smi, about the device.
func (e *Engine) Info() Info {
	i := Info{Engine: e.name, Plugin: e.plugin, Devices: e.backend.NumDevices(), Device: oneLine(e.backend.DeviceDescription(0))}
	if e.plugin != "" {
		if m := versionPattern.FindStringSubmatch(strings.ReplaceAll(e.backend.Description(), e.plugin, "")); m != nil {
			i.Version = m[1]
		}
	}
	if strings.HasPrefix(e.name, "xla:cuda") {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.free", "--format=csv,noheader,nounits").Output()
		if err == nil {
			i.readSMI(string(out))
		}
		return i
	}
	if i.Device == "" || e.name == "go" {
		i.Device = runtime.GOOS + "/" + runtime.GOARCH
	}
	i.MemoryTotal, i.MemoryFree = hostMemory("/proc/meminfo", "/sys/fs/cgroup")
	return i
}

// Describe is one line: engine, device, PJRT version, memory and plugin.
func (e *Engine) Describe() string { return e.Info().String() }

// String is the line that Describe gives.
func (i Info) String() string {
	s := fmt.Sprintf("%s: %s", i.Engine, i.Device)
	if i.Devices != 1 {
		s += fmt.Sprintf(" (%d devices)", i.Devices)
	}
	if i.Version != "" {
		s += ", PJRT " + i.Version
	}
	if i.Driver != "" {
		s += ", driver " + i.Driver
	}
	if i.MemoryTotal > 0 {
		s += fmt.Sprintf(", %.1f of %.1f GiB free", float64(i.MemoryFree)/(1<<30), float64(i.MemoryTotal)/(1<<30))
	}
	if i.Plugin != "" {
		s += ", plugin " + i.Plugin
	}
	return s
}

// readSMI takes the first GPU of nvidia-smi's table: name, driver, MiB total, MiB free.
func (i *Info) readSMI(table string) {
	line, _, _ := strings.Cut(strings.TrimSpace(table), "\n")
	f := strings.Split(line, ",")
	if len(f) != 4 {
		return
	}
	mib := func(s string) int64 {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil || n < 0 || n > 1<<30 {
			return 0 // "[N/A]" on machines whose GPU shares the host's memory
		}
		return n << 20
	}
	i.Device, i.Driver = strings.TrimSpace(f[0]), strings.TrimSpace(f[1])
	i.MemoryTotal, i.MemoryFree = mib(f[2]), mib(f[3])
}

// hostMemory is the memory of the machine, or of the control group when that has
// less; 0, 0 where neither can be read.
func hostMemory(meminfo, cgroup string) (total, free int64) {
	b, err := os.ReadFile(meminfo)
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || kib < 0 || kib > 1<<50 {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			free = kib << 10
		}
	}
	number := func(name string) int64 {
		b, err := os.ReadFile(cgroup + "/" + name)
		if err != nil {
			return -1
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			return -1 // "max"
		}
		return n
	}
	if limit := number("memory.max"); limit > 0 && limit < total {
		total = limit
		if used := number("memory.current"); used >= 0 {
			// Pages of files count as used and are given back when they are needed.
			if stat, err := os.ReadFile(cgroup + "/memory.stat"); err == nil {
				for line := range strings.Lines(string(stat)) {
					f := strings.Fields(line)
					if len(f) == 2 && (f[0] == "active_file" || f[0] == "inactive_file") {
						n, _ := strconv.ParseInt(f[1], 10, 64)
						used -= max(0, min(n, used))
					}
				}
			}
			free = min(free, max(0, limit-used))
		}
	}
	return total, free
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// nvidiaDevice is the first GPU's device file on Linux.
var nvidiaDevice = "/dev/nvidia0"

// nvidiaPresent tells whether the machine shows an NVIDIA GPU, whatever its state.
func nvidiaPresent() bool {
	_, err := os.Stat(nvidiaDevice)
	return err == nil
}
