// Command encoder is the contestant that runs a BERT encoder on one of our engines.
//
//	encoder -engine native -model DIR    reads lines "BATCH LENGTH", answers with seconds
//	encoder -write DIR -hidden 768 …     writes a model with random weights
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"rag2/models/bert"
	"rag2/tensor"
	_ "rag2/tensor/native"
)

func main() {
	log.SetFlags(0)
	engine := flag.String("engine", "native", "engine")
	model := flag.String("model", "", "model directory")
	profile := flag.String("cpuprofile", "", "write a CPU profile here")
	write := flag.String("write", "", "write a model here and exit")
	hidden := flag.Int("hidden", 768, "of the model written")
	layers := flag.Int("layers", 12, "of the model written")
	heads := flag.Int("heads", 12, "of the model written")
	flag.Parse()
	if *write != "" {
		if err := writeModel(*write, *hidden, *layers, *heads); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := serve(*engine, *model, *profile); err != nil {
		log.Fatal(err)
	}
}

func serve(engine, model, profile string) error {
	e, err := tensor.Open(engine, tensor.Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	m, err := bert.Open(e, model, bert.CLS)
	if err != nil {
		return err
	}
	defer m.Close()
	runtime.GC()
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Println("ready", e.Backend().Description())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var b, l int
		if _, err := fmt.Sscan(in.Text(), &b, &l); err != nil {
			fmt.Println("error", err)
			continue
		}
		s, err := forward(m, b, l)
		if err != nil {
			fmt.Println("error", err)
			continue
		}
		fmt.Println(s)
	}
	return in.Err()
}

func forward(m *bert.Model, b, l int) (float64, error) {
	r := rand.New(rand.NewPCG(uint64(b), uint64(l)))
	ids, types, lens := make([]int32, b*l), make([]int32, b*l), make([]int32, b)
	for i := range ids {
		ids[i] = int32(r.IntN(m.Config.Vocab))
	}
	for i := range lens {
		lens[i] = int32(l)
	}
	start := time.Now()
	_, err := m.Forward(ids, types, lens, b, l)
	return time.Since(start).Seconds(), err
}
