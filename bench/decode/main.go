// Command decode is the contestant that runs a model of the Llama family on one of our
// engines. It reads lines and answers each with seconds:
//
//	prompt N        a prompt of N tokens is read
//	decode S N D    S streams, each behind D tokens, get N tokens
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"time"

	"rag2/models/llama"
	"rag2/tensor"
	_ "rag2/tensor/native"
	"rag2/tensor/simd"
)

func main() {
	log.SetFlags(0)
	engine := flag.String("engine", "native", "engine")
	model := flag.String("model", "", "GGUF file or model directory")
	flag.Parse()
	if err := serve(*engine, *model); err != nil {
		log.Fatal(err)
	}
}

func serve(engine, path string) error {
	e, err := tensor.Open(engine, tensor.Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	m, w, err := llama.Open(e, path)
	if err != nil {
		return err
	}
	w.Close()
	defer m.Close()
	runtime.GC()
	fmt.Println("ready", e.Backend().Description())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		s, err := answer(m, in.Text())
		if err != nil {
			fmt.Println("error", err)
			continue
		}
		fmt.Println(s)
	}
	return in.Err()
}

func answer(m *llama.Model, request string) (float64, error) {
	var n, streams, depth int
	if _, err := fmt.Sscanf(request, "prompt %d", &n); err == nil {
		return prompt(m, n)
	}
	if _, err := fmt.Sscanf(request, "decode %d %d %d", &streams, &n, &depth); err != nil {
		return 0, err
	}
	return decode(m, streams, n, depth)
}

// ids are tokens that mean nothing, the same for all contestants.
func ids(n, vocab int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*7919 + 13) % vocab)
	}
	return out
}

func prompt(m *llama.Model, n int) (float64, error) {
	s := m.NewSession()
	defer s.Close()
	start := time.Now()
	_, err := s.Feed(context.Background(), ids(n, m.Config.Vocab))
	return time.Since(start).Seconds(), err
}

func decode(m *llama.Model, streams, n, depth int) (float64, error) {
	if depth < 1 || streams < 1 {
		return 0, errors.New("a stream and a token before it are needed")
	}
	ctx := context.Background()
	s := m.NewSession()
	defer s.Close()
	if _, err := s.Feed(ctx, ids(depth, m.Config.Vocab)); err != nil {
		return 0, err
	}
	b := m.NewBatch(nil)
	defer b.Close()
	all := make([]*llama.Stream, streams)
	next := make([]int32, streams)
	for i := range all {
		var err error
		if all[i], err = b.Join(s); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	for range n {
		logits, err := b.Step(ctx, all, next)
		if err != nil {
			return 0, err
		}
		for i, l := range logits {
			next[i] = int32(simd.ArgMax(l))
		}
	}
	return time.Since(start).Seconds(), nil
}
