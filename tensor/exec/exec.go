// Package exec compiles GoMLX graphs and runs them through backends.Executable
// directly, with buffers that stay on the device between calls. A Cache keeps a
// bounded number of compiled graphs, one per bucket of shapes.
//
// Programs and caches are safe for concurrent use.
package exec

import (
	"container/list"
	"fmt"
	"sync"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// Program is a compiled graph.
type Program struct {
	backend backends.Backend
	graph   *graph.Graph
	exe     backends.Executable
}

// capture is a backend that keeps the executable which GoMLX's Graph hides.
type capture struct {
	backends.Backend
	exe backends.Executable
}

type captureBuilder struct {
	backends.Builder
	c *capture
}

func (c *capture) Builder(name string) backends.Builder {
	return &captureBuilder{c.Backend.Builder(name), c}
}

func (b *captureBuilder) Compile(outputs []backends.Op, shardings []*backends.ShardingSpec) (backends.Executable, error) {
	exe, err := b.Builder.Compile(outputs, shardings)
	b.c.exe = exe
	return exe, err
}

// Catch runs f and returns what it panics with as an error: GoMLX reports faults
// of graph building by panics.
func Catch(what string, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(error); ok {
				err = fmt.Errorf("%s: %w", what, e)
				return
			}
			err = fmt.Errorf("%s: %v", what, r)
		}
	}()
	f()
	return nil
}

// Compile builds a graph and compiles it. The parameters that build creates are
// the inputs of Run, in their order of creation.
func Compile(b backends.Backend, name string, build func(g *graph.Graph) []*graph.Node) (*Program, error) {
	p := &Program{backend: b}
	err := Catch("compile "+name, func() {
		c := &capture{Backend: b}
		g := graph.NewGraph(c, name)
		g.Compile(build(g)...)
		p.exe = c.exe
		p.graph = g
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Run executes the program on device 0. Buffers marked in donate are consumed.
func (p *Program) Run(inputs []backends.Buffer, donate []bool) (out []backends.Buffer, err error) {
	return p.RunOn(0, inputs, donate)
}

// RunOn is Run on a device, where the inputs are.
func (p *Program) RunOn(device int, inputs []backends.Buffer, donate []bool) (out []backends.Buffer, err error) {
	cerr := Catch("execute", func() { out, err = p.exe.Execute(inputs, donate, backends.DeviceNum(device)) })
	if cerr != nil {
		return nil, cerr
	}
	return out, err
}

// Finalize frees the program.
func (p *Program) Finalize() { p.graph.Finalize() }

// Upload copies a flat slice to device 0 as a buffer of the given dimensions.
func Upload(b backends.Backend, flat any, shape shapes.Shape) (backends.Buffer, error) {
	return UploadTo(b, 0, flat, shape)
}

// UploadTo is Upload to a device.
func UploadTo(b backends.Backend, device int, flat any, shape shapes.Shape) (backends.Buffer, error) {
	var buf backends.Buffer
	var err error
	cerr := Catch("upload", func() { buf, err = b.BufferFromFlatData(backends.DeviceNum(device), flat, shape) })
	if cerr != nil {
		return nil, cerr
	}
	return buf, err
}

// adopter is an engine that takes over host memory instead of copying it.
type adopter interface {
	AdoptFlatData(device backends.DeviceNum, flat any, shape shapes.Shape) (backends.Buffer, error)
}

// Give is UploadTo of a slice that the caller will not use again.
func Give(b backends.Backend, device int, flat any, shape shapes.Shape) (backends.Buffer, error) {
	if a, ok := b.(adopter); ok {
		return a.AdoptFlatData(backends.DeviceNum(device), flat, shape)
	}
	return UploadTo(b, device, flat, shape)
}

// Fetch copies a buffer of n elements of type T to the host and frees it.
func Fetch[T any](b backends.Backend, buf backends.Buffer, n int) ([]T, error) {
	out := make([]T, n)
	err := b.BufferToFlatData(buf, out)
	if ferr := b.BufferFinalize(buf); err == nil {
		err = ferr
	}
	return out, err
}

// Cache holds at most a given number of programs, dropping the least recently
// used. A missing program is compiled once, whoever asks.
type Cache[K comparable] struct {
	mu       sync.Mutex
	max      int
	entries  map[K]*list.Element
	order    list.List // front = most recent
	compiled int
}

type entry[K comparable] struct {
	key  K
	done chan struct{}
	prog *Program
	err  error
	refs int
	dead bool
}

// NewCache makes a cache for up to max programs.
func NewCache[K comparable](max int) *Cache[K] {
	return &Cache[K]{max: max, entries: map[K]*list.Element{}}
}

// Do runs f with the program of key, compiling it first if need be. The program
// is not finalized while f runs.
func (c *Cache[K]) Do(key K, compile func() (*Program, error), f func(*Program) error) error {
	c.mu.Lock()
	el := c.entries[key]
	var e *entry[K]
	if el != nil {
		e = el.Value.(*entry[K])
		c.order.MoveToFront(el)
		e.refs++
		c.mu.Unlock()
		<-e.done
	} else {
		e = &entry[K]{key: key, done: make(chan struct{}), refs: 1}
		c.entries[key] = c.order.PushFront(e)
		c.compiled++
		c.evict()
		c.mu.Unlock()
		e.prog, e.err = compile()
		close(e.done)
	}
	defer c.release(e)
	if e.err != nil {
		return e.err
	}
	return f(e.prog)
}

// evict drops old entries above the limit. A program in use is freed by its last user.
func (c *Cache[K]) evict() {
	for c.order.Len() > c.max {
		el := c.order.Back()
		e := el.Value.(*entry[K])
		c.order.Remove(el)
		delete(c.entries, e.key)
		e.dead = true
		if e.refs == 0 && e.prog != nil {
			e.prog.Finalize()
		}
	}
}

func (c *Cache[K]) release(e *entry[K]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.refs--
	if e.err != nil && !e.dead { // a failed compilation may be tried again
		if el := c.entries[e.key]; el != nil && el.Value.(*entry[K]) == e {
			c.order.Remove(el)
			delete(c.entries, e.key)
		}
		e.dead = true
	}
	if e.dead && e.refs == 0 && e.prog != nil {
		e.prog.Finalize()
	}
}

// Compilations counts the programs compiled so far.
func (c *Cache[K]) Compilations() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.compiled
}

// Close frees the programs; none may be running.
func (c *Cache[K]) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.max = 0
	c.evict()
}

// Parallel calls f(0) … f(n-1), on the engine's threads if they are the host's, and
// otherwise one after the other.
func Parallel(b backends.Backend, n int, f func(i int)) {
	if p, ok := b.(interface{ Parallel(int, func(int)) }); ok {
		p.Parallel(n, f)
		return
	}
	for i := range n {
		f(i)
	}
}
