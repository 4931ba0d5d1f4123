package main

import (
	"os"
	"path/filepath"

	"rag2/tensor"

	"github.com/spf13/cobra"
)

// app holds the settings that every command shares.
type app struct {
	home   string
	models string
	engine string
	plugin string
	json   bool
}

// envOr is the value of an environment variable, or a default.
func envOr(name, def string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return def
}

func defaultHome() string {
	if d, err := os.UserHomeDir(); err == nil {
		return filepath.Join(d, ".local", "share", "rag2")
	}
	return "rag2-data"
}

func defaultModels(home string) string {
	if d := os.Getenv("RAG2_CACHE"); d != "" {
		return filepath.Join(d, "models")
	}
	if d, err := os.UserCacheDir(); err == nil {
		if p := filepath.Join(d, "rag2", "models"); isDir(p) {
			return p
		}
	}
	return filepath.Join(home, "models")
}

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

func (a *app) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.home, "home", envOr("RAG2_HOME", defaultHome()), "data directory: corpora and indexes (RAG2_HOME)")
	f.StringVar(&a.models, "models-dir", envOr("RAG2_MODELS_DIR", defaultModels(envOr("RAG2_HOME", defaultHome()))), "directory of models (RAG2_MODELS_DIR)")
	f.StringVar(&a.engine, "engine", envOr("RAG2_ENGINE", "auto"), "auto, xla:cuda, xla:cpu or go (RAG2_ENGINE)")
	f.StringVar(&a.plugin, "pjrt-plugin", "", "PJRT plugin file of the xla engines (RAG2_PJRT_PLUGIN)")
	f.BoolVar(&a.json, "json", false, "print JSON")
}

// open opens the chosen engine.
func (a *app) open() (*tensor.Engine, error) {
	return tensor.Open(a.engine, tensor.Options{Plugin: a.plugin, Home: a.home})
}
