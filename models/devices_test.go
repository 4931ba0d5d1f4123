package models

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"rag2/models/bert"
	"rag2/models/tokenizer"
	"rag2/tensor"
)

// xlaCPU opens XLA's CPU engine, which shows four devices.
func xlaCPU(t *testing.T) *tensor.Engine {
	t.Helper()
	e, err := tensor.Open("xla:cpu", tensor.Options{})
	if errors.Is(err, tensor.ErrUnavailable) {
		t.Skip("not tested: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// Batches that are spread over several devices run on all of them and give the vectors that one
// device gives.
func TestDevices(t *testing.T) {
	e := xlaCPU(t)
	n := e.Devices()
	if n < 2 {
		t.Skipf("not tested: the plugin shows %d device", n)
	}
	var texts []string
	for i := range 60 {
		texts = append(texts, words(1+i))
	}
	vectors := func(devices int) [][]float32 {
		t.Helper()
		enc, err := OpenEncoder(e, EncoderSpec{QueryDir: tinyBERT, Devices: devices, BatchTokens: 128})
		if err != nil {
			t.Fatal(err)
		}
		defer enc.Close()
		v, _, err := enc.EncodeQueries(context.Background(), texts)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want, got := vectors(1), vectors(n)
	for i := range want {
		if d := maxDiff(want[i], got[i]); d > 1e-6 {
			t.Errorf("text %d differs by %g", i, d)
		}
	}
	m, err := bert.Open(e, tinyBERT, bert.CLS)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var encs []tokenizer.Encoding
	for range 200 {
		encs = append(encs, tokenizer.Encoding{IDs: []int32{2, 5, 6, 3}, TypeIDs: make([]int32, 4)})
	}
	var mu sync.Mutex
	used := map[int]int{}
	var all sync.WaitGroup
	all.Add(n) // the first batch of each device waits for the others
	if _, err := inBatches(context.Background(), encs, 64, m.Out(), 16, n, func(device int, ids, types, lens []int32, batch, length int) ([]float32, error) {
		mu.Lock()
		used[device]++
		first := used[device] == 1
		mu.Unlock()
		if first {
			all.Done()
			all.Wait()
		}
		return m.ForwardOn(device, ids, types, lens, batch, length)
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d batches on %d devices: %v", len(encs), n, used)
	if len(used) != n {
		t.Errorf("devices used: %v", used)
	}
	if _, err := OpenEncoder(e, EncoderSpec{QueryDir: tinyBERT, Devices: n + 1}); err == nil {
		t.Error("more devices than there are were accepted")
	}
}

// However many lengths come, no more graphs are compiled than there are buckets.
func TestCompilationsAreBounded(t *testing.T) {
	e := xlaCPU(t)
	enc, err := OpenEncoder(e, EncoderSpec{QueryDir: tinyBERT, BatchTokens: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	positions := enc.query.Config.Positions
	r := rand.New(rand.NewPCG(1, 2))
	lengths := map[int]bool{}
	for i := 0; i < 1000; {
		var texts []string
		for range 1 + r.IntN(12) {
			n := 1 + r.IntN(positions+20)
			lengths[n] = true
			texts = append(texts, words(n))
			i++
		}
		if _, _, err := enc.EncodeQueries(context.Background(), texts); err != nil {
			t.Fatal(err)
		}
	}
	got, most := enc.Compilations(), bucketCount(positions, 512)
	t.Log(fmt.Sprintf("1000 texts of %d lengths: %d XLA compilations, %d buckets", len(lengths), got, most))
	if got > most || got < 2 {
		t.Errorf("%d compilations, %d buckets", got, most)
	}
}
