package models

import (
	"os"
	"path/filepath"
	"strings"

	"rag2/models/tokenizer"
	"rag2/tensor/weights"
)

// OpenTokenizer loads the tokenizer of a model: of a directory its tokenizer.json or
// spiece.model, else that of its GGUF file; or such a file itself.
func OpenTokenizer(path string) (tokenizer.Tokenizer, error) {
	gguf := strings.HasSuffix(path, ".gguf")
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		gguf = true
		for _, n := range []string{"tokenizer.json", "spiece.model"} {
			if _, err := os.Stat(filepath.Join(path, n)); err == nil {
				gguf = false
			}
		}
	}
	if !gguf {
		return tokenizer.Load(path)
	}
	w, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return tokenizer.FromGGUF(w.Path(), w.Meta())
}
