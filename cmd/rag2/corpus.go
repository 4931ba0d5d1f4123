package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"rag2/corpusio"
	"rag2/corpusio/reader"
	"rag2/corpusio/store"
	"rag2/hnsw"
	"rag2/pipeline/home"
	"rag2/pipeline/ingest"

	"github.com/spf13/cobra"
)

func (a *app) corpus() *cobra.Command {
	return group("corpus", "make, list and check corpora", a.corpusAdd(), a.corpusList(), a.corpusVerify())
}

func (a *app) corpusAdd() *cobra.Command {
	var o ingest.AddOptions
	var skips bool
	c := &cobra.Command{
		Use:   "add NAME FILE...",
		Short: "read source files into a corpus",
		Long: "Read source files into a corpus; folders are read whole, .gz and .tar.gz as they are.\n" +
			"Formats: " + strings.Join(reader.Formats(), ", ") + ". A record whose id the corpus has replaces it;\n" +
			"a citation that a PubMed update deletes is removed. Then run `rag2 index build NAME`.",
		Args: usageArgs(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if f := o.Format; f != "auto" && !slices.Contains(reader.Formats(), f) {
				return usagef("format %q; one of auto, %s", f, strings.Join(reader.Formats(), ", "))
			}
			var p progress
			o.Progress = func(file string, bytes int64, records int) { p.update("reading "+file+" (records)", records, 0) }
			shown := 0
			o.OnSkip = func(s corpusio.Skip) {
				if shown++; skips || shown <= 5 {
					p.done()
					fmt.Fprintf(os.Stderr, "skipped: %+v: %s %s %s\n", s.Source, s.Reason, s.ID, s.Detail)
				}
			}
			m, err := ingest.Add(c.Context(), a.data(), args[0], args[1:], o)
			p.done()
			if err != nil {
				return err
			}
			if !skips && shown > 5 {
				fmt.Fprintf(os.Stderr, "skipped: %d more; --skips shows all\n", shown-5)
			}
			if a.json {
				return printJSON(m)
			}
			fmt.Printf("%s: %d passages from %d documents\n", m.Name, m.Passages, m.Accounting.Indexed)
			printAccounting(m.Accounting)
			return nil
		},
	}
	c.Flags().StringVar(&o.Format, "format", "auto", "format of the files")
	c.Flags().IntVar(&o.Chunk.Words, "chunk-words", 128, "words per passage")
	c.Flags().IntVar(&o.Chunk.Overlap, "chunk-overlap", 32, "words that neighbouring passages share")
	c.Flags().BoolVar(&o.Replace, "replace", false, "drop what the corpus held")
	c.Flags().BoolVar(&skips, "skips", false, "show every skipped element")
	return c
}

func printAccounting(acc home.Accounting) {
	fmt.Printf("  records %d = indexed %d + replaced %d + deleted %d\n", acc.Records, acc.Indexed, acc.Replaced, acc.Deleted)
	for _, r := range slices.Sorted(maps.Keys(acc.Skipped)) {
		fmt.Printf("  skipped %d: %s\n", acc.Skipped[r], r)
	}
}

func (a *app) corpusList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the corpora and their indexes",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			names, err := a.data().Names()
			if err != nil {
				return err
			}
			ms := []*home.Manifest{}
			for _, n := range names {
				m, err := a.data().Manifest(n)
				if err != nil {
					return err
				}
				ms = append(ms, m)
			}
			if a.json {
				return printJSON(ms)
			}
			if len(ms) == 0 {
				fmt.Printf("no corpora in %s\n", a.home)
				return nil
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tDOCUMENTS\tPASSAGES\tINDEX\tENCODER\tCHANGED")
			for _, m := range ms {
				state, enc := "none", ""
				if m.Index != nil {
					state, enc = "ready", m.Index.EncoderName
					if m.Index.StoreID != m.StoreID {
						state = "stale"
					}
				}
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", m.Name, m.Accounting.Indexed, m.Passages, state, enc, m.Changed.Format("2006-01-02 15:04"))
			}
			return w.Flush()
		},
	}
}

// verdict is the result of checking one thing.
type verdict struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Count int    `json:"count"`
}

