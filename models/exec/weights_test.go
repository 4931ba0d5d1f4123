package exec

import (
	"errors"
	"strings"
	"testing"

	"rag2/tensor"
	_ "rag2/tensor/native" // the engine under test
	"rag2/tensor/weights"
)

// openTest opens an engine and a file of the tensors a and b, 2 × 256 each.
func openTest(t *testing.T) (*tensor.Engine, *weights.File, []Tensor) {
	t.Helper()
	e, err := tensor.Open("native", tensor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	w, err := weights.Open("../../testdata/weights/blocks.gguf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return e, w, []Tensor{{Name: "a", File: "F32", Dims: []int{2, 256}}, {Name: "b", File: "Q8_0", Dims: []int{2, 256}}}
}

// A model that does not fit is refused when it is opened, counting those that were opened before
// and are not loaded yet.
func TestRefusedBeforeMemoryRunsOut(t *testing.T) {
	e, w, list := openTest(t)
	const need = 2048 + 2*8*34
	old := freeMemory
	defer func() { freeMemory = old }()
	free := int64(need - 1)
	freeMemory = func(*tensor.Engine) int64 { return free }
	if _, err := OpenWeights(e, w, list); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "blocks.gguf") {
		t.Fatalf("one byte too little: %v", err)
	}
	free = 2*need - 1
	x, err := OpenWeights(e, w, list)
	if err != nil || x.Bytes() != need {
		t.Fatalf("%v, %d bytes", err, x.Bytes())
	}
	if _, err := OpenWeights(e, w, list); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "opened before") {
		t.Fatalf("the second: %v", err)
	}
	if _, err := x.Buffers(0, nil); err != nil {
		t.Fatal(err)
	}
	free -= need // the first is in memory now
	if _, err := OpenWeights(e, w, list); !errors.Is(err, ErrMemory) {
		t.Fatalf("the second, after the first was loaded: %v", err)
	}
	x.Close()
	x.Close()
	free += need
	y, err := OpenWeights(e, w, list)
	if err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	y.Close()
	if len(budget.pending)+len(budget.loaded) != 0 {
		t.Errorf("left in the books: %v %v", budget.pending, budget.loaded)
	}
	freeMemory = func(*tensor.Engine) int64 { return 0 } // not known: nothing is refused
	if y, err = OpenWeights(e, w, list); err != nil {
		t.Fatal(err)
	}
	y.Close()
}

// Only what a graph uses is loaded, and once.
func TestLoadedAtFirstUse(t *testing.T) {
	e, w, list := openTest(t)
	x, err := OpenWeights(e, w, list)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if len(x.bufs[0]) != 0 {
		t.Error("loaded at opening")
	}
	one, err := x.Buffers(0, func(n string) bool { return n == "b" })
	if err != nil || len(one) != 1 || x.bufs[0][0] != nil {
		t.Fatalf("%v %v", one, err)
	}
	all, err := x.Buffers(0, nil)
	if err != nil || len(all) != 2 || all[1] != one[0] {
		t.Fatalf("%v %v", all, err)
	}
	for want, bad := range map[string]Tensor{"shape": {File: "F32", Dims: []int{256, 2}}, "none": {File: "none", Dims: []int{1}}} {
		if _, err := OpenWeights(e, w, []Tensor{bad}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
