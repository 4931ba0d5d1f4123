package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// maxLine bounds a line of standard input.
const maxLine = 64 << 20

// eachLine decodes the JSON lines of standard input in batches of at most size and
// hands each batch to f with the numbers of its lines. Blank lines are skipped;
// an unknown field or a damaged line is an error that names the line.
func eachLine[T any](c *cobra.Command, size int, f func(lines []int, batch []T) error) error {
	in := bufio.NewReaderSize(c.InOrStdin(), 1<<16)
	var batch []T
	var lines []int
	line := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := f(lines, batch)
		batch, lines = batch[:0], lines[:0]
		return err
	}
	for {
		b, err := readLine(in)
		if err != nil && err != io.EOF {
			return fmt.Errorf("standard input, line %d: %w", line+1, err)
		}
		last := err == io.EOF
		line++
		if line == 1 {
			b = bytes.TrimPrefix(b, []byte("\ufeff"))
		}
		if b = bytes.TrimSpace(b); len(b) > 0 {
			var v T
			dec := json.NewDecoder(bytes.NewReader(b))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&v); err != nil {
				return usageError{fmt.Errorf("standard input, line %d: %w", line, err)}
			}
			lines = append(lines, line)
			if batch = append(batch, v); len(batch) == size {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if last {
			return flush()
		}
		if err := c.Context().Err(); err != nil {
			return err
		}
	}
}

// readLine reads a line of at most maxLine bytes; io.EOF comes with the last one.
func readLine(in *bufio.Reader) (b []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(b)+len(part) > maxLine {
			return nil, fmt.Errorf("longer than %d bytes", maxLine)
		}
		b = append(b, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return b, err
		}
	}
}

// writeLine writes v as one line of JSON.
func writeLine(c *cobra.Command, v any) error {
	enc := json.NewEncoder(c.OutOrStdout())
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
