package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"rag2/models/hub"
	"rag2/models/registry"

	"github.com/spf13/cobra"
)

// hubFlags choose where models are pulled from.
type hubFlags struct {
	endpoint string
	offline  bool
}

func (f *hubFlags) define(c *cobra.Command) {
	c.Flags().StringVar(&f.endpoint, "hub", "", "address of the model hub (default HF_ENDPOINT, or "+hub.DefaultEndpoint+")")
	c.Flags().BoolVar(&f.offline, "offline", false, "open no connection")
}

// store is the models directory, with Hugging Face's cache behind it.
func (a *app) store(f *hubFlags) (registry.Store, error) {
	o := hub.FromEnv()
	o.Offline = o.Offline || f == nil || f.offline
	if f != nil && f.endpoint != "" {
		o.Endpoint = f.endpoint
	}
	c, err := hub.New(o)
	if err != nil {
		return registry.Store{}, usageError{err}
	}
	return registry.Store{Dir: a.models, Hub: c}, nil
}

func (a *app) modelsCommand() *cobra.Command {
	return group("models", "list, fetch and check models", a.modelsList(), a.modelsPull(), a.modelsVerify())
}

func (a *app) modelsList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the known models: which are here, their size and licence",
		Long: "List the known models: which are here, their size, licence, and what their weights take in memory as float32. Models\n" +
			"are opened in the order encoder, cross-encoder, filter, language model; one that does not fit beside those before it is refused.",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			s, err := a.store(nil)
			if err != nil {
				return err
			}
			all := s.List()
			if a.json {
				return printJSON(all)
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tROLE\tHERE\tSIZE\tMEMORY\tLICENCE\tNOTE")
			for _, m := range all {
				here, size, mem := "no", m.Bytes, ""
				if m.Memory > 0 {
					mem = megabytes(m.Memory)
				}
				if m.Dir != "" {
					here, size = "yes", m.OnDisk
				}
				if len(m.Missing) > 0 {
					here = fmt.Sprintf("incomplete: no %s", m.Missing[0])
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Role, here, megabytes(size), mem, m.Licence, m.Note)
			}
			return w.Flush()
		},
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+500_000)/1_000_000) }

func (a *app) modelsPull() *cobra.Command {
	var f hubFlags
	var update bool
	c := &cobra.Command{
		Use:   "pull NAME...",
		Short: "fetch models from the hub; goes on where it was stopped",
		Long: "Fetch models from the hub into Hugging Face's cache. NAME is one of `rag2 models list`, the groups\n" +
			"medcpt and demo, or any repository as ORG/NAME. Gated models need a token in HF_TOKEN.",
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.store(&f)
			if err != nil {
				return err
			}
			out := []*hub.Snapshot{}
			for _, n := range args {
				var p progress
				note := ""
				got, err := s.Pull(c.Context(), n, update, func(model string, x hub.Progress) {
					if x.Note != "" && x.Note != note {
						p.done()
						fmt.Fprintf(os.Stderr, "%s: %s: %s\n", model, x.File, x.Note)
					}
					note = x.Note
					p.update("pulling "+model+" (kB)", int(x.Done/1000), int(x.Total/1000))
				})
				p.done()
				if err != nil {
					if errors.Is(err, registry.ErrUnknown) {
						return usageError{err}
					}
					return err
				}
				out = append(out, got...)
			}
			if a.json {
				return printJSON(out)
			}
			for _, s := range out {
				fmt.Printf("%s: %d files, %s, in %s\n", s.Repo, len(s.Files), megabytes(s.Size()), s.Dir)
			}
			return nil
		},
	}
	f.define(c)
	c.Flags().BoolVar(&update, "update", false, "ask the hub again for models that are complete")
	return c
}

func (a *app) modelsVerify() *cobra.Command {
	var static bool
	c := &cobra.Command{
		Use:   "verify [NAME...]",
		Short: "reread models: hashes, shapes, types, tokenizer, a forward pass",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.store(nil)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				for _, m := range s.List() {
					if m.Dir != "" {
						args = append(args, m.Name)
					}
				}
			}
			if len(args) == 0 {
				return fmt.Errorf("%w: there are none in %s", registry.ErrMissing, a.models)
			}
			var st stack
			defer st.close()
			if !static {
				if err := st.openEngine(a); err != nil {
					return err
				}
			}
			rs := []registry.Report{}
			bad := 0
			for _, n := range args {
				r, err := s.Verify(c.Context(), st.engine, n)
				if err != nil {
					return err
				}
				rs = append(rs, r)
				if !r.OK() {
					bad++
				}
				if a.json {
					continue
				}
				fmt.Printf("%s (%s)\n", r.Name, r.Dir)
				for _, x := range r.Steps {
					fmt.Printf("  %-7s %-14s %s\n", map[bool]string{true: "ok", false: "damaged"}[x.OK], x.Name, x.Detail)
				}
			}
			if a.json {
				if err := printJSON(rs); err != nil {
					return err
				}
			}
			if bad > 0 {
				return fmt.Errorf("%d of %d models are damaged", bad, len(rs))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&static, "no-run", false, "do not run the networks")
	return c
}
