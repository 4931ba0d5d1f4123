package native

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// wave is element i of a made-up weight.
func wave(seed, i int) float32 {
	u := uint32(i*2654435761) ^ uint32(seed*40503)
	u ^= u >> 15
	u *= 2246822519
	return float32(int32(u>>8)-1<<23) / (1 << 23)
}

func engines(threads int) map[string]*Backend {
	return map[string]*Backend{"f32": New(threads), "int8": NewInt8(threads), "bf16": NewHalf(threads, simd.BlockBF16), "f16": NewHalf(threads, simd.BlockF16)}
}

// A lazy buffer gives what a buffer with the same elements gives, in every use and
// order of uses, and reads no more often than it must.
func TestLazyBuffer(t *testing.T) {
	const n, k, m = 150, 64, 5
	s := shapes.Make(dtypes.Float32, n, k)
	w := make([]float32, n*k)
	for i := range w {
		w[i] = wave(1, i)
	}
	for name, b := range engines(2) {
		defer b.Finalize()
		ix, err := b.BufferFromFlatData(0, []int32{3, 149, 0, 77, 3}, shapes.Make(dtypes.Int32, m, 1))
		if err != nil {
			t.Fatal(err)
		}
		rows := tied(t, b, n, k, m, false)
		whole := tied(t, b, n, k, m, true)
		only := compile(t, b, func(bl *Builder) []backends.Op {
			ok := must(t)
			w := ok(bl.Parameter("w", s, nil))
			x := ok(bl.Parameter("x", shapes.Make(dtypes.Float32, m, k), nil))
			return []backends.Op{ok(bl.DotGeneral(x, []int{1}, nil, w, []int{1}, nil))}
		})
		turned := compile(t, b, func(bl *Builder) []backends.Op { // the matrix the other way round
			ok := must(t)
			w := ok(bl.Parameter("w", s, nil))
			x := ok(bl.Parameter("x", shapes.Make(dtypes.Float32, m, n), nil))
			return []backends.Op{ok(bl.DotGeneral(x, []int{1}, nil, w, []int{0}, nil))}
		})
		act := func(k int) backends.Buffer {
			v := make([]float32, m*k)
			for i := range v {
				v[i] = wave(2, i)
			}
			x, err := b.BufferFromFlatData(0, v, shapes.Make(dtypes.Float32, m, k))
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		uses := map[string]struct {
			exe   backends.Executable
			other backends.Buffer
		}{"rows": {rows, ix}, "whole": {whole, ix}, "only": {only, act(k)}, "turned": {turned, act(n)}}
		for _, order := range [][]string{{"only"}, {"rows"}, {"whole"}, {"turned"}, {"only", "rows", "only"}, {"only", "whole", "rows"}, {"turned", "only", "whole"}, {"rows", "only", "turned"}} {
			reads := 0
			lazy, err := b.LazyBuffer(s, func(dst []float32) error { reads++; copy(dst, w); return nil })
			if err != nil {
				t.Fatal(err)
			}
			flat, err := b.BufferFromFlatData(0, w, s)
			if err != nil {
				t.Fatal(err)
			}
			for i, use := range order {
				u := uses[use]
				got, want := run(t, b, u.exe, lazy, u.other), run(t, b, u.exe, flat, u.other)
				for o := range want {
					if !slices.Equal(got[o], want[o]) {
						t.Fatalf("%s: %v: output %d of use %d differs", name, order, o, i)
					}
				}
			}
			if l := lazy.(*Buffer); len(order) == 1 && (reads != 1 || order[0] == "only" && l.mem != nil) {
				t.Errorf("%s: %v: read %d times, flat copy kept: %v", name, order, reads, l.mem != nil)
			}
			got, want := make([]float32, n*k), make([]float32, n*k)
			if err := errors.Join(b.BufferToFlatData(lazy, got), b.BufferToFlatData(flat, want)); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v: fetched elements differ (%v)", name, order, err)
			}
		}
	}
}

// A weight that cannot be read is an error of the call, which says whose it is, and the
// next call tries again.
func TestLazyBufferFails(t *testing.T) {
	broken := errors.New("the disk is gone")
	for name, b := range engines(2) {
		defer b.Finalize()
		s := shapes.Make(dtypes.Float32, 64, 64)
		var err error
		ix, _ := b.BufferFromFlatData(0, []int32{3}, shapes.Make(dtypes.Int32, 1, 1))
		for _, whole := range []bool{false, true} {
			e := tied(t, b, 64, 64, 1, whole)
			w, _ := b.LazyBuffer(s, func([]float32) error { return err })
			err = broken
			if _, got := e.Execute([]backends.Buffer{w, ix}, nil, 0); !errors.Is(got, broken) || !strings.Contains(got.Error(), `input "w"`) {
				t.Errorf("%s: %v", name, got)
			}
			if got := b.BufferToFlatData(w, make([]float32, 64*64)); !errors.Is(got, broken) {
				t.Errorf("%s: %v", name, got)
			}
			if _, got := b.BufferData(w); !errors.Is(got, broken) {
				t.Errorf("%s: %v", name, got)
			}
			err = nil
			if _, got := e.Execute([]backends.Buffer{w, ix}, nil, 0); got != nil {
				t.Errorf("%s: the second try: %v", name, got)
			}
		}
		if _, err := b.LazyBuffer(shapes.Make(dtypes.Int32, 4), nil); err == nil {
			t.Errorf("%s: integers: no error", name)
		}
	}
}

