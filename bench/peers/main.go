// Command peers measures our engines beside others, in turn, in one run, and writes
// a Markdown file.
//
//	peers -python VENV/bin/python -o bench/RESULTS.md
//
// Contestants are processes (see package bench). Each round asks every contestant
// once per case, with a pause between, so that all meet the same load; the figures
// are medians over rounds, of the seconds and of the ratio to ours in the same round.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

type contestant struct {
	name string
	cmd  []string
	what string

	proc *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	rss  float64 // its largest resident memory so far, where it tells
	slow bool    // once, and only at 8×128
}

// directories are the parts of absolute paths that say where a machine keeps its files.
var directories = regexp.MustCompile(`/(?:[^/\s,()]+/)+`)

func (c *contestant) start() error {
	c.proc = exec.Command(c.cmd[0], c.cmd[1:]...)
	c.proc.Env = append(os.Environ(), "OMP_WAIT_POLICY=PASSIVE")
	c.proc.Env = slices.DeleteFunc(c.proc.Env, func(s string) bool { return strings.HasPrefix(s, "OPENBLAS_CORETYPE=") })
	c.proc.Stderr = nil
	var err error
	if c.in, err = c.proc.StdinPipe(); err != nil {
		return err
	}
	out, err := c.proc.StdoutPipe()
	if err != nil {
		return err
	}
	c.out = bufio.NewReader(out)
	if err := c.proc.Start(); err != nil {
		return err
	}
	line, err := c.out.ReadString('\n')
	what, ok := strings.CutPrefix(strings.TrimSpace(line), "ready")
	if err != nil || !ok {
		return fmt.Errorf("%s did not start: %q %v", c.name, line, err)
	}
	c.what = directories.ReplaceAllString(strings.TrimSpace(what), "")
	return nil
}

// ask runs one case and returns its seconds, and the CPU seconds of the process.
func (c *contestant) ask(request string) (wall, cpu float64, err error) {
	before := cpuSeconds(c.proc.Process.Pid)
	if _, err := fmt.Fprintln(c.in, request); err != nil {
		return 0, 0, err
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", c.name, err)
	}
	if n, _ := fmt.Sscan(line, &wall, &c.rss); n < 1 {
		return 0, 0, fmt.Errorf("%s: %s", c.name, line)
	}
	return wall, cpuSeconds(c.proc.Process.Pid) - before, nil
}

// cpuSeconds is the time that a process has used, 0 where /proc does not tell.
func cpuSeconds(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 13 {
		return 0
	}
	u, _ := strconv.ParseFloat(f[11], 64)
	k, _ := strconv.ParseFloat(f[12], 64)
	return (u + k) / 100
}

type testCase struct {
	name, request string
	work          float64 // GFLOP
}

func flops(b, s, h, layers int) float64 {
	return float64(b*s) * float64(layers) * float64(2*(4*h*h+8*h*h)+4*s*h) / 1e9
}

// t5Flops are those of a T5 encoder with as many heads as make the width h and a gated
// feed-forward block of width f.
func t5Flops(b, s, h, f, layers int) float64 {
	return float64(b*s) * float64(layers) * float64(2*(4*h*h+3*h*f)+4*s*h) / 1e9
}

