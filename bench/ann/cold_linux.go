package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"rag2/hnsw"

	"golang.org/x/sys/unix"
)

// coldJob is what the process in the memory-limited group does.
type coldJob struct {
	Group, Index, Queries string
	Cold                  bool
	Ef, Rescore           int
	Recall                float64 // of the same settings without a limit
}

type coldResult struct {
	OpenMS         float64
	OpenRSS        int64
	P50, P99, Max  float64 // ms
	Vectors, Nodes float64
	Major          float64 // page faults served by the disk, per query
	Recall         float64
}

const coldEnv = "RAG2_ANN_COLD"

// cold measures an index whose vectors and graph are on disk, in a memory cgroup
// (version 1, as root) of codes + 25 % of the graph + 96 MiB, with its files dropped
// from the page cache.
func cold(ctx context.Context, c config, name, queries string) (string, error) {
	const groups = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(groups + "/memory.limit_in_bytes"); err != nil || os.Getuid() != 0 {
		return "\n## Vectors and graph on disk\n\nNot measured: needs the version 1 memory controller, as root.\n", nil
	}
	qs, err := load(queries)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, codes := range []string{"4bit", "1bit", "pca"} {
		index := strings.TrimSuffix(name, ".hnsw") + "-ours-" + codes + ".hnsw"
		x, err := hnsw.Open(index)
		if err != nil {
			return "", err
		}
		in := x.Info()
		t, err := x.Tune(ctx, qs[:min(len(qs), 300)], hnsw.TuneOptions{Recall: 0.95})
		if err != nil {
			x.Close()
			return "", err
		}
		var files []string
		for _, s := range in.Shards {
			p := filepath.FromSlash(s.Path)
			if !filepath.IsAbs(p) {
				p = filepath.Join(filepath.Dir(index), p)
			}
			files = append(files, p)
		}
		if err := x.Close(); err != nil {
			return "", err
		}
		limit := in.CodeBytes + in.GraphBytes/4 + 96<<20
		if b.Len() == 0 {
			p50, p99, err := diskLatency(files[0])
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "\n## Vectors and graph on disk\n\n%d × %d, float16 vectors; memory limited by a cgroup to codes + 25 %% of the graph + 96 MiB, files dropped from the page cache first. The disk's own random 4 KiB read: p50 %.2f ms, p99 %.2f ms.\n\n", in.N, in.Dim, p50, p99)
			b.WriteString("| codes | rescoring | limit MiB | index + vectors MiB | open ms | resident after open MiB | recall@10 | p50 ms | p99 ms | max ms | vector reads | list reads | disk page faults |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
		}
		for _, together := range []bool{false, true} {
			g := filepath.Join(groups, fmt.Sprintf("rag2-ann-%d", os.Getpid()))
			if err := os.Mkdir(g, 0o755); err != nil {
				return "", err
			}
			r, err := coldChild(ctx, g, limit, append(files, index), coldJob{g, index, queries, together, t.Settings.Ef, t.Settings.Rescore, t.Settings.Recall})
			if e := os.Remove(g); err == nil && e != nil {
				err = e
			}
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "| %s | %s | %d | %d | %.1f | %d | %.4f | %.2f | %.2f | %.0f | %.0f | %.0f | %.1f |\n", codes, map[bool]string{false: "plain mapping", true: "rows asked for together"}[together],
				limit>>20, (in.Bytes+in.VectorBytes)>>20, r.OpenMS, r.OpenRSS>>20, r.Recall, r.P50, r.P99, r.Max, r.Vectors, r.Nodes, r.Major)
		}
	}
	return b.String(), nil
}

func coldChild(ctx context.Context, group string, limit int, files []string, j coldJob) (*coldResult, error) {
	if err := os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte(strconv.Itoa(limit)), 0o644); err != nil {
		return nil, err
	}
	for _, p := range files {
		if err := evict(p); err != nil {
			return nil, err
		}
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), coldEnv+"="+string(arg))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("limited process: %w", err)
	}
	r := &coldResult{}
	return r, json.Unmarshal(out, r)
}

// evict drops a file from the page cache.
func evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_ = unix.Fdatasync(int(f.Fd()))
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// diskLatency is the median and 99th percentile, in ms, of random 4 KiB reads past
// the page cache.
func diskLatency(path string) (p50, p99 float64, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 8192)
	off := 4096 - int(uintptr(unsafe.Pointer(&buf[0]))%4096)
	rng := rand.New(rand.NewPCG(1, 1))
	var ms []float64
	for range 1000 {
		start := time.Now()
		if _, err := unix.Pread(fd, buf[off:off+4096], rng.Int64N(st.Size/4096)*4096); err != nil {
			return 0, 0, err
		}
		ms = append(ms, time.Since(start).Seconds()*1000)
	}
	sort.Float64s(ms)
	return ms[len(ms)/2], ms[len(ms)*99/100], nil
}

// coldMain is the limited process; it reports whether this is one.
func coldMain(ctx context.Context) (bool, error) {
	arg := os.Getenv(coldEnv)
	if arg == "" {
		return false, nil
	}
	var j coldJob
	if err := json.Unmarshal([]byte(arg), &j); err != nil {
		return true, err
	}
	if err := os.WriteFile(filepath.Join(j.Group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return true, err
	}
	start := time.Now()
	x, err := hnsw.OpenWith(j.Index, hnsw.OpenOptions{Cold: j.Cold, Warm: "codes"})
	if err != nil {
		return true, err
	}
	defer x.Close()
	r := coldResult{OpenMS: time.Since(start).Seconds() * 1000, OpenRSS: rss()}
	qs, err := load(j.Queries)
	if err != nil {
		return true, err
	}
	qs = qs[:min(len(qs), 300)]
	var got [][]hnsw.Hit
	var ms []float64
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	for _, q := range qs {
		start := time.Now()
		h, st, err := x.Search(ctx, q, 10, hnsw.SearchOptions{Ef: j.Ef, Rescore: j.Rescore})
		if err != nil {
			return true, err
		}
		ms = append(ms, time.Since(start).Seconds()*1000)
		got = append(got, h)
		r.Vectors += float64(st.VectorReads) / float64(len(qs))
		r.Nodes += float64(st.NodeReads) / float64(len(qs))
	}
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	r.Major = float64(after.Majflt-before.Majflt) / float64(len(qs))
	truth, err := x.Exact(ctx, qs, 10, 2)
	if err != nil {
		return true, err
	}
	if r.Recall = overlap(got, truth); r.Recall < j.Recall-0.001 {
		return true, fmt.Errorf("recall %.4f under a limit, %.4f without", r.Recall, j.Recall)
	}
	sort.Float64s(ms)
	r.P50, r.P99, r.Max = ms[len(ms)/2], ms[len(ms)*99/100], ms[len(ms)-1]
	return true, json.NewEncoder(os.Stdout).Encode(r)
}

// rss is this process's resident memory.
func rss() int64 {
	b, _ := os.ReadFile("/proc/self/statm")
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(f[1], 10, 64)
	return n * int64(os.Getpagesize())
}