// report prints verdicts and fails when one is bad.
func (a *app) report(vs []verdict, unit string) error {
	bad := 0
	for _, v := range vs {
		if !v.OK {
			bad++
		}
		if a.json {
			continue
		}
		if v.OK {
			fmt.Printf("ok      %s: %d %s\n", v.Name, v.Count, unit)
		} else {
			fmt.Printf("damaged %s: %s\n", v.Name, v.Error)
		}
	}
	if a.json {
		if err := printJSON(vs); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d are damaged", bad, len(vs))
	}
	return nil
}

// names are the corpora given, or all.
func (a *app) names(args []string) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	names, err := a.data().Names()
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%w: there are none in %s; `rag2 corpus add` makes one", home.ErrNoCorpus, a.home)
	}
	return names, err
}

func (a *app) corpusVerify() *cobra.Command {
	return a.verify("reread every passage and compare with the manifest", "passages", func(c *cobra.Command, name string) (int, error) {
		m, err := a.data().Manifest(name)
		if err != nil {
			return 0, err
		}
		return m.Passages, a.verifyStore(c, m)
	})
}

// verify is a command that checks corpora one by one and reports on all of them. An
// unknown corpus is an error of the call; damage is not, and the next one is checked.
func (a *app) verify(short, unit string, check func(c *cobra.Command, name string) (count int, err error)) *cobra.Command {
	return &cobra.Command{
		Use:   "verify [NAME...]",
		Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			names, err := a.names(args)
			if err != nil {
				return err
			}
			vs := []verdict{}
			for _, n := range names {
				count, err := check(c, n)
				if errors.Is(err, home.ErrNoCorpus) {
					return err
				}
				if c.Context().Err() != nil {
					return c.Context().Err()
				}
				v := verdict{Name: n, OK: err == nil, Count: count}
				if err != nil {
					v.Error = err.Error()
				}
				vs = append(vs, v)
			}
			return a.report(vs, unit)
		},
	}
}

func (a *app) verifyStore(c *cobra.Command, m *home.Manifest) error {
	dir, err := a.data().DataDir(m)
	if err != nil {
		return err
	}
	s, err := store.Open(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	if s.ID() != m.StoreID || s.Len() != m.Passages {
		return fmt.Errorf("store %s holds %d passages, the manifest names %s with %d", s.ID(), s.Len(), m.StoreID, m.Passages)
	}
	return s.Verify(c.Context())
}

func (a *app) index() *cobra.Command {
	return group("index", "build, describe and check the indexes of corpora", a.indexBuild(), a.indexInspect(), a.indexVerify(), a.indexTune(), a.indexRepair(), a.indexRecode(), a.indexPlan())
}

func (a *app) indexBuild() *cobra.Command {
	var s stack
	var g hnsw.BuildOptions
	var codes, vectors, shard string
	var segments int
	c := &cobra.Command{
		Use:   "build [NAME...]",
		Short: "encode the passages of corpora and build their graphs; goes on where it was stopped",
		Long: "Encode the passages of corpora and build their graphs; what was stopped goes on where it was.\n\n" +
			"A large corpus is encoded by `rag2 embed --shard i/n` on many machines, and --vectors takes the files. With --shard i/n\n" +
			"as well, one of n segments is built over the files where they lie, each by a job of its own on a shared disk; --shards n,\n" +
			"with the same options, then takes them into the corpus. Segments are searched together; more than 8 are merged into 8,\n" +
			"in the memory of one build.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := given(c, "shard", "vectors"); err != nil {
				return err
			}
			var err error
			if g.Codes, err = hnsw.ParseCodes(codes); err != nil {
				return usageError{err}
			}
			names, err := a.names(args)
			if err != nil {
				return err
			}
			if vectors != "" && len(names) != 1 {
				return usagef("--vectors is the folder of one corpus; name it")
			}
			o := ingest.IndexOptions{Graph: g, Vectors: vectors, Segments: segments}
			if shard != "" {
				i, n, err := parseShard(shard)
				if err != nil {
					return err
				}
				if segments != 0 && segments != n {
					return usagef("--shard %s and --shards %d", shard, segments)
				}
				o.Shard, o.Segments = i, n
			}
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			for _, n := range names { // before the model is loaded
				if _, err := a.data().Manifest(n); err != nil {
					return err
				}
			}
			defer s.close()
			if err := s.openEncoder(a); err != nil {
				return err
			}
			ms := []*home.Manifest{}
			for _, n := range names {
				var p progress
				o.EncoderName, o.Progress = s.encoder, func(step string, done, total int) { p.update(n+": "+step, done, total) }
				m, err := ingest.BuildIndex(c.Context(), a.data(), n, s.enc, o)
				p.done()
				if err != nil {
					return fmt.Errorf("%s: %w", n, err)
				}
				ms = append(ms, m)
				if !a.json && o.Shard > 0 {
					fmt.Printf("%s: segment %d of %d is built; `rag2 index build %s --shards %d` with the same options takes them all\n", n, o.Shard, o.Segments, n, o.Segments)
				} else if !a.json {
					fmt.Printf("%s: %d vectors of %d dimensions by %s; %d passages cut at the encoder's limit\n", n, m.Index.Rows, m.Index.Dim, m.Index.EncoderName, m.Index.Truncated)
				}
			}
			if a.json {
				return printJSON(ms)
			}
			return nil
		},
	}
	s.encoderFlags(c)
	c.Flags().StringVar(&vectors, "vectors", "", "folder of vectors that `rag2 embed` wrote, instead of encoding")
	c.Flags().StringVar(&shard, "shard", "", shardUsage)
	c.Flags().IntVar(&segments, "shards", 0, "take the segments that --shard i/n built for this n, and build those that are missing; more than 8 are merged")
	c.Flags().IntVar(&g.M, "graph-m", 16, "neighbours per node of the graph")
	c.Flags().StringVar(&codes, "codes", "none", codesUsage)
	c.Flags().IntVar(&g.EfConstruction, "ef-construction", 200, "width of the search while building")
	return c
}

