package native

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// What the workers fetch is, line by line, what the coming attention reads of its caches,
// once the beginnings of weights are done.
func TestAhead(t *testing.T) {
	const b, h, g, d, n, capacity = 3, 2, 3, 16, 37, 64
	for _, threads := range []int{1, 2, 5} {
		be := New(threads)
		defer be.Finalize()
		parts := []part{{capacity, true, false}, {1, false, false}}
		two := func(bl *Builder) []backends.Op {
			return []backends.Op{attend(t, bl, -1e30, b, 1, h, g, d, parts)}
		}
		e := compile(t, be, two).(*Executable)
		var s *attentionStep
		for _, st := range e.steps {
			if a, ok := st.(*attentionStep); ok {
				s = a
			}
		}
		flat, dims := attentionInputs(rand.New(rand.NewPCG(1, 2)), b, 1, h, g, d, parts, func(p, bi, _ int) (int, int) {
			if p == 1 {
				return 0, 1
			}
			return 0, n - bi
		}, false)
		x, err := e.take()
		if err != nil {
			t.Fatal(err)
		}
		memory := map[int][]float32{}
		for i, f := range flat {
			shape := shapes.Make(dtypes.Float32, dims[i]...)
			if _, ok := f.([]bool); ok {
				shape.DType = dtypes.Bool
			}
			buf, err := be.BufferFromFlatData(0, f, shape)
			if err != nil {
				t.Fatal(err)
			}
			x.params[i] = buf.(*Buffer)
			memory[i], _ = f.([]float32)
		}
		if err := x.prepare(); err != nil {
			t.Fatal(err)
		}
		for _, st := range e.steps {
			if _, ok := st.(*spanStep); ok {
				st.run(x)
			}
		}
		const line = 64
		want := map[string]int{}
		for bi := range b {
			for hi := range h {
				for at := 0; at < (n-bi+simd.PanelWidth-1)/simd.PanelWidth*simd.PanelWidth*d*4; at += line {
					want[fmt.Sprint("k", (bi*h+hi)*capacity*d*4+at)]++
				}
				for at := 0; at < (n-bi)*d*4; at += line {
					want[fmt.Sprint("v", (bi*h+hi)*capacity*d*4+at)]++
				}
			}
		}
		weight := make([]byte, 128)
		for i := range x.workers {
			x.workers[i].ahead.weight = stretch{unsafe.Pointer(&weight[0]), 64, 64}
		}
		x.look(s)
		for i := range x.workers {
			w := &x.workers[i]
			if p := w.next(x, line); p != unsafe.Pointer(&weight[64]) {
				t.Errorf("%d threads: worker %d fetches its weight last", threads, i)
			}
			for p := w.next(x, line); p != nil; p = w.next(x, line) {
				k, v := uintptr(p)-uintptr(x.base[s.segments[0].k.id]), uintptr(p)-uintptr(x.base[s.segments[0].v.id])
				if size := uintptr(b * h * capacity * d * 4); k < size {
					want[fmt.Sprint("k", k)]--
				} else if v < size {
					want[fmt.Sprint("v", v)]--
				} else {
					t.Fatalf("%d threads: worker %d fetches what is no cache", threads, i)
				}
			}
		}
		for at, times := range want {
			if times != 0 {
				t.Errorf("%d threads: %s is left %d times", threads, at, times)
			}
		}
		x.look(nil)
		if p := x.workers[0].next(x, line); p != nil {
			t.Error("something is fetched when no attention comes")
		}
		e.give(x)
	}
}

// Parallel calls every function once, and a panic comes back.
func TestParallel(t *testing.T) {
	be := New(3)
	defer be.Finalize()
	for _, n := range []int{0, 1, 100} {
		done := make([]int, n)
		be.Parallel(n, func(i int) { done[i]++ })
		for i, k := range done {
			if k != 1 {
				t.Errorf("%d of %d was called %d times", i, n, k)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a panic was lost")
		}
	}()
	be.Parallel(4, func(i int) {
		if i == 2 {
			panic("fault")
		}
	})
}

// An attention is known to come when its masks are those of the one before.
func TestComing(t *testing.T) {
	m1, m2 := &value{}, &value{id: 1}
	step1 := func(masks ...*value) *attentionStep {
		s := &attentionStep{}
		for _, m := range masks {
			s.segments = append(s.segments, segment{spans: m})
		}
		return s
	}
	a, b, c, d := step1(m1, m2), step1(m1, m2), step1(m1), step1(m1)
	for i, s := range coming([]step{a, &copyStep{}, b, c, d}) {
		if want := []*attentionStep{b, nil, nil, d, nil}[i]; s != want {
			t.Errorf("step %d: %p comes, want %p", i, s, want)
		}
	}
}
