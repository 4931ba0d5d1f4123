package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"rag2/models"
	"rag2/tensor"

	"github.com/spf13/cobra"
)

// check is one line of doctor's report.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "say which engines, models and data are usable here, and what to do about the rest",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			checks := a.diagnose(c)
			failed := false
			if a.json {
				if err := printJSON(checks); err != nil {
					return err
				}
			}
			for _, k := range checks {
				mark := "ok  "
				if !k.OK {
					mark = "--  "
				}
				if !a.json {
					fmt.Printf("%s %-16s %s\n", mark, k.Name, k.Detail)
				}
				failed = failed || !k.OK && k.Name == "engine auto"
			}
			if failed {
				return fmt.Errorf("no engine runs here")
			}
			return nil
		},
	}
}

func (a *app) diagnose(c *cobra.Command) []check {
	out := []check{{"rag2", true, fmt.Sprintf("%s, %s %s/%s, %d CPUs", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}}
	var engine *tensor.Engine
	for _, name := range append(tensor.Known(), "auto") {
		e, err := tensor.Open(name, tensor.Options{Plugin: a.plugin, Home: a.home})
		if err != nil {
			out = append(out, check{"engine " + name, false, err.Error()})
			continue
		}
		out = append(out, check{"engine " + name, true, e.Describe()})
		for _, w := range e.Warnings {
			out = append(out, check{"warning", false, w})
		}
		if name == "auto" {
			engine = e
			defer e.Close()
		} else {
			e.Close()
		}
	}
	for _, f := range tensor.CUDA(tensor.Options{Plugin: a.plugin, Home: a.home}) {
		out = append(out, check{f.Name, f.OK, f.Detail})
	}
	dir := filepath.Join(a.models, "minilm")
	if engine != nil && isDir(dir) {
		out = append(out, checkEncoder(c, engine, dir))
	} else {
		out = append(out, check{"encoder", false, dir + " is not there; `make models` fetches the demo's"})
	}
	st, err := os.Stat(a.home)
	switch {
	case err != nil:
		out = append(out, check{"home", true, a.home + " (made when the first corpus is added)"})
	case !st.IsDir():
		out = append(out, check{"home", false, a.home + " is not a directory"})
	default:
		out = append(out, check{"home", true, a.home})
	}
	return out
}

// checkEncoder encodes one text for real.
func checkEncoder(c *cobra.Command, e *tensor.Engine, dir string) check {
	enc, err := models.OpenEncoder(e, models.EncoderSpec{QueryDir: dir})
	if err != nil {
		return check{"encoder", false, err.Error()}
	}
	defer enc.Close()
	v, _, err := enc.EncodeQueries(c.Context(), []string{"chest pain"})
	if err != nil {
		return check{"encoder", false, err.Error()}
	}
	return check{"encoder", true, fmt.Sprintf("%s: %d dimensions, first value %.4f", dir, len(v[0]), v[0][0])}
}
