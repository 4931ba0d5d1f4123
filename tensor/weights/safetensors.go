package weights

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"rag2/internal/mmapfile"
)

// maxHeader is the limit that the safetensors format sets on its JSON header.
const maxHeader = 100 << 20

// OpenSafetensors opens a .safetensors file, or the shards named by a
// model.safetensors.index.json.
func OpenSafetensors(path string) (*File, error) {
	f := &File{tensors: map[string]Info{}, meta: map[string]any{}, format: "safetensors", path: path}
	var err error
	if filepath.Ext(path) == ".json" {
		err = f.addIndex(path)
	} else {
		err = f.addSafetensors(path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	f.finish()
	return f, nil
}

func (f *File) addIndex(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return fmt.Errorf("%s: index of shards: %w", path, err)
	}
	if len(index.WeightMap) == 0 {
		return fmt.Errorf("%s: index of shards has no weight_map", path)
	}
	var shards []string
	for name, s := range index.WeightMap {
		if !filepath.IsLocal(s) {
			return fmt.Errorf("%s: tensor %q lies in %q, outside the model's directory", path, name, s)
		}
		if !slices.Contains(shards, s) {
			shards = append(shards, s)
		}
	}
	slices.Sort(shards)
	for _, s := range shards {
		if err := f.addSafetensors(filepath.Join(filepath.Dir(path), s)); err != nil {
			return err
		}
	}
	for name, s := range index.WeightMap {
		if !f.Has(name) {
			return fmt.Errorf("%s: tensor %q should be in %s: %w", path, name, s, ErrNoTensor)
		}
	}
	return nil
}

func (f *File) addSafetensors(path string) error {
	m, err := mmapfile.Open(path)
	if err != nil {
		return err
	}
	f.maps = append(f.maps, m)
	return mmapfile.Guard(func() error { return f.parseSafetensors(path, m.Bytes()) })
}

func (f *File) parseSafetensors(path string, b []byte) error {
	bad := func(section string, off int64, format string, args ...any) error {
		return &ErrCorrupt{path, section, off, fmt.Sprintf(format, args...)}
	}
	if len(b) < 8 {
		return bad("header length", 0, "the file has %d bytes", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHeader || n > uint64(len(b)-8) {
		return bad("header length", 0, "header of %d bytes in a file of %d", n, len(b))
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &entries); err != nil {
		return bad("header", 8, "%v", err)
	}
	data := b[8+n:]
	type span struct {
		from, to int
		name     string
	}
	var spans []span
	for name, raw := range entries {
		if name == "__metadata__" {
			var meta map[string]string
			if err := json.Unmarshal(raw, &meta); err != nil {
				return bad("header", 8, "__metadata__: %v", err)
			}
			for k, v := range meta {
				f.meta[k] = v
			}
			continue
		}
		var e struct {
			DType   DType   `json:"dtype"`
			Shape   []int   `json:"shape"`
			Offsets []int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			return bad("header", 8, "tensor %q: %v", name, err)
		}
		size, err := byteSize(e.DType, e.Shape)
		if err != nil {
			return bad("header", 8, "tensor %q: %v", name, err)
		}
		if len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0] || e.Offsets[1]-e.Offsets[0] != int64(size) {
			return bad("header", 8, "tensor %q: offsets %v do not fit %s %v (%d bytes)", name, e.Offsets, e.DType, e.Shape, size)
		}
		if e.Offsets[1] > int64(len(data)) {
			return bad("data", int64(len(b)), "tensor %q ends at data byte %d, the file holds %d", name, e.Offsets[1], len(data))
		}
		if f.Has(name) {
			return bad("header", 8, "tensor %q occurs twice", name)
		}
		from, to := int(e.Offsets[0]), int(e.Offsets[1])
		spans = append(spans, span{from, to, name})
		f.tensors[name] = Info{DType: e.DType, Shape: e.Shape, Bytes: size, data: data[from:to:to]}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	for i := 1; i < len(spans); i++ {
		if spans[i].from < spans[i-1].to {
			return bad("header", 8, "tensors %q and %q overlap", spans[i-1].name, spans[i].name)
		}
	}
	return nil
}
