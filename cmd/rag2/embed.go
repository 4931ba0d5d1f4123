package main

import (
	"fmt"
	"os"
	"time"

	"rag2/models"
	"rag2/pipeline/ingest"

	"github.com/spf13/cobra"
)

// embedBatch is the number of lines that are encoded together, sorted by length.
const embedBatch = 256

// embed prints the vectors of texts, or writes those of a corpus.
func (a *app) embed() *cobra.Command {
	s := &stack{}
	var articles bool
	var o ingest.EmbedOptions
	var out, shard string
	c := &cobra.Command{
		Use:   "embed [CORPUS]",
		Short: `vectors of a corpus into files, or of texts: JSON lines {"text"} in, {"vector"} out`,
		Long: `Vectors of texts: JSON lines {"text"}, or {"title","text"} with --article, on standard input; {"vector"} on standard output.

With CORPUS: vectors of its passages into .npy files in the folder --out, passage i in row i over all files. A stopped call goes on
where it was. --shard i/n makes the i-th of n shares, for many machines on one folder. ` + "`rag2 index build --vectors`" + ` takes the files.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			defer s.close()
			if err := given(c, "shard", "out"); err != nil {
				return err
			}
			switch {
			case len(args) == 1 && out == "":
				return usagef("a corpus is embedded into a folder: --out names it")
			case len(args) == 1 && articles:
				return usagef("--article is for standard input; passages are always articles")
			case len(args) == 0 && (out != "" || shard != ""):
				return usagef("--out and --shard take a corpus")
			case len(args) == 0:
				return a.embedLines(c, s, articles)
			}
			if shard != "" {
				var err error
				if o.Shard, o.Shards, err = parseShard(shard); err != nil {
					return err
				}
			}
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			return a.embedCorpus(c, s, args[0], out, o)
		},
	}
	s.encoderFlags(c)
	f := c.Flags()
	f.BoolVar(&articles, "article", false, "embed articles instead of queries")
	f.StringVar(&out, "out", "", "where to write")
	f.StringVar(&shard, "shard", "", shardUsage)
	f.StringVar(&o.DType, "dtype", "f32", "type of the vectors' elements: f32 or f16")
	f.IntVar(&o.ChunkRows, "file-rows", 65536, "vectors in a file")
	return c
}

// embedCorpus writes the vectors of a corpus.
func (a *app) embedCorpus(c *cobra.Command, s *stack, name, out string, o ingest.EmbedOptions) error {
	if _, err := a.data().Manifest(name); err != nil { // before the model is loaded
		return err
	}
	if err := s.openEncoder(a); err != nil {
		return err
	}
	o.EncoderName = s.encoder
	var p progress
	start := time.Now()
	o.Progress = func(done, total, tokens int) {
		p.note = fmt.Sprintf("%.0f tokens/s", float64(tokens)/time.Since(start).Seconds())
		p.update(name+": passages", done, total)
	}
	r, err := ingest.Embed(c.Context(), a.data(), name, out, s.enc, o)
	p.done()
	if err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	if a.json {
		return printJSON(struct {
			*ingest.EmbedReport
			Seconds float64 `json:"seconds"`
		}{r, took})
	}
	fmt.Printf("%s: %d files (%d were there), %d passages and %d tokens encoded in %.1f s: %.1f passages/s, %.0f tokens/s; %d cut at the encoder's limit\n",
		name, r.Files, r.Reused, r.Encoded, r.Tokens, took, float64(r.Encoded)/took, float64(r.Tokens)/took, r.Truncated)
	state := "complete"
	if !r.Complete {
		state = "other shards are not finished"
	}
	fmt.Printf("%s: %d of %d rows counted in finished files: %s\n", out, r.Present, r.Rows, state)
	return nil
}

// embedLines prints the vectors of standard input.
func (a *app) embedLines(c *cobra.Command, s *stack, articles bool) error {
	if err := s.openEncoder(a); err != nil {
		return err
	}
	type in struct {
		Title string `json:"title"`
		Text  string `json:"text"`
	}
	var total models.Report
	err := eachLine(c, embedBatch, func(lines []int, batch []in) error {
		var vs [][]float32
		var rep models.Report
		var err error
		if articles {
			as := make([]models.Article, len(batch))
			for i, x := range batch {
				as[i] = models.Article{Title: x.Title, Body: x.Text}
			}
			vs, rep, err = s.enc.EncodeArticles(c.Context(), as)
		} else {
			qs := make([]string, len(batch))
			for i, x := range batch {
				if x.Title != "" {
					return usagef("line %d: a query has no title; --article embeds articles", lines[i])
				}
				qs[i] = x.Text
			}
			vs, rep, err = s.enc.EncodeQueries(c.Context(), qs)
		}
		if err != nil {
			return fmt.Errorf("lines from %d: %w", lines[0], err)
		}
		total.Tokens += rep.Tokens
		total.Truncated += rep.Truncated
		for _, v := range vs {
			if err := writeLine(c, map[string]any{"vector": v}); err != nil {
				return err
			}
		}
		return nil
	})
	if total.Truncated > 0 {
		fmt.Fprintf(os.Stderr, "rag2: %d texts were cut to the encoder's limit\n", total.Truncated)
	}
	return err
}
