package weights

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"rag2/internal/npy"
)

const data = "../../testdata/weights/"

func TestBlocksEqualGGUFPackage(t *testing.T) {
	f, err := Open(data + "blocks.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := npy.Open(data + "blocks.npy")
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	order := []DType{F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K}
	if len(order) != want.Rows() || len(f.Names()) != len(order) {
		t.Fatalf("%d types, %d rows, %d tensors", len(order), want.Rows(), len(f.Names()))
	}
	for i, dt := range order {
		info, err := f.Info(string(dt))
		if err != nil {
			t.Fatal(err)
		}
		if info.DType != dt || len(info.Shape) != 2 || info.Shape[0] != 2 || info.Shape[1] != 256 {
			t.Errorf("%s: %s %v", dt, info.DType, info.Shape)
		}
		got, err := f.Float32(string(dt))
		if err != nil {
			t.Fatal(err)
		}
		for j, w := range want.Row32(i, nil) {
			if d := math.Abs(float64(got[j] - w)); d > 2e-6*math.Max(1, math.Abs(float64(w))) {
				t.Fatalf("%s element %d: %g, want %g", dt, j, got[j], w)
			}
		}
	}
	m := f.Meta()
	if m["general.name"] != "blocks é" || m["llama.block_count"] != uint32(2) || m["tokenizer.ggml.add_bos_token"] != true {
		t.Errorf("metadata %v", m)
	}
	if toks, _ := m["tokenizer.ggml.tokens"].([]string); len(toks) != 3 || toks[2] != "Ġb" {
		t.Errorf("tokens %v", toks)
	}
	if s, _ := m["tokenizer.ggml.scores"].([]float32); len(s) != 3 || s[1] != -1 {
		t.Errorf("scores %v", s)
	}
}

func TestSafetensors(t *testing.T) {
	f, err := Open(data + "tiny.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := f.Float32("a")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := f.Float32("b")
	for i := range a {
		if math.Abs(float64(a[i]-b[i])) > 2e-3*math.Max(1, math.Abs(float64(a[i]))) {
			t.Errorf("f16 differs at %d: %g %g", i, b[i], a[i])
		}
	}
	if _, err := f.Float32("i"); !errors.Is(err, ErrInteger) {
		t.Errorf("whole numbers as weights: %v", err)
	}
	if i, err := f.Info("i"); err != nil || i.Len() != 6 {
		t.Errorf("i64: %v", i)
	}
	if _, err := f.Float32("none"); !errors.Is(err, ErrNoTensor) {
		t.Errorf("missing tensor: %v", err)
	}
	if f.Meta()["format"] != "pt" {
		t.Errorf("metadata %v", f.Meta())
	}
}

// Every prefix of a good file must be refused, never read past or panicked on.
func TestTruncatedFilesAreErrors(t *testing.T) {
	for _, name := range []string{"blocks.gguf", "tiny.safetensors"} {
		b, err := os.ReadFile(data + name)
		if err != nil {
			t.Fatal(err)
		}
		p := filepath.Join(t.TempDir(), name)
		for n := 0; n < len(b); n += 1 + n/40 {
			if err := os.WriteFile(p, b[:n], 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := Open(p)
			if err == nil {
				f.Close()
				t.Fatalf("%s cut at %d of %d was opened", name, n, len(b))
			}
			var c *ErrCorrupt
			if !errors.As(err, &c) && !errors.Is(err, ErrNotOurs) {
				t.Fatalf("%s cut at %d: %v", name, n, err)
			}
		}
	}
}

func TestBadSafetensorsHeaders(t *testing.T) {
	file := func(header string, data int) []byte {
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		return append(append(b, header...), make([]byte, data)...)
	}
	cases := map[string][]byte{
		"wrong dtype":    file(`{"a":{"dtype":"F9","shape":[1],"data_offsets":[0,4]}}`, 4),
		"size mismatch":  file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4),
		"negative shape": file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4),
		"overlap":        file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, 8),
		"past end":       file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 3),
		"overflow":       file(`{"a":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,0]}}`, 0),
		"huge header":    binary.LittleEndian.AppendUint64(nil, 1<<62),
		"not json":       file(`{"a":`, 0),
	}
	for name, b := range cases {
		p := filepath.Join(t.TempDir(), "m.safetensors")
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := OpenSafetensors(p)
		var c *ErrCorrupt
		if !errors.As(err, &c) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			f.Close()
		}
	}
}

func TestShards(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(data + "tiny.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, s string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("model-00001-of-00001.safetensors", string(b))
	write("model.safetensors.index.json", `{"weight_map":{"a":"model-00001-of-00001.safetensors"}}`)
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	write("model.safetensors.index.json", `{"weight_map":{"zz":"model-00001-of-00001.safetensors"}}`)
	if _, err := Open(dir); !errors.Is(err, ErrNoTensor) {
		t.Errorf("tensor missing from its shard: %v", err)
	}
	write("model.safetensors.index.json", `{"weight_map":{"a":"../x.safetensors"}}`)
	if _, err := Open(dir); err == nil {
		t.Error("a shard outside the directory was accepted")
	}
}

func TestHalfToFloat(t *testing.T) {
	for bits, want := range map[uint16]float32{0: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0001: 5.9604645e-08, 0x03ff: 6.097555e-05, 0x8001: -5.9604645e-08} {
		if got := halfToFloat(bits); got != want {
			t.Errorf("%#x: %g, want %g", bits, got, want)
		}
	}
	if !math.IsInf(float64(halfToFloat(0x7c00)), 1) || !math.IsNaN(float64(halfToFloat(0x7e00))) {
		t.Error("infinity or NaN lost")
	}
}

func FuzzOpen(f *testing.F) {
	for _, n := range []string{"blocks.gguf", "tiny.safetensors"} {
		b, err := os.ReadFile(data + n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := filepath.Join(t.TempDir(), "w")
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		w, err := Open(p)
		if err != nil {
			return
		}
		defer w.Close()
		for _, n := range w.Names() {
			if i, _ := w.Info(n); i.Len() < 1<<20 {
				_, _ = w.Float32(n)
			}
		}
	})
}