func main() {
	log.SetFlags(0)
	python := flag.String("python", "python3", "interpreter with torch, onnxruntime and transformers")
	output := flag.String("o", "bench/RESULTS.md", "file to write")
	rounds := flag.Int("rounds", 7, "rounds")
	pause := flag.Duration("pause", 150*time.Millisecond, "between contestants")
	work := flag.String("work", filepath.Join(os.TempDir(), "rag2-bench"), "directory for models and binaries")
	only := flag.String("only", "", "comma-separated contestants, ours first; all when empty")
	pick := flag.String("cases", "", "comma-separated cases like 8x128; all when empty")
	large := flag.Bool("t5", false, "measure the encoder of a T5-large instead of BERT-base")
	llama := flag.String("llama", "", "GGUF file: measure generation with it instead of encoders")
	flag.Parse()
	if *llama != "" {
		if err := runLlama(*python, *output, *work, *llama, *rounds, *pause); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(*python, *output, *work, *only, *pick, *large, *rounds, *pause); err != nil {
		log.Fatal(err)
	}
}

func run(python, output, work, only, pick string, large bool, rounds int, pause time.Duration) error {
	enc := filepath.Join(work, "encoder")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("go", "build", "-o", enc, "./bench/encoder").CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	arch := "bert-base"
	if large {
		arch = "t5-large"
	}
	model := filepath.Join(work, arch)
	if _, err := os.Stat(filepath.Join(model, "model.safetensors")); err != nil {
		if out, err := exec.Command(enc, "-write", model, "-arch", arch).CombinedOutput(); err != nil {
			return fmt.Errorf("write model: %w: %s", err, out)
		}
	}
	ours := func(engine string) []string { return []string{enc, "-engine", engine, "-model", model} }
	peer := func(engine string) []string { return []string{python, "bench/peers/peers.py", engine, model} }
	all := []*contestant{
		{name: "native", cmd: ours("native")}, {name: "onnxruntime", cmd: peer("ort")}, {name: "torch", cmd: peer("torch")}, {name: "xla:cpu", cmd: ours("xla:cpu")},
		{name: "simplego", cmd: ours("go"), slow: true}, {name: "native:bf16", cmd: ours("native:bf16")}, {name: "native:int8", cmd: ours("native:int8")}, {name: "onnxruntime-int8", cmd: peer("ort8")},
	}
	if large {
		all = all[:3]
	}
	if only != "" {
		names := strings.Split(only, ",")
		all = slices.DeleteFunc(all, func(c *contestant) bool { return !slices.Contains(names, c.name) })
	}
	var cs []*contestant
	var notes []string
	for _, c := range all {
		if err := c.start(); err != nil {
			notes = append(notes, fmt.Sprintf("not measured: %s (%v)", c.name, err))
			continue
		}
		defer c.proc.Wait()
		defer c.in.Close()
		cs = append(cs, c)
		log.Printf("%s: %s", c.name, c.what)
	}
	cases := []testCase{{"1×32", "1 32", flops(1, 32, 768, 12)}, {"8×128", "8 128", flops(8, 128, 768, 12)}, {"4×512", "4 512", flops(4, 512, 768, 12)}}
	what := "BERT-base (12 × 768) with random weights"
	if large {
		cases, what = []testCase{{"8×512", "8 512", t5Flops(8, 512, 1024, 2816, 24)}}, "the encoder of T5-large (24 × 1024, gated GELU) with random weights, float32"
	}
	if pick != "" {
		names := strings.Split(strings.ReplaceAll(pick, "x", "×"), ",")
		cases = slices.DeleteFunc(cases, func(c testCase) bool { return !slices.Contains(names, c.name) })
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Encoder benchmarks\n\nGenerated by `make bench-peers`; %s, tokens/batch as given, all tokens real.\n\n", what)
	header(&b, rounds)
	for _, c := range cs {
		fmt.Fprintf(&b, "- %s: %s\n", c.name, c.what)
	}
	for _, n := range notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	b.WriteString("\n\"ratio\" is the contestant's time over ours in the same round (above 1: we are faster), its median and the span from the lower to the upper\nquartile; ours is `native`, for int8 contestants `native:int8`. \"CPU\" is the same for the process's CPU time, which other load on the machine disturbs less.\n")
	for _, tc := range cases {
		for _, c := range cs { // warm: compiles, packs
			if c.slow {
				continue
			}
			if _, _, err := c.ask(tc.request); err != nil {
				return err
			}
		}
		wall, cpu := map[string][]float64{}, map[string][]float64{}
		for round := range rounds {
			for _, c := range cs {
				if c.slow && (round > 0 || tc.name != "8×128") {
					continue
				}
				time.Sleep(pause)
				w, p, err := c.ask(tc.request)
				if err != nil {
					return err
				}
				wall[c.name], cpu[c.name] = append(wall[c.name], w), append(cpu[c.name], p)
			}
		}
		fmt.Fprintf(&b, "\n## %s tokens\n\n| contestant | ms (best) | ms (median) | GFLOP/s (best) | ratio | CPU |\n|---|---|---|---|---|---|\n", tc.name)
		for _, c := range cs {
			base := "native"
			if strings.HasSuffix(c.name, "int8") {
				base = "native:int8"
			}
			w := wall[c.name]
			if len(w) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %.1f | %.1f | %.0f | %s | %s |\n", c.name, 1e3*slices.Min(w), 1e3*quantile(w, 0.5), tc.work/slices.Min(w), ratio(w, wall[base]), ratio(cpu[c.name], cpu[base]))
		}
		for _, c := range cs {
			if c.rss > 0 && !c.slow {
				fmt.Fprintf(&b, "\n%s: at most %.0f MiB resident so far (VmHWM).\n", c.name, c.rss/(1<<20))
			}
		}
		log.Printf("%s done", tc.name)
		if err := os.WriteFile(output, []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// header says where and when the figures were measured.
func header(b *strings.Builder, rounds int) {
	fmt.Fprintf(b, "- machine: %s, %d CPUs, %s\n- commit: %s\n- date: %s\n- load average at the start: %s\n- rounds: %d, contestants in turn within a round\n", cpuModel(), runtime.NumCPU(), runtime.GOARCH, commit(), time.Now().UTC().Format("2006-01-02 15:04 UTC"), load(), rounds)
}

// ratio gives the median and quartiles of a[i]/b[i].
func ratio(a, b []float64) string {
	var r []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			r = append(r, a[i]/b[i])
		}
	}
	if len(r) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", quantile(r, 0.5), quantile(r, 0.25), quantile(r, 0.75))
}

func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	at := q * float64(len(v)-1)
	i := int(at)
	return v[i] + (v[min(i+1, len(v)-1)]-v[i])*(at-float64(i))
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOOS
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOOS
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}
