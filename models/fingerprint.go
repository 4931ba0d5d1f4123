package models

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fingerprintVersion changes when the same files and settings begin to give other
// vectors or scores: another rule for titles, another tokenizer, another pooling.
const fingerprintVersion = "rag2 model 1"

const (
	wholeFile   = 64 << 20 // config.json and the vocabulary are hashed up to here
	sampleBytes = 64 << 10
	samples     = 16 // of a weights file, spread evenly; the first begins at byte 0
)

// fingerprint is the first half of a sha256, in hex, over the version above, the
// settings, and for each directory or file in turn the names, sizes and contents of
// config.json, the vocabulary and the weights. Of a weights file 16 pieces of 64 KiB
// are read, from its header to its last byte, so that checkpoints of many gigabytes
// are told apart in milliseconds. A file rewritten outside these pieces keeps its
// fingerprint: `models verify` is what rereads everything.
func fingerprint(dirs []string, settings ...string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s %q", fingerprintVersion, settings)
	for i, d := range dirs {
		if st, err := os.Stat(d); err == nil && !st.IsDir() { // a .gguf file holds all
			if err := hashFile(h, d, fmt.Sprintf("\n%d", i), true); err != nil {
				return "", fmt.Errorf("fingerprint: %w", err)
			}
			continue
		}
		entries, err := os.ReadDir(d)
		if err != nil {
			return "", fmt.Errorf("fingerprint: %w", err)
		}
		n := 0
		for _, e := range entries { // sorted by name
			name := e.Name()
			weights := strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".gguf")
			if !weights && !slices.Contains([]string{"config.json", "tokenizer.json", "spiece.model", "added_tokens.json", "model.safetensors.index.json"}, name) {
				continue
			}
			n++
			if err := hashFile(h, filepath.Join(d, name), fmt.Sprintf("\n%d %q", i, name), weights); err != nil {
				return "", fmt.Errorf("fingerprint: %w", err)
			}
		}
		if n == 0 {
			return "", fmt.Errorf("fingerprint: %s holds no model: %w", d, os.ErrNotExist)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// hashFile adds label, size and content, or pieces of it, to h.
func hashFile(h io.Writer, path, label string, sampled bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	size := st.Size()
	fmt.Fprintf(h, "%s %d\n", label, size)
	if !sampled || size <= samples*sampleBytes {
		_, err := io.Copy(h, io.LimitReader(f, wholeFile))
		return err
	}
	for i := range int64(samples) {
		at := (size - sampleBytes) / (samples - 1) * i
		if i == samples-1 {
			at = size - sampleBytes
		}
		if _, err := io.Copy(h, io.NewSectionReader(f, at, sampleBytes)); err != nil {
			return err
		}
	}
	return nil
}
