package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rag2/models"
	"rag2/models/hub"
	"rag2/tensor/weights"
)

// Errors of a Store.
var (
	ErrUnknown    = errors.New("no such model")
	ErrMissing    = errors.New("model is not here")
	ErrIncomplete = errors.New("model is not complete")
)

// Store finds models on this machine.
type Store struct {
	Dir string      // the models directory, may be "" or absent
	Hub *hub.Client // its cache is searched too, and Pull uses it; may be nil
}

// Status says what is here of a preset.
type Status struct {
	Preset
	Dir     string   `json:"dir,omitempty"`     // "" = not here
	Missing []string `json:"missing,omitempty"` // needed files that are not there
	OnDisk  int64    `json:"on_disk"`           // bytes of the files in Dir
	Format  string   `json:"format,omitempty"`  // "safetensors" or "gguf"
	// Memory is what the weights take when they are loaded as float32, Stored what they take as
	// they are stored, which engines keep where they can; bytes, 0 = not here.
	Memory int64 `json:"memory,omitempty"`
	Stored int64 `json:"memory_stored,omitempty"`
}

// Ready reports whether the model can be opened.
func (s Status) Ready() bool { return s.Dir != "" && len(s.Missing) == 0 }

// List says of every preset whether it is here.
func (s Store) List() []Status {
	var out []Status
	for _, p := range presets {
		st := Status{Preset: p}
		if dir, err := s.find(p.Name); err == nil {
			st.Dir = dir
			st.OnDisk, st.Format, st.Missing = inspect(dir)
			if st.Ready() {
				st.Memory, st.Stored = memory(dir)
			}
		}
		out = append(out, st)
	}
	return out
}

// memory adds up the weights of a model by the header of its files.
func memory(dir string) (float, stored int64) {
	w, err := weights.Open(dir)
	if err != nil {
		return 0, 0 // `models verify` says why
	}
	defer w.Close()
	for _, n := range w.Names() {
		if i, err := w.Info(n); err == nil && !i.DType.Integer() {
			float, stored = float+4*int64(i.Len()), stored+int64(i.Bytes)
		}
	}
	return float, stored
}

// Resolve turns the name of a preset, a repository or a path into a directory, or a
// file, that the openers of package models take. A model of which files are missing is
// ErrIncomplete; none at all is ErrMissing, with what to do.
func (s Store) Resolve(name string) (string, error) {
	dir, err := s.find(name)
	if err != nil {
		return "", err
	}
	if _, _, missing := inspect(dir); len(missing) > 0 {
		return "", fmt.Errorf("%s: %w: %s lacks %s; `rag2 models pull` completes it", name, ErrIncomplete, dir, strings.Join(missing, ", "))
	}
	return dir, nil
}

// find is Resolve without the look at the files.
func (s Store) find(name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("model \"\": %w", ErrUnknown)
	}
	if filepath.IsAbs(name) || strings.HasPrefix(name, "."+string(filepath.Separator)) || strings.HasPrefix(name, "..") {
		if _, err := os.Stat(name); err != nil {
			return "", fmt.Errorf("model: %w: %w", ErrMissing, err)
		}
		return filepath.Clean(name), nil
	}
	if _, group := groups[strings.ToLower(name)]; group {
		return "", fmt.Errorf("model %q: %w: it stands for %s", name, ErrUnknown, strings.Join(groups[strings.ToLower(name)], ", "))
	}
	p := preset(name)
	plain := []string{name}
	repo, rev := name, "main"
	if p != nil {
		plain = []string{p.Name, filepath.Base(p.Repo)}
		repo, rev = p.Repo, p.Revision
	}
	if s.Dir != "" && filepath.IsLocal(name) {
		for _, n := range plain {
			if dir := filepath.Join(s.Dir, n); exists(dir) {
				return dir, nil
			}
		}
	}
	if p != nil || strings.Count(name, "/") == 1 {
		for _, c := range s.caches() {
			if snap, err := c.Cached(repo, rev, nil); err == nil && len(snap.Files) > 0 {
				return snap.Dir, nil
			}
		}
	}
	if exists(name) {
		return filepath.Clean(name), nil
	}
	if p != nil {
		return "", fmt.Errorf("%s: %w: it is neither in %s nor in the hub's cache; `rag2 models pull %s` fetches it (%s)", name, ErrMissing, s.Dir, p.Name, p.Licence)
	}
	return "", fmt.Errorf("model %q: %w: neither a path, nor in %s, nor one of %s", name, ErrMissing, s.Dir, strings.Join(Names(), ", "))
}

// caches are the places with the hub's layout, by precedence.
func (s Store) caches() (out []*hub.Client) {
	if s.Dir != "" {
		if c, err := hub.New(hub.Options{CacheDir: s.Dir, Offline: true}); err == nil {
			out = append(out, c)
		}
	}
	if s.Hub != nil {
		out = append(out, s.Hub)
	}
	return
}

func exists(p string) bool { _, err := os.Stat(p); return err == nil }

