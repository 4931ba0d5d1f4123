package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"rag2/hnsw"
	"rag2/internal/npy"

	"github.com/spf13/cobra"
)

func (a *app) set() *cobra.Command {
	c := group("set", "vectors made elsewhere: segments that are searched as one, with additions and deletions",
		a.setImport(), a.setMerge(), a.setAdd(), a.setDelete(), a.setInfo(), a.setSearch())
	c.Long = "A set is a folder of index segments over .npy files that stay where they are. Every vector has an id, its PMID where\nthe files have them. Additions are scanned until `set merge` takes them into a segment; deletions are left out of hits."
	return c
}

// buildFlags define how a segment is built.
func buildFlags(c *cobra.Command, b *hnsw.BuildOptions, codes *string) {
	f := c.Flags()
	f.IntVar(&b.M, "graph-m", 16, "neighbours per node of the graph")
	f.IntVar(&b.EfConstruction, "ef-construction", 200, "width of the search while building")
	f.StringVar(codes, "codes", "pca", codesUsage)
}

func (a *app) setImport() *cobra.Command {
	var o hnsw.ImportOptions
	var codes, shard string
	c := &cobra.Command{
		Use:   "import DIR SET",
		Short: "index embeddings made by others where they lie; goes on where it was stopped",
		Long: "Index NCBI's MedCPT embeddings (embeds_chunk_i.npy, pmids_chunk_i.json, pubmed_chunk_i.json) or the RAG² authors'\n" +
			"(PubMed_Embeds_i.npy, PubMed_Articles_i.json, PMC_Main_Embeds.npy, ...). Files are taken in numeric order, their rows\n" +
			"are counted, a missing one is an error. --shard builds one segment alone, for an array of jobs; the call without it\n" +
			"then takes them all into the set.",
		Args: usageArgs(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			err := given(c, "shard")
			if err != nil {
				return err
			}
			if o.Build.Codes, err = hnsw.ParseCodes(codes); err != nil {
				return usageError{err}
			}
			if shard != "" {
				i, n, err := parseShard(shard)
				if err != nil {
					return err
				}
				if o.Segments != 0 && o.Segments != n {
					return usagef("--shard %s and --segments %d", shard, o.Segments)
				}
				o.Unit, o.Segments = i, n
			}
			var p progress
			o.Progress = func(s, n, done, total int) { p.update(fmt.Sprintf("segment %d of %d", s+1, n), done, total) }
			r, err := hnsw.Import(c.Context(), args[0], args[1], o)
			p.done()
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(r)
			}
			fmt.Printf("%s: %d vectors of %d files in %d segments, %d of them there before\n", args[1], r.Rows, len(r.Chunks), r.Segments, r.Reused)
			return nil
		},
	}
	buildFlags(c, &o.Build, &codes)
	c.Flags().StringVar(&o.Articles, "articles", "", "folder of the articles' JSON files (default that of the embeddings)")
	c.Flags().IntVar(&o.Segments, "segments", 0, "segments at most (default 8)")
	c.Flags().StringVar(&shard, "shard", "", shardUsage)
	return c
}

// withSet opens a set, calls f and closes it.
func withSet(dir, warm string, f func(*hnsw.Set) error) error {
	s, err := hnsw.OpenSet(dir, hnsw.OpenOptions{Warm: warm})
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

// state prints a set's state.
func (a *app) state(dir string, s *hnsw.Set) error {
	st := s.State()
	if a.json {
		return printJSON(st)
	}
	fmt.Printf("%s: %d segments, %d vectors, %d deleted (%.1f %%), %d not in a segment yet\n", dir, st.Segments, st.Rows, st.Deleted, 100*st.Tombstone, st.Delta)
	if st.Advice != "" {
		fmt.Println("  advice:", st.Advice)
	}
	return nil
}

func (a *app) setMerge() *cobra.Command {
	var o hnsw.MergeOptions
	var codes string
	c := &cobra.Command{
		Use:   "merge SET",
		Short: "make fewer segments, take additions in and drop what was deleted; memory is that of one build",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.Build.Codes, err = hnsw.ParseCodes(codes); err != nil {
				return usageError{err}
			}
			var p progress
			o.Build.Progress = func(done, total int) { p.update("merging", done, total) }
			return withSet(args[0], "", func(s *hnsw.Set) error {
				old, err := s.Merge(c.Context(), o)
				p.done()
				if err != nil {
					return err
				}
				if !a.json {
					for _, f := range old {
						fmt.Println("no longer used:", f)
					}
				}
				return a.state(args[0], s)
			})
		},
	}
	buildFlags(c, &o.Build, &codes)
	c.Flags().IntVar(&o.Segments, "segments", 0, "segments at most (default 8)")
	return c
}

