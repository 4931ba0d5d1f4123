// Command rag2 answers medical questions with cited evidence (RAG², NAACL 2025).
// `rag2 --help` lists its commands.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"rag2/pipeline"
	_ "rag2/tensor/native" // the engine "native"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

// exitUsage is the exit code of wrong calls; pipeline.FaultOf has the others: 0 done,
// 1 failed, 2 a question or settings that cannot be.
const exitUsage = 2

// usageError marks a fault of the call rather than of the work.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run is main without the process around it.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "rag2:", err)
	var u usageError
	if errors.As(err, &u) {
		return exitUsage
	}
	return pipeline.FaultOf(err).Exit
}

func newRoot() *cobra.Command {
	a := &app{}
	root := &cobra.Command{
		Use:           "rag2",
		Short:         "answer medical questions with cited evidence",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	a.flags(root)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return a.configure(c) }
	root.AddCommand(a.ask(), a.search(), a.corpus(), a.index(), a.set(), a.modelsCommand(), a.filter(), a.reranker(), a.doctor(),
		a.tokenize(), a.embed(), a.rerank(), a.generate(), a.logprobs(), a.benchCommand())
	return root
}

// group is a command that only holds others.
func group(use, short string, cs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: usageArgs(cobra.NoArgs), RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(cs...)
	return c
}

// printJSON writes v to standard output, indented.
func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
