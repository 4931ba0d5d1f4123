// Package jsonl reads JSON lines of any reasonable length: byte-order mark, CRLF,
// blank lines and a missing final newline are fine, and an error names file and
// line.
package jsonl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line read.
const MaxLine = 64 << 20

// ErrLine reports a line that is not what it should be.
type ErrLine struct {
	File string
	Line int
	Err  error
}

func (e *ErrLine) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }
func (e *ErrLine) Unwrap() error { return e.Err }

// Each decodes every line of r into a fresh T. f gets the line's number (from 1)
// and, for a line that is not valid JSON of type T, the error instead of a value;
// what f returns ends the reading if not nil. A line above MaxLine is an error.
func Each[T any](file string, r *bufio.Reader, f func(line int, v *T, err error) error) error {
	var long []byte
	for n := 1; ; n++ {
		long = long[:0]
		var line []byte
		var err error
		for {
			line, err = r.ReadSlice('\n')
			if !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
			if long = append(long, line...); len(long) > MaxLine {
				return &ErrLine{file, n, fmt.Errorf("line longer than %d MiB", MaxLine>>20)}
			}
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return &ErrLine{file, n, err}
		}
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			v := new(T)
			var ferr error
			if jerr := json.Unmarshal(line, v); jerr != nil {
				ferr = f(n, nil, &ErrLine{file, n, jerr})
			} else {
				ferr = f(n, v, nil)
			}
			if ferr != nil {
				return ferr
			}
		}
		if err != nil {
			return nil
		}
	}
}