// Programs that use one weight differently may run at once.
func TestLazyBufferConcurrently(t *testing.T) {
	const n, k, m = 150, 64, 2
	for name, b := range engines(2) {
		defer b.Finalize()
		s := shapes.Make(dtypes.Float32, n, k)
		ix, _ := b.BufferFromFlatData(0, []int32{3, 149}, shapes.Make(dtypes.Int32, m, 1))
		es := []backends.Executable{tied(t, b, n, k, m, false), tied(t, b, n, k, m, true)}
		fill := func(dst []float32) error {
			for i := range dst {
				dst[i] = wave(1, i)
			}
			return nil
		}
		ref, _ := b.LazyBuffer(s, fill)
		want := run(t, b, es[0], ref, ix)
		for range 20 {
			w, _ := b.LazyBuffer(s, fill)
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					got, err := es[i%2].Execute([]backends.Buffer{w, ix}, nil, 0)
					for o := range want {
						v := make([]float32, len(want[o]))
						if err == nil {
							err = b.BufferToFlatData(got[o], v)
						}
						if err != nil || !slices.Equal(v, want[o]) {
							t.Errorf("%s: program %d: output %d differs (%v)", name, i%2, o, err)
						}
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
		}
	}
}

// highWater is VmHWM in MiB.
func highWater(t *testing.T) float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kb float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kb); n == 1 {
			return kb / 1024
		}
	}
	t.Fatal("/proc/self/status has no VmHWM")
	return 0
}

// underRace tells whether the race detector runs, whose shadow of every byte written by Go
// code, several times as large, would be measured.
var underRace bool

const memoryEngine = "RAG2_TEST_MEMORY_ENGINE"

// The most memory that a network of 288 MiB of float32 weights ever has resident is
// little more than its weights as the engine stores them and the planned activations.
// Each engine is measured in a process of its own.
func TestResidentMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the high water mark is read from /proc on Linux")
	}
	if underRace {
		t.Skip("the race detector's own memory would be measured")
	}
	name := os.Getenv(memoryEngine)
	if name == "" {
		for name := range engines(1) {
			if testing.Short() && name != "int8" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				c := exec.Command(os.Args[0], "-test.run=^TestResidentMemory$", "-test.v")
				c.Env = append(os.Environ(), memoryEngine+"="+name)
				out, err := c.CombinedOutput()
				if errors.Is(err, syscall.ENOEXEC) {
					t.Skip("an emulator runs this process; it starts no other")
				}
				if err != nil || !strings.Contains(string(out), "MiB resident") {
					t.Errorf("%v\n%s", err, out)
				}
				t.Logf("%s", out)
			})
		}
		return
	}
	b := engines(2)[name]
	defer b.Finalize()
	const layers, wide, rows = 18, 2048, 64
	var in []backends.Buffer
	e := compile(t, b, func(bl *Builder) []backends.Op {
		ok := must(t)
		x := ok(bl.Parameter("x", shapes.Make(dtypes.Float32, rows, wide), nil))
		for i := range layers {
			w := ok(bl.Parameter(fmt.Sprint("w", i), shapes.Make(dtypes.Float32, wide, wide), nil))
			x = ok(bl.Tanh(ok(bl.DotGeneral(x, []int{1}, nil, w, []int{1}, nil))))
		}
		return []backends.Op{x}
	})
	x, err := b.BufferFromFlatData(0, make([]float32, rows*wide), shapes.Make(dtypes.Float32, rows, wide))
	if err != nil {
		t.Fatal(err)
	}
	in = append(in, x)
	for i := range layers {
		w, err := b.LazyBuffer(shapes.Make(dtypes.Float32, wide, wide), func(dst []float32) error {
			for j := range dst {
				dst[j] = wave(i, j)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, w)
	}
	for range 2 {
		if _, err := e.Execute(in, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	stored := float64(layers*wide*wide) * map[string]float64{"f32": 4, "int8": 1, "bf16": 2, "f16": 2}[name] / (1 << 20)
	planned := float64(e.(*Executable).arena) / (1 << 20)
	bound := 1.3*(stored+planned) + 64
	got := highWater(t)
	t.Logf("%s: %.0f MiB resident at most; weights %.0f MiB, activations %.1f MiB, bound %.0f MiB", name, got, stored, planned, bound)
	if got > bound {
		t.Errorf("%s: %.0f MiB, more than %.0f MiB", name, got, bound)
	}
}
