// Command isacheck ends with status 0 when this CPU runs the level that RAG2_ISA names,
// else with 1 and a line that says why not.
package main

import (
	"fmt"
	"os"

	"rag2/tensor/simd"
)

func main() {
	if simd.LevelError != nil {
		fmt.Fprintln(os.Stderr, simd.LevelError)
		os.Exit(1)
	}
	fmt.Println(simd.Level)
}
