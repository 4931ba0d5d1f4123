package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rag2/hnsw"

	"github.com/spf13/cobra"
)

func (a *app) indexPlan() *cobra.Command {
	var o hnsw.PlanOptions
	var codes string
	c := &cobra.Command{
		Use:   "plan",
		Short: "say what an index will take: bytes on disk and in memory, predicted times",
		Long:  "Say what an index will take. Without --rows: the four corpora of the RAG² paper. Times are predicted from constants\nmeasured on one machine, not measured here.",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			var err error
			if o.Codes, err = hnsw.ParseCodes(codes); err != nil {
				return usageError{err}
			}
			type plan struct {
				Name string `json:"name"`
				*hnsw.PlanReport
			}
			jobs := hnsw.PaperCorpora
			if o.Rows > 0 {
				jobs = slices.Clone(jobs[:1])
				jobs[0].Name, jobs[0].Rows = "index", o.Rows
			}
			var ps []plan
			var disk, ram int64
			for _, j := range jobs {
				o := o
				o.Rows = j.Rows
				r, err := hnsw.Plan(o)
				if err != nil {
					return usageError{err}
				}
				disk, ram = disk+r.Disk, ram+r.RAM
				ps = append(ps, plan{j.Name, r})
			}
			if a.json {
				return printJSON(ps)
			}
			for _, p := range ps {
				fmt.Printf("%s\n%s\n", p.Name, p.PlanReport)
			}
			if len(ps) > 1 {
				fmt.Printf("all: %.1f GiB on disk, %.1f GiB resident\n", float64(disk)/(1<<30), float64(ram)/(1<<30))
			}
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&o.Rows, "rows", 0, "passages (default: the paper's corpora)")
	f.IntVar(&o.Dim, "dim", 768, "dimensions of the vectors")
	f.IntVar(&o.M, "graph-m", 16, "neighbours per node of the graph")
	f.StringVar(&codes, "codes", "pca", codesUsage)
	f.BoolVar(&o.Half, "half", false, "float16 vectors")
	f.Float64Var(&o.GraphCached, "graph-cached", 0.12, "share of the graph's lowest level that stays in memory")
	f.DurationVar(&o.Disk, "disk-latency", 100*time.Microsecond, "time of a random 4 KiB read")
	return c
}

const codesUsage = "what a search reads first: none (the vectors), int8, 4bit, 1bit, pca (as small as 1bit, and nearer); vectors then only rescore"

func (a *app) indexTune() *cobra.Command {
	var s stack
	var qf questionFlags
	var o hnsw.TuneOptions
	c := &cobra.Command{
		Use:   "tune NAME",
		Short: "choose the search width that reaches a recall on real questions, and keep it",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			qs, err := qf.read(nil)
			if err != nil {
				return err
			}
			if _, err := a.data().Manifest(args[0]); err != nil {
				return err
			}
			defer s.close()
			if err := s.openEncoder(a); err != nil {
				return err
			}
			x, err := a.data().Open(args[0], s.enc.Fingerprint(), "")
			if err != nil {
				return err
			}
			defer x.Close()
			// A sample is enough, and the same one every time.
			rand.New(rand.NewPCG(1, 1)).Shuffle(len(qs), func(i, j int) { qs[i], qs[j] = qs[j], qs[i] })
			var texts []string
			for _, q := range qs[:min(len(qs), 1000)] {
				texts = append(texts, q.Render())
			}
			vs, _, err := s.enc.EncodeQueries(c.Context(), texts)
			if err != nil {
				return err
			}
			// Every segment finds its own nearest with this recall, hence the corpus too.
			for _, g := range x.Indexes() {
				r, err := g.Tune(c.Context(), vs, o)
				if err != nil {
					return err
				}
				if err := hnsw.SaveSettings(g.Path(), r.Settings); err != nil {
					return err
				}
				if a.json {
					if err := printJSON(r); err != nil {
						return err
					}
					continue
				}
				fmt.Printf("%s: ef %d, rescore %d: recall@%d %.4f on %d questions\n", args[0], r.Settings.Ef, r.Settings.Rescore, r.Settings.K, r.Settings.Recall, len(vs))
			}
			return nil
		},
	}
	s.encoderFlags(c)
	qf.define(c)
	c.Flags().Float64Var(&o.Recall, "recall", 0.95, "share of the true nearest passages that a search must find")
	c.Flags().IntVar(&o.K, "at", 10, "of how many nearest passages")
	return c
}

func (a *app) indexRecode() *cobra.Command {
	var codes string
	c := &cobra.Command{
		Use:   "recode NAME",
		Short: "give an index other codes and keep its graph; takes a fraction of a build",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			k, err := hnsw.ParseCodes(codes)
			if err != nil {
				return usageError{err}
			}
			m, err := a.data().Manifest(args[0])
			if err != nil {
				return err
			}
			unlock, err := a.data().Lock(args[0])
			if err != nil {
				return err
			}
			defer unlock()
			graphs, _, err := a.data().Graphs(m)
			if err != nil {
				return err
			}
			for _, g := range graphs { // replaced atomically; the old one stays mapped until it is read
				if err := hnsw.Recode(c.Context(), g, g, k); err != nil {
					return err
				}
				// Search widths were chosen for the old codes.
				if err := os.Remove(hnsw.SettingsPath(g)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			if a.json {
				return printJSON(map[string]string{"name": args[0], "codes": k.String()})
			}
			fmt.Printf("%s: codes %v; `rag2 index tune` chooses the search width anew\n", args[0], k)
			return nil
		},
	}
	c.Flags().StringVar(&codes, "codes", "none", codesUsage)
	return c
}

func (a *app) indexRepair() *cobra.Command {
	return &cobra.Command{
		Use:   "repair NAME",
		Short: "mend an index whose vectors are whole: damaged lists and unreachable nodes",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := a.data().Manifest(args[0])
			if err != nil {
				return err
			}
			unlock, err := a.data().Lock(args[0])
			if err != nil {
				return err
			}
			defer unlock()
			graphs, vectors, err := a.data().Graphs(m)
			if err != nil {
				return err
			}
			for _, g := range graphs {
				r, err := hnsw.Repair(c.Context(), g, vectors...)
				if err != nil {
					return err
				}
				if a.json {
					if err := printJSON(r); err != nil {
						return err
					}
					continue
				}
				fmt.Printf("%s: %+v\n", filepath.Base(g), *r)
			}
			return nil
		},
	}
}