// inspect sums up the files of a model and names needed ones that are missing.
func inspect(path string) (bytes int64, format string, missing []string) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, "", []string{path}
	}
	if !st.IsDir() {
		return st.Size(), strings.TrimPrefix(filepath.Ext(path), "."), nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return 0, "", []string{path}
	}
	has := map[string]bool{}
	for _, e := range entries {
		// Stat follows the links of a snapshot; one without its blob is no file.
		if st, err := os.Stat(filepath.Join(path, e.Name())); err == nil && st.Mode().IsRegular() {
			has[e.Name()] = true
			bytes += st.Size()
			if strings.HasSuffix(e.Name(), ".gguf") {
				format = "gguf"
			}
		}
	}
	if format == "gguf" && !has["config.json"] {
		return bytes, format, nil
	}
	need := func(alternatives ...string) {
		if !slices.ContainsFunc(alternatives, func(n string) bool { return has[n] }) {
			missing = append(missing, strings.Join(alternatives, " or "))
		}
	}
	if has[weights.AdapterConfig] { // the rest is the base model's
		need(weights.AdapterWeights)
		return bytes, "adapter", missing
	}
	need("config.json")
	need("tokenizer.json", "spiece.model")
	switch {
	case has["model.safetensors"]:
	case has["model.safetensors.index.json"]:
		for _, shard := range shards(filepath.Join(path, "model.safetensors.index.json")) {
			need(shard)
		}
	case has["pytorch_model.bin"]:
		missing = append(missing, "model.safetensors (pytorch_model.bin is not read: save the model again with safe_serialization)")
	default:
		need("model.safetensors", "model.safetensors.index.json")
	}
	return bytes, "safetensors", missing
}

// shards lists the files that an index names, sorted.
func shards(index string) (out []string) {
	b, err := os.ReadFile(index)
	var j struct {
		Map map[string]string `json:"weight_map"`
	}
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	if err != nil || len(j.Map) == 0 {
		return []string{"a readable model.safetensors.index.json"}
	}
	for _, f := range j.Map {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return
}

// Pull fetches a preset, a group of them, or any repository of the hub ("org/name")
// into the hub client's cache, in order, and returns a snapshot for each. Presets that
// are complete on disk already are not asked for again unless update is true.
// progress may be nil.
func (s Store) Pull(ctx context.Context, name string, update bool, progress func(model string, p hub.Progress)) ([]*hub.Snapshot, error) {
	if s.Hub == nil {
		return nil, errors.New("pull: no hub is configured")
	}
	ps, err := Find(name)
	if err != nil {
		if strings.Count(name, "/") != 1 {
			return nil, err
		}
		ps = []Preset{{Name: name, Repo: name, Revision: "main", Optional: append(slices.Clone(optionalHF), "config.json", "*.gguf")}}
	}
	var out []*hub.Snapshot
	for _, p := range ps {
		if !update {
			if snap, err := s.Hub.Cached(p.Repo, p.Revision, nil); err == nil {
				if _, _, missing := inspect(snap.Dir); len(missing) == 0 {
					out = append(out, snap)
					continue
				}
			}
		}
		snap, err := s.Hub.Pull(ctx, hub.Request{Repo: p.Repo, Revision: p.Revision, Want: p.Want, Optional: p.Optional, Progress: func(x hub.Progress) {
			if progress != nil {
				progress(p.Name, x)
			}
		}})
		if err != nil {
			return out, fmt.Errorf("pull %s: %w", p.Name, err)
		}
		if _, _, missing := inspect(snap.Dir); len(missing) > 0 {
			return out, fmt.Errorf("pull %s: %w: the repository has no %s", p.Name, ErrIncomplete, strings.Join(missing, ", "))
		}
		out = append(out, snap)
	}
	return out, nil
}

// EncoderSpec is the spec of a bi-encoder by name: the group "medcpt" (two towers), a
// preset of role Encoder, or the path of any BERT, which is opened with the settings
// in its own files.
func (s Store) EncoderSpec(name string) (models.EncoderSpec, error) {
	if strings.EqualFold(name, "medcpt") {
		q, err := s.Resolve("medcpt-query")
		if err != nil {
			return models.EncoderSpec{}, err
		}
		a, err := s.Resolve("medcpt-article")
		if err != nil {
			return models.EncoderSpec{}, err
		}
		p := preset("medcpt-article")
		return models.EncoderSpec{QueryDir: q, ArticleDir: a, Pooling: p.Pooling, QueryTokens: preset("medcpt-query").MaxToken, ArticleTokens: p.MaxToken, PairArticles: true}, nil
	}
	p := preset(name)
	if p != nil && (p.Role == CrossEncoder || p.Role == Filter || p.Role == Generator) {
		return models.EncoderSpec{}, fmt.Errorf("%s is a %s, not an encoder", name, p.Role)
	}
	dir, err := s.Resolve(name)
	if err != nil {
		return models.EncoderSpec{}, err
	}
	spec := models.EncoderSpec{QueryDir: dir}
	if p != nil {
		spec.Pooling, spec.QueryTokens, spec.ArticleTokens, spec.PairArticles = p.Pooling, p.MaxToken, p.MaxToken, p.Pairs
	}
	return spec, nil
}
