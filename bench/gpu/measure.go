package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"rag2/models/bert"
	"rag2/models/llama"
	"rag2/models/t5"
	"rag2/tensor"
)

// figure adds a row: work units a second, each of flops operations and bytes read.
func (b *bench) figure(what, unit string, units, flops, bytes float64, run func() error) {
	row := Row{What: what, Unit: unit}
	err := run() // compiles, and loads weights
	var n int
	var took time.Duration
	for start := time.Now(); err == nil && (n < 2 || took < b.each); n++ {
		err = run()
		took = time.Since(start)
	}
	if err != nil {
		row.Error = err.Error()
	} else {
		v := units * float64(n) / took.Seconds()
		if b.gpu {
			row.GPU = &v
			of := v * flops / b.peak.flops
			if bytes > 0 {
				of = v * bytes / b.peak.bytes
			}
			if b.peak.flops > 0 && (bytes > 0 || strings.Contains(what, "bf16")) {
				of *= 100
				row.Percent = &of
			}
		} else {
			row.Here = &v
		}
	}
	b.r.Rows = append(b.r.Rows, row)
}

// fail adds a row for a model that cannot be opened.
func (b *bench) fail(what string, err error) {
	b.r.Rows = append(b.r.Rows, Row{What: what, Error: err.Error()})
}

// measure takes every figure on an engine.
func (b *bench) measure(ctx context.Context, engine string) {
	kind := " f32"
	if strings.HasSuffix(engine, ":bf16") {
		kind = " bf16"
	}
	e, err := tensor.Open(engine, tensor.Options{})
	if err != nil {
		b.fail("all"+kind, err)
		return
	}
	defer e.Close()
	tokens := 32768 // of a batch
	if b.small {
		tokens = 512
	}
	b.encoders(e, kind, tokens)
	b.labels(e, kind, tokens)
	b.generator(ctx, e, kind)
}

// encoders measures embedding and reranking in the shape of MedCPT.
func (b *bench) encoders(e *tensor.Engine, kind string, tokens int) {
	for _, head := range []bert.Head{bert.CLS, bert.Classifier} {
		name := map[bert.Head]string{bert.CLS: "embedding", bert.Classifier: "reranking"}[head]
		m, err := bert.Open(e, filepath.Join(b.models, "bert-base"), head)
		if err != nil {
			b.fail(name+kind, err)
			continue
		}
		c := m.Config
		lengths := []int{64, 128, 256, 512}
		if head == bert.Classifier {
			lengths = []int{512}
		}
		for _, length := range lengths {
			batch := tokens / length
			ids, types, lens := fill(batch, length)
			perToken := 2*float64(c.Layers*(4*c.Hidden*c.Hidden+2*c.Hidden*c.Intermediate)) + float64(c.Layers*4*length*c.Hidden)
			what, unit, units, flops := fmt.Sprintf("%s, length %d%s", name, length, kind), "tokens/s", float64(batch*length), perToken
			if head == bert.Classifier {
				unit, units, flops = "pairs/s", float64(batch), perToken*float64(length)
			}
			b.figure(what, unit, units, flops, 0, func() error {
				_, err := m.Forward(ids, types, lens, batch, length)
				return err
			})
		}
		m.Close()
	}
}

// labels measures the filter's scoring.
func (b *bench) labels(e *tensor.Engine, kind string, tokens int) {
	m, err := t5.Open(e, filepath.Join(b.models, "t5-large"))
	if err != nil {
		b.fail("label scoring"+kind, err)
		return
	}
	defer m.Close()
	const length = 512
	batch := max(1, tokens/2/length)
	ids, _, lens := fill(batch, length)
	c := m.Config
	inner := c.Heads * c.HeadDim
	perToken := 2*float64(c.Layers*(4*c.Hidden*inner+3*c.Hidden*c.FF)+c.DecLayers*2*c.Hidden*inner) + float64(c.Layers*4*length*inner)
	b.figure(fmt.Sprintf("label scoring, T5 (%d layers of %d), length %d%s", c.Layers, c.Hidden, length, kind), "snippets/s", float64(batch), perToken*length, 0, func() error {
		_, err := m.FirstStep(ids, lens, []int32{3, 4}, batch, length)
		return err
	})
}

// generator measures prefill and decoding of one sequence.
func (b *bench) generator(ctx context.Context, e *tensor.Engine, kind string) {
	if kind == " f32" && !b.small {
		return // 8 billion parameters: bfloat16 is how they run
	}
	m, w, err := llama.Open(e, filepath.Join(b.models, "llama-3-8b"))
	if err != nil {
		b.fail("generation"+kind, err)
		return
	}
	defer m.Close()
	_ = w.Close()
	s := m.NewSession()
	defer s.Close()
	c := m.Config
	layer := c.Hidden*c.HeadDim*(2*c.Heads+2*c.KVHeads) + 3*c.Hidden*c.Intermediate
	weights := float64(c.Layers * layer)
	prompt := 1024
	if b.small {
		prompt = 64
	}
	ids, _, _ := fill(1, prompt)
	b.figure(fmt.Sprintf("prefill of %d tokens, Llama (%d layers of %d)%s", prompt, c.Layers, c.Hidden, kind), "tokens/s", float64(prompt), 2*weights, 0, func() error {
		s.Rewind(0)
		_, err := s.Feed(ctx, ids)
		return err
	})
	b.figure(fmt.Sprintf("decoding behind %d tokens, Llama (%d layers of %d)%s", prompt, c.Layers, c.Hidden, kind), "tokens/s", 1, 0, float64(m.Bytes()), func() error {
		s.Rewind(prompt)
		_, err := s.Feed(ctx, ids[:1])
		return err
	})
}

// table is the report for people.
func (r Report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nproves: %s; commit %s, %s, %.0f s", r.Device, r.Proves, r.Commit, r.Date, r.Seconds)
	if r.HighWater > 0 {
		fmt.Fprintf(&b, ", GPU memory high-water %.1f GiB", float64(r.HighWater)/(1<<30))
	}
	b.WriteString("\n\n| against native | engine | max abs diff | cosine | |\n|---|---|---|---|---|\n")
	for _, c := range r.Checks {
		state := "ok"
		if !c.OK {
			state = "differs"
		}
		if c.Error != "" {
			state = c.Error
		}
		fmt.Fprintf(&b, "| %s | %s | %.2g | %.6f | %s |\n", c.Model, c.Engine, c.MaxDiff, c.Cosine, state)
	}
	b.WriteString("\n| figure | unit | GPU | % of peak | here (no GPU) |\n|---|---|---|---|---|\n")
	cell := func(v *float64, format string) string {
		if v == nil {
			return ""
		}
		return fmt.Sprintf(format, *v)
	}
	for _, x := range r.Rows {
		here := cell(x.Here, "%.1f")
		if x.Error != "" {
			here = x.Error
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", x.What, x.Unit, cell(x.GPU, "%.1f"), cell(x.Percent, "%.1f"), here)
	}
	return b.String()
}