func (a *app) setAdd() *cobra.Command {
	return &cobra.Command{
		Use:   "add SET FILE.npy",
		Short: "add vectors; they are scanned until the set is merged",
		Args:  usageArgs(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			rows, err := readRows(args[1])
			if err != nil {
				return err
			}
			return withSet(args[0], "", func(s *hnsw.Set) error {
				first, err := s.Append(rows)
				if err != nil {
					return fmt.Errorf("%s: %w", args[1], err)
				}
				if !a.json {
					fmt.Printf("ids %d to %d\n", first, first+int64(len(rows))-1)
				}
				return a.state(args[0], s)
			})
		},
	}
}

// readRows reads the rows of an .npy file.
func readRows(path string) ([][]float32, error) {
	x, err := npy.Open(path)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	if x.Rows() == 0 {
		return nil, fmt.Errorf("%s: no vectors", path)
	}
	rows := make([][]float32, x.Rows())
	for i := range rows {
		rows[i] = append([]float32(nil), x.Row32(i, nil)...)
	}
	return rows, nil
}

func (a *app) setDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete SET ID...",
		Short: "leave vectors out of every search from now on",
		Args:  usageArgs(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			var ids []int64
			for _, s := range args[1:] {
				id, err := strconv.ParseInt(s, 10, 64)
				if err != nil {
					return usagef("id %q is no number", s)
				}
				ids = append(ids, id)
			}
			return withSet(args[0], "", func(s *hnsw.Set) error {
				n, err := s.Delete(ids...)
				if err != nil {
					return err
				}
				if !a.json {
					fmt.Printf("%d of %d ids deleted; the others are not in the set, or were deleted before\n", n, len(ids))
				}
				return a.state(args[0], s)
			})
		},
	}
}

func (a *app) setInfo() *cobra.Command {
	return &cobra.Command{
		Use:   "info SET",
		Short: "say how many segments, additions and deletions a set has and what to do about them",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return withSet(args[0], "", func(s *hnsw.Set) error { return a.state(args[0], s) })
		},
	}
}

func (a *app) setSearch() *cobra.Command {
	var o hnsw.SetOptions
	var k int
	var warm string
	var only []int64
	c := &cobra.Command{
		Use:   "search SET QUERIES.npy",
		Short: "find the nearest vectors of each row of a file; one line of JSON each with ids and scores",
		Args:  usageArgs(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := (hnsw.OpenOptions{Warm: warm}).Validate(); err != nil {
				return usageError{err}
			}
			qs, err := readRows(args[1])
			if err != nil {
				return err
			}
			if len(only) > 0 {
				among := make(map[int64]bool, len(only))
				for _, id := range only {
					among[id] = true
				}
				o.Keep = func(id int64) bool { return among[id] }
			}
			return withSet(args[0], warm, func(s *hnsw.Set) error { return searchSet(c.Context(), s, args[1], qs, k, o) })
		},
	}
	f := c.Flags()
	f.IntVar(&k, "nearest", 10, "vectors to find for each query")
	f.IntVar(&o.Ef, "ef", 0, efUsage)
	f.BoolVar(&o.Exact, "exact", false, exactUsage)
	f.Int64SliceVar(&only, "among", nil, "find only vectors with these ids")
	f.StringVar(&warm, "warm", "none", warmUsage)
	return c
}

func searchSet(ctx context.Context, s *hnsw.Set, file string, qs [][]float32, k int, o hnsw.SetOptions) error {
	type line struct {
		Query int           `json:"query"`
		Hits  []hnsw.SetHit `json:"hits"`
		Work  hnsw.Stats    `json:"work"`
	}
	for i, q := range qs {
		h, st, err := s.Search(ctx, q, k, o)
		if err != nil {
			return fmt.Errorf("%s, row %d: %w", file, i, err)
		}
		if err := printLine(2, line{i, h, st}); err != nil { // always one line
			return err
		}
	}
	return nil
}