func (a *app) indexInspect() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect [NAME...]",
		Short: "describe indexes: encoder, dimensions, graph, sizes",
		RunE: func(c *cobra.Command, args []string) error {
			names, err := a.names(args)
			if err != nil {
				return err
			}
			type info struct {
				Name  string           `json:"name"`
				Index *home.IndexInfo  `json:"index"`
				Graph *hnsw.Info       `json:"graph,omitempty"`
				Parts []hnsw.Info      `json:"segments,omitempty"` // instead of one graph
				Bytes map[string]int64 `json:"bytes"`
				// Resident is what of the index the page cache holds.
				Resident []hnsw.Resident `json:"resident"`
			}
			out := []info{}
			for _, n := range names {
				x, err := a.data().Open(n, "", "")
				if err != nil {
					return err
				}
				i := info{Name: n, Index: x.Manifest.Index, Bytes: map[string]int64{}}
				for _, g := range x.Indexes() {
					r, e := g.Resident()
					err = errors.Join(err, e)
					i.Resident = append(i.Resident, r...)
					i.Parts = append(i.Parts, g.Info())
				}
				if err = errors.Join(err, x.Close()); err != nil {
					return err
				}
				if x.Index != nil {
					i.Graph, i.Parts = &i.Parts[0], nil
				}
				dir, err := a.data().DataDir(x.Manifest)
				if err != nil {
					return err
				}
				es, err := os.ReadDir(dir)
				if err != nil {
					return err
				}
				for _, e := range es {
					if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
						i.Bytes[e.Name()] = st.Size()
					} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
						return err
					}
				}
				out = append(out, i)
			}
			if a.json {
				return printJSON(out)
			}
			for _, i := range out {
				fmt.Printf("%s: %d × %d, encoder %s (%s), built %s\n", i.Name, i.Index.Rows, i.Index.Dim, i.Index.EncoderName, i.Index.Encoder, i.Index.Built.Format("2006-01-02 15:04"))
				if i.Graph != nil {
					fmt.Printf("  graph %+v\n", *i.Graph)
				}
				for _, g := range i.Parts {
					fmt.Printf("  segment %+v\n", g)
				}
				for _, f := range slices.Sorted(maps.Keys(i.Bytes)) {
					fmt.Printf("  %12d  %s\n", i.Bytes[f], f)
				}
				for _, r := range i.Resident {
					fmt.Printf("  %12d of %d bytes of %s in memory\n", r.Bytes, r.Total, r.Name)
				}
			}
			return nil
		},
	}
}

func (a *app) indexVerify() *cobra.Command {
	return a.verify("reread vectors and graphs: checksums, neighbours, reachability", "vectors", func(c *cobra.Command, name string) (int, error) {
		x, err := a.data().Open(name, "", "")
		if err != nil {
			return 0, err
		}
		defer x.Close()
		n := 0
		for _, g := range x.Indexes() {
			if err := g.Verify(c.Context()); err != nil {
				return 0, err
			}
			n += g.Len()
		}
		return n, nil
	})
}
