package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"rag2/models/train"
	"rag2/tensor"
	_ "rag2/tensor/native"
)

// cost is what some steps took, a step.
type cost struct {
	Wall float64 `json:"wall"`
	CPU  float64 `json:"cpu"`
}

func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// task is a network with a batch.
type task struct {
	name          string
	batch, length int
	trainer       *train.Trainer
	inputs        []train.Input
}

// steps runs n updates.
func (t *task) steps(n int) cost {
	begin, used := time.Now(), cpu()
	for range n {
		if _, err := t.trainer.Batch(t.inputs); err != nil {
			log.Fatal(err)
		}
	}
	return cost{time.Since(begin).Seconds() / float64(n), (cpu() - used) / float64(n)}
}

// batch is random ids with lengths near the longest.
func batch(rng *rand.Rand, n, length, vocab int) (ids, lens []int32) {
	ids, lens = make([]int32, n*length), make([]int32, n)
	for i := range ids {
		ids[i] = int32(10 + rng.IntN(vocab-10))
	}
	for i := range lens {
		lens[i] = int32(length - rng.IntN(length/4))
	}
	return
}

func main() {
	python := flag.String("python", "python3", "interpreter with torch and transformers")
	bertDir := flag.String("bert", "", "directory of a BERT")
	t5Dir := flag.String("t5", "", "directory of a T5")
	rounds := flag.Int("rounds", 5, "turns of each side")
	n := flag.Int("steps", 4, "steps in a turn")
	flag.Parse()
	e, err := tensor.Open("native", tensor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	o := train.Options{Steps: 1 << 20, LR: 1e-5}
	var tasks []*task
	if *bertDir != "" {
		x, err := train.OpenBERT(*bertDir, train.BERTOptions{Labels: 1, FreezeEmbeddings: true, Seed: 1})
		if err != nil {
			log.Fatal(err)
		}
		t := &task{name: "bert", batch: 16, length: 96}
		ids, lens := batch(rng, t.batch, t.length, x.Config.Vocab)
		d := []int{t.batch, t.length}
		t.inputs = []train.Input{{Flat: ids, Dims: d}, {Flat: make([]int32, len(ids)), Dims: d}, {Flat: lens, Dims: d[:1]}}
		if t.trainer, err = train.New(e, x.Params, x.GroupLoss(4), o); err != nil {
			log.Fatal(err)
		}
		tasks = append(tasks, t)
	}
	if *t5Dir != "" {
		x, err := train.OpenT5(*t5Dir, nil, 1)
		if err != nil {
			log.Fatal(err)
		}
		t := &task{name: "t5", batch: 32, length: 128}
		ids, lens := batch(rng, t.batch, t.length, x.Config.Vocab)
		class := make([]int32, t.batch)
		for i := range class {
			class[i] = int32(i % 2)
		}
		t.inputs = []train.Input{{Flat: ids, Dims: []int{t.batch, t.length}}, {Flat: lens, Dims: []int{t.batch}}, {Flat: class, Dims: []int{t.batch}}}
		if t.trainer, err = train.New(e, x.Params, x.Loss, o); err != nil {
			log.Fatal(err)
		}
		tasks = append(tasks, t)
	}
	_, self, _, _ := runtime.Caller(0)
	peer := exec.Command(*python, filepath.Join(filepath.Dir(self), "peer.py"), *bertDir, *t5Dir, fmt.Sprint(*n), fmt.Sprint(runtime.GOMAXPROCS(0)))
	peer.Stderr = os.Stderr
	in, err := peer.StdinPipe()
	if err != nil {
		log.Fatal(err)
	}
	out, err := peer.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := peer.Start(); err != nil {
		log.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	for _, t := range tasks {
		ask := func() (c cost) {
			if _, err := fmt.Fprintln(in, t.name, t.batch, t.length); err != nil {
				log.Fatal(err)
			}
			if !answers.Scan() {
				log.Fatal("the peer ended")
			}
			if err := json.Unmarshal(answers.Bytes(), &c); err != nil {
				log.Fatal(err)
			}
			return c
		}
		t.steps(1)
		ask()
		var ours, theirs []cost
		var wall, used []float64
		for range *rounds {
			a, b := t.steps(*n), ask()
			ours, theirs = append(ours, a), append(theirs, b)
			wall, used = append(wall, b.Wall/a.Wall), append(used, b.CPU/a.CPU)
		}
		fmt.Printf("%s %d×%d: native %.3f s wall, %.3f s CPU a step; torch %.3f s, %.3f s; native's speed over torch's, median of %d rounds: %.2f by wall, %.2f by CPU\n", t.name, t.batch, t.length,
			median(ours, func(c cost) float64 { return c.Wall }), median(ours, func(c cost) float64 { return c.CPU }),
			median(theirs, func(c cost) float64 { return c.Wall }), median(theirs, func(c cost) float64 { return c.CPU }), *rounds, mid(wall), mid(used))
		t.trainer.Close()
	}
	in.Close()
	if err := peer.Wait(); err != nil {
		log.Fatal(err)
	}
}

func median(cs []cost, f func(cost) float64) float64 {
	var v []float64
	for _, c := range cs {
		v = append(v, f(c))
	}
	return mid(v)
}

func mid(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
