package models

import (
	"fmt"
	"os"

	"rag2/models/bert"
	"rag2/models/tokenizer"
	"rag2/tensor"
	"rag2/tensor/weights"
)

// Resolver finds the directory of a model by its name, its repository or its path.
type Resolver func(name string) (dir string, err error)

// directory is the Resolver that knows paths only.
func directory(name string) (string, error) {
	if st, err := os.Stat(name); err != nil || !st.IsDir() {
		return "", fmt.Errorf("%s is no directory: %w", name, os.ErrNotExist)
	}
	return name, nil
}

// adapted finds the model that dir's LoRA adapter changes; ok is false when dir is a
// model of its own.
func adapted(dir string, find Resolver) (base string, ok bool, err error) {
	name, ok, err := weights.AdapterBase(dir)
	if err != nil || !ok {
		return "", false, err
	}
	if base, err = find(name); err != nil {
		return "", false, fmt.Errorf("%s is an adapter of %s: %w", dir, name, err)
	}
	return base, true, nil
}

// openClassifier opens a BERT with a classification head, or an adapter to one; dirs are
// the directories that it came from.
func openClassifier(e *tensor.Engine, dir string, find Resolver) (m *bert.Model, t tokenizer.Tokenizer, dirs []string, err error) {
	base, ok, err := adapted(dir, find)
	if err != nil {
		return nil, nil, nil, err
	}
	if !ok {
		m, t, err = openBERT(e, dir, bert.Classifier, true)
		return m, t, []string{dir}, err
	}
	if t, err = tokenizer.Load(base); err != nil {
		return nil, nil, nil, err
	}
	if m, err = bert.OpenAdapted(e, base, dir, bert.Classifier); err != nil {
		return nil, nil, nil, err
	}
	if err := fits(m, t, dir, true); err != nil {
		m.Close()
		return nil, nil, nil, err
	}
	return m, t, []string{base, dir}, nil
}
