package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rag2/pipeline/home"
	"rag2/tensor"
	"rag2/tensor/simd"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app holds the settings that every command shares. A setting is defined once, as a
// flag: the same name is its key in the configuration file, and RAG2_NAME in upper
// case with _ for - is its environment variable. Flags win over the environment, the
// environment over the file.
type app struct {
	config string
	home   string
	models string
	engine string
	plugin string
	memory float64
	json   bool
}

func defaultHome() string {
	if d, err := os.UserHomeDir(); err == nil {
		return filepath.Join(d, ".local", "share", "rag2")
	}
	return "rag2-data"
}

func defaultModels() string {
	if d := os.Getenv("RAG2_CACHE"); d != "" {
		return filepath.Join(d, "models")
	}
	if d, err := os.UserCacheDir(); err == nil {
		return filepath.Join(d, "rag2", "models")
	}
	return filepath.Join(defaultHome(), "models")
}

func defaultConfig() string {
	if d, err := os.UserConfigDir(); err == nil {
		return filepath.Join(d, "rag2", "config.toml")
	}
	return ""
}

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

func (a *app) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.config, "config", defaultConfig(), "configuration file (TOML; keys are the names of flags)")
	f.StringVar(&a.home, "home", defaultHome(), "data directory: corpora and indexes")
	f.StringVar(&a.models, "models-dir", defaultModels(), "directory of models")
	f.StringVar(&a.engine, "engine", "auto", "auto, "+strings.Join(tensor.Known(), ", ")+"; the xla engines compute in bfloat16 with :bf16 behind them")
	f.StringVar(&a.plugin, "pjrt-plugin", "", "PJRT plugin file of the xla engines (default: searched for)")
	f.Float64Var(&a.memory, "gpu-memory-fraction", 0, "share of the GPU's memory to reserve at the start and never exceed (default: take what is needed)")
	f.BoolVar(&a.json, "json", false, "print JSON")
}

// envName is the environment variable of a flag.
func envName(flag string) string {
	return "RAG2_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// configure gives every flag that was not set on the command line its value from the
// environment or the configuration file.
func (a *app) configure(c *cobra.Command) error {
	if simd.LevelError != nil {
		return usageError{simd.LevelError}
	}
	if !c.Flags().Changed("config") {
		if v := os.Getenv(envName("config")); v != "" {
			if err := c.Flags().Set("config", v); err != nil {
				return err
			}
		}
	}
	file, err := a.readConfig(c)
	if err != nil {
		return err
	}
	var errs []error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "config" || f.Name == "help" || f.Name == "version" {
			return
		}
		v, from := os.Getenv(envName(f.Name)), envName(f.Name)
		var list []string
		if x, ok := file[f.Name]; v == "" && ok {
			v, from = fmt.Sprint(x), a.config
			if xs, ok := x.([]any); ok {
				for _, e := range xs {
					list = append(list, fmt.Sprint(e))
				}
			}
		}
		if v == "" {
			return
		}
		err := error(nil)
		if s, ok := f.Value.(pflag.SliceValue); ok && list != nil {
			err = s.Replace(list)
		} else {
			err = c.Flags().Set(f.Name, v)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", from, f.Name, err))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// readConfig reads the configuration file. A key that no command has is an error; the
// default file may be absent.
func (a *app) readConfig(c *cobra.Command) (map[string]any, error) {
	b, err := os.ReadFile(a.config)
	if err != nil {
		if os.IsNotExist(err) && a.config == defaultConfig() {
			return nil, nil
		}
		return nil, usageError{fmt.Errorf("configuration: %w", err)}
	}
	file := map[string]any{}
	if err := toml.Unmarshal(b, &file); err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", a.config, err)}
	}
	known := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(c.Root())
	for k := range file {
		if !known[k] {
			return nil, usagef("%s: no setting is called %q; keys are the names of flags, see rag2 help", a.config, k)
		}
	}
	return file, nil
}

// open opens the chosen engine and says what it fell back from.
func (a *app) open() (*tensor.Engine, error) {
	e, err := tensor.Open(a.engine, tensor.Options{Plugin: a.plugin, Home: a.home, MemoryFraction: a.memory})
	if err != nil {
		return nil, err
	}
	for _, w := range e.Warnings {
		fmt.Fprintln(os.Stderr, "rag2: warning:", w)
	}
	return e, nil
}

func (a *app) data() home.Home { return home.Home{Dir: a.home} }
