package exec

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
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
	if _, err := x.Reserve("the cache", 1<<40); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "the cache takes 1024.0 GiB") {
		t.Fatalf("a cache that does not fit: %v", err)
	}
	free = 1 << 30
	release, err := x.Reserve("the cache", 1<<29)
	if err != nil || budget.loaded[e.Backend()] != 1<<29 {
		t.Fatalf("%v, %d bytes in the books", err, budget.loaded[e.Backend()])
	}
	release()
	free = need
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

// A 16-bit matrix stays as it is stored on native, except one that an adapter adds to.
func TestAdapterOnStoredBlocks(t *testing.T) {
	e, _, _ := openTest(t)
	base, adapter := t.TempDir(), t.TempDir()
	put := func(path, header string, data int, fill func(b []byte)) {
		t.Helper()
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		b = append(append(b, header...), make([]byte, data)...)
		fill(b[len(b)-data:])
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	one := func(b []byte) {
		for i := 0; i < len(b); i += 4 {
			binary.LittleEndian.PutUint32(b[i:], math.Float32bits(1))
		}
	}
	put(base+"/model.safetensors", `{"x.weight":{"dtype":"BF16","shape":[16,32],"data_offsets":[0,1024]},"y.weight":{"dtype":"BF16","shape":[16,32],"data_offsets":[1024,2048]}}`, 2048, func([]byte) {})
	put(adapter+"/adapter_model.safetensors", `{"base_model.model.x.lora_A.weight":{"dtype":"F32","shape":[1,32],"data_offsets":[0,128]},"base_model.model.x.lora_B.weight":{"dtype":"F32","shape":[16,1],"data_offsets":[128,192]}}`, 192, one)
	if err := os.WriteFile(adapter+"/adapter_config.json", []byte(`{"peft_type":"LORA","base_model_name_or_path":"b","r":1,"lora_alpha":2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := weights.OpenAdapted(base, adapter)
	if err != nil {
		t.Fatal(err)
	}
	x, err := OpenWeights(e, w, []Tensor{{Name: "x", File: "x.weight", Dims: []int{16, 32}}, {Name: "y", File: "y.weight", Dims: []int{16, 32}}})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer x.Close()
	if x.Bytes() != 4*512+2*512 {
		t.Errorf("%d bytes", x.Bytes())
	}
	bufs, err := x.Buffers(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{2, 0} {
		got := make([]float32, 512)
		if err := e.Backend().BufferToFlatData(bufs[i], got); err != nil {
			t.Fatal(err)
		}
		if got[0] != want || got[511] != want {
			t.Errorf("tensor %d: %g, want %g", i, got[0], want)
		}
	}
}
