package hnsw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"rag2/tensor/simd"
)

const checkpointMagic = "RAG2CKPT"

// maybeSave writes a checkpoint when the last one is old enough and its cost small
// against the time since.
func (b *builder) maybeSave() error {
	if b.o.CheckpointEvery < 0 || b.pos == len(b.order) {
		return nil
	}
	if since := time.Since(b.lastSave); since < b.o.CheckpointEvery || since < 33*b.saveCost {
		return nil
	}
	return b.save()
}

// save writes the state after a whole number of rounds.
func (b *builder) save() error {
	start := time.Now()
	p := b.params()
	parts := append([]section{bytesSection("PARM", p.bytes()), bytesSection("ISAL", []byte(simd.Level.String()))}, b.g.sections()...)
	if err := writeFile(b.o.Checkpoint, checkpointMagic, parts); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	b.saves++
	b.lastSave, b.saveCost = time.Now(), time.Since(start)
	if b.o.OnCheckpoint != nil {
		b.o.OnCheckpoint(b.saveCost)
	}
	return nil
}

// stopped saves what has been done when a build is cancelled.
func (b *builder) stopped(err error) error {
	if b.o.CheckpointEvery >= 0 && b.pos > 0 && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return errors.Join(err, b.save())
	}
	return err
}

// resume takes up a checkpoint of the same vectors and options. One of anything else
// is left alone until it is overwritten; a damaged one is an error.
func (b *builder) resume() error {
	if b.o.CheckpointEvery < 0 {
		return nil
	}
	f, c, err := mapContainer(b.o.Checkpoint, checkpointMagic)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrVersion) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w; remove it to start again", err)
	}
	defer f.Close()
	return guarded(func() error {
		if err := c.verify(); err != nil {
			return fmt.Errorf("checkpoint: %w; remove it to start again", err)
		}
		p, err := parseParams(c)
		if err != nil {
			return err
		}
		now := b.params()
		now.inserted, now.round, now.entryRow, now.entryUp, now.top, now.codes = p.inserted, p.round, p.entryRow, p.entryUp, p.top, p.codes
		isa, err := c.need("ISAL", -1)
		if err != nil {
			return err
		}
		if !bytes.Equal(now.bytes(), p.bytes()) || string(isa.data) != simd.Level.String() || p.inserted > len(b.order) {
			return nil
		}
		g, err := graphSections(c, &p)
		if err != nil {
			return err
		}
		copy(b.g.level0, g.level0)
		copy(b.g.upLists, g.upLists)
		b.g.entryRow, b.g.entryUp, b.g.top = p.entryRow, p.entryUp, p.top
		b.pos, b.round = p.inserted, p.round
		return nil
	})
}

func (b *builder) removeCheckpoint() error {
	if b.o.CheckpointEvery < 0 {
		return nil
	}
	if err := os.Remove(b.o.Checkpoint); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// takeBase begins with the graph of an index over the first rows, when it was built
// with the same options. Levels and copies of those rows are the same by definition.
func (b *builder) takeBase() error {
	if b.o.base == "" {
		return nil
	}
	x, err := Open(b.o.base)
	if err != nil {
		return err
	}
	defer x.Close()
	p := x.p
	if p.m != b.o.M || p.efc != b.o.EfConstruction || p.seed != b.o.Seed || p.metric != b.o.Metric || p.full != b.o.FullPrecision || p.edges != edgeRule || p.n > b.v.n {
		return nil
	}
	return guarded(func() error {
		copy(b.g.level0, x.g.level0)
		copy(b.g.upLists, x.g.upLists)
		b.g.entryRow, b.g.entryUp, b.g.top = p.entryRow, p.entryUp, p.top
		b.pos, b.baseRows = p.n-p.dups, p.n
		return nil
	})
}
