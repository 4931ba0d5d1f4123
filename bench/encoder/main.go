// Command encoder is the contestant that runs a BERT encoder, or that of a T5, on one of
// our engines.
//
//	encoder -engine native -model DIR    reads lines "BATCH LENGTH", answers with seconds
//	                                     and the process's largest resident memory so far
//	encoder -write DIR -arch t5-large    writes a model with random weights
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"rag2/models/bert"
	"rag2/models/t5"
	"rag2/tensor"
	_ "rag2/tensor/native"
)

func main() {
	log.SetFlags(0)
	engine := flag.String("engine", "native", "engine")
	model := flag.String("model", "", "model directory")
	profile := flag.String("cpuprofile", "", "write a CPU profile of all passes but the first here")
	write := flag.String("write", "", "write a model here and exit")
	arch := flag.String("arch", "bert-base", "of the model written: bert-base or t5-large")
	flag.Parse()
	if *write != "" {
		if err := writeModel(*write, *arch); err != nil {
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
	forward, stop, err := open(e, model)
	if err != nil {
		return err
	}
	defer stop()
	runtime.GC()
	fmt.Println("ready", e.Backend().Description())
	in := bufio.NewScanner(os.Stdin)
	for n := 0; in.Scan(); n++ {
		if n == 1 && profile != "" { // the first pass packs the weights
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
		var b, l int
		if _, err := fmt.Sscan(in.Text(), &b, &l); err != nil {
			fmt.Println("error", err)
			continue
		}
		start := time.Now()
		if err := forward(b, l); err != nil {
			fmt.Println("error", err)
			continue
		}
		fmt.Println(time.Since(start).Seconds(), highWater())
	}
	return in.Err()
}

// open returns the forward pass of a BERT or of a T5's encoder on a batch of random
// tokens without padding.
func open(e *tensor.Engine, model string) (forward func(b, l int) error, stop func(), err error) {
	var kind struct {
		Type string `json:"model_type"`
	}
	raw, err := os.ReadFile(filepath.Join(model, "config.json"))
	if err == nil {
		err = json.Unmarshal(raw, &kind)
	}
	if err != nil {
		return nil, nil, err
	}
	if kind.Type == "t5" {
		m, err := t5.Open(e, model)
		if err != nil {
			return nil, nil, err
		}
		return func(b, l int) error {
			ids, _, lens := tokens(b, l, m.Config.Vocab)
			_, err := m.Hidden(ids, lens, b, l)
			return err
		}, m.Close, nil
	}
	m, err := bert.Open(e, model, bert.CLS)
	if err != nil {
		return nil, nil, err
	}
	return func(b, l int) error {
		ids, types, lens := tokens(b, l, m.Config.Vocab)
		_, err := m.Forward(ids, types, lens, b, l)
		return err
	}, m.Close, nil
}

func tokens(b, l, vocab int) (ids, types, lens []int32) {
	r := rand.New(rand.NewPCG(uint64(b), uint64(l)))
	ids, types, lens = make([]int32, b*l), make([]int32, b*l), make([]int32, b)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	for i := range lens {
		lens[i] = int32(l)
	}
	return
}

// highWater is the most memory, in bytes, that the process ever had resident; 0 where
// the system does not tell.
func highWater() int64 {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}
