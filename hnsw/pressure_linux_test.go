package hnsw

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const pressureEnv = "RAG2_TEST_PRESSURE"

type pressureJob struct{ Group, Index, Vectors string }

type pressureResult struct {
	Hits    [][]Hit
	Slowest time.Duration
}

// pressureSearches walks and scans; the scans read more than the group may hold.
func pressureSearches(t *testing.T, j pressureJob) (r pressureResult) {
	t.Helper()
	x, err := OpenWith(j.Index, OpenOptions{Vectors: []string{j.Vectors}, Cold: true, Warm: "codes"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for i := range 60 {
		q := append([]float32(nil), x.v.row(i*17, nil)...)
		start := time.Now()
		h, _, err := x.Search(context.Background(), q, 5, SearchOptions{Ef: 50, Exact: i%20 == 0})
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); i%20 != 0 {
			r.Slowest = max(r.Slowest, d)
		}
		r.Hits = append(r.Hits, h)
	}
	return r
}

// In a memory group that holds less than the vectors, with files dropped from the page
// cache, searches find what they find without a limit, and none stalls.
func TestMemoryPressure(t *testing.T) {
	if arg := os.Getenv(pressureEnv); arg != "" {
		var j pressureJob
		if err := json.Unmarshal([]byte(arg), &j); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(j.Group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(pressureSearches(t, j))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(j.Index+".result", b, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	const groups = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(groups + "/memory.limit_in_bytes"); err != nil || os.Getuid() != 0 || testing.Short() {
		t.Skip("needs the version 1 memory controller, as root; not in short mode")
	}
	path, _ := write(t, 12_000, 768, 8) // 35 MiB of vectors
	x := open(t, path, BuildOptions{Codes: FourBit, M: 4, EfConstruction: 16})
	g := filepath.Join(groups, "rag2-hnsw-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(g, 0o755); err != nil {
		t.Skip("no memory group can be made here: ", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(g); err != nil {
			t.Error(err)
		}
	})
	job := pressureJob{g, x.Path(), path}
	want := pressureSearches(t, job)
	if err := x.Close(); err != nil { // mapped pages are not dropped
		t.Fatal(err)
	}
	const limit = 28 << 20
	if err := os.WriteFile(filepath.Join(g, "memory.limit_in_bytes"), []byte(strconv.Itoa(limit)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, x.Path()} {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Fdatasync(int(f.Fd()))
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	arg, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryPressure$")
	cmd.Env = append(os.Environ(), pressureEnv+"="+string(arg))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(x.Path() + ".result")
	if err != nil {
		t.Fatal(err)
	}
	var got pressureResult
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Hits, want.Hits) {
		t.Error("other hits than without a limit")
	}
	number := func(name string) int {
		b, err := os.ReadFile(filepath.Join(g, name))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Logf("limit hit %d times, most in use %d MiB, slowest walk %v (%v without a limit)", number("memory.failcnt"), number("memory.max_usage_in_bytes")>>20, got.Slowest, want.Slowest)
	if number("memory.failcnt") == 0 {
		t.Error("the limit was never reached: the test shows nothing")
	}
	if got.Slowest > time.Second {
		t.Errorf("a walk took %v", got.Slowest)
	}
}
