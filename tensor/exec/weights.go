package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"rag2/internal/mmapfile"
	"rag2/tensor"
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/dtypes/bfloat16"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"golang.org/x/sync/errgroup"
)

// Tensor is a parameter of a network and where its values lie in a checkpoint.
type Tensor struct {
	Name string // in graphs
	File string // in the checkpoint
	Dims []int
	// Heads, when not 0, says that the rows are those of a GGUF query or key projection of
	// so many heads, in which a head's rotated pairs are neighbours; they are put into the
	// half-and-half order of Hugging Face.
	Heads int
	// Exact keeps float32 where the engine computes in bfloat16: heads, whose logits are
	// compared.
	Exact bool
	// Product says that only products read the matrix: engines that keep those in fewer
	// bits have nothing else of it.
	Product bool
}

// Weights are a network's parameters. Opening them maps the checkpoint and checks it, in a
// time that does not depend on its size; values are read and uploaded when a graph first
// needs them, in parallel (one by one where the engine brings each to a form of its own),
// and stay on the device until Close. Safe for concurrent use.
type Weights struct {
	engine  *tensor.Engine
	backend backends.Backend
	list    []Tensor
	shapes  []shapes.Shape
	bytes   []int64 // on a device

	mu      sync.Mutex
	file    *weights.File // nil when everything was loaded on every device in use
	bufs    map[int][]backends.Buffer
	pending int64 // bytes promised on device 0 and not loaded yet
}

// blockBackend is an engine that computes with blocks of a GGUF file, or with 16-bit
// elements, as they are.
type blockBackend interface {
	BlockBuffer(ggufType string, blocks []byte, s shapes.Shape) (backends.Buffer, error)
	KeepsBlocks(ggufType string) bool
}

// lazyBackend is an engine that reads weights one by one as it brings them to the form in
// which it computes with them.
type lazyBackend interface {
	LazyBuffer(s shapes.Shape, read func(dst []float32) error) (backends.Buffer, error)
}

// fewerBits is an engine that multiplies with weights of fewer bits than the checkpoint's.
type fewerBits interface {
	// ProductBytes is what a float32 matrix [out,in] takes that only products read.
	ProductBytes(out, in int) int64
}

// lazyBytes is the size from which a weight is worth it.
const lazyBytes = 64 << 10

// OpenWeights checks that the tensors are in the checkpoint, with these shapes and a type
// that holds weights, and that the device has room for them (else ErrMemory). The
// checkpoint is shared: the caller still closes its own handle.
func OpenWeights(e *tensor.Engine, w *weights.File, list []Tensor) (*Weights, error) {
	x := &Weights{engine: e, backend: e.Backend(), list: list, bufs: map[int][]backends.Buffer{}}
	for _, t := range list {
		info, err := w.Info(t.File)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(info.Shape, t.Dims) {
			return nil, fmt.Errorf("%s: tensor %q has shape %v, the configuration asks for %v", w.Path(), t.File, info.Shape, t.Dims)
		}
		if info.DType.Integer() {
			return nil, fmt.Errorf("%s: tensor %q holds %s: %w", w.Path(), t.File, info.DType, weights.ErrInteger)
		}
		s := shapes.Make(dtypes.Float32, t.Dims...)
		if e.BF16() && len(t.Dims) == 2 && !t.Exact {
			s.DType = dtypes.BFloat16
		}
		n := int64(s.Memory())
		if x.asBlocks(w, info, t) {
			n = int64(info.Bytes)
		} else if b, ok := x.backend.(fewerBits); ok && t.Product && len(t.Dims) == 2 {
			n = b.ProductBytes(t.Dims[0], t.Dims[1])
		}
		x.shapes, x.bytes, x.pending = append(x.shapes, s), append(x.bytes, n), x.pending+n
	}
	if err := promise(e, "the model", x.pending); err != nil {
		return nil, fmt.Errorf("%s: %w", w.Path(), err)
	}
	x.file = w.Share()
	return x, nil
}

// asBlocks tells whether a tensor stays in its storage type on the engine.
func (x *Weights) asBlocks(w *weights.File, info weights.Info, t Tensor) bool {
	b, ok := x.backend.(blockBackend)
	return ok && len(t.Dims) == 2 && !w.Changed(t.File) && b.KeepsBlocks(string(info.DType))
}

// Len is the number of parameters.
func (x *Weights) Len() int { return len(x.list) }

// Name is the name of parameter i in graphs.
func (x *Weights) Name(i int) string { return x.list[i].Name }

// Shape is the shape and type of parameter i on the device.
func (x *Weights) Shape(i int) shapes.Shape { return x.shapes[i] }

// Bytes is what all parameters take on a device.
func (x *Weights) Bytes() (n int64) {
	for _, b := range x.bytes {
		n += b
	}
	return n
}

// Buffers are the parameters for which use says true (nil = all), in order, on a device.
// They belong to x.
func (x *Weights) Buffers(device int, use func(name string) bool) ([]backends.Buffer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	have := x.bufs[device]
	if have == nil {
		have = make([]backends.Buffer, len(x.list))
		x.bufs[device] = have
	}
	var missing []int
	for i, t := range x.list {
		if have[i] == nil && (use == nil || use(t.Name)) {
			missing = append(missing, i)
		}
	}
	if len(missing) > 0 {
		if x.file == nil {
			return nil, errors.New("weights were closed")
		}
		// The largest first, so that the last ones are short.
		slices.SortStableFunc(missing, func(a, b int) int { return int(min(1, max(-1, x.bytes[b]-x.bytes[a]))) })
		g, _ := errgroup.WithContext(context.Background())
		g.SetLimit(runtime.GOMAXPROCS(0))
		for _, i := range missing {
			g.Go(func() (err error) {
				have[i], err = x.load(device, i)
				return err
			})
		}
		err := g.Wait()
		if _, ok := x.backend.(adopter); !ok {
			debug.FreeOSMemory() // the host's copies are garbage now
		}
		if device == 0 {
			for _, i := range missing {
				if have[i] != nil {
					x.pending -= x.bytes[i]
					keep(x.engine, x.bytes[i])
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	out := make([]backends.Buffer, 0, len(x.list))
	for i, t := range x.list {
		if use == nil || use(t.Name) {
			out = append(out, have[i])
		}
	}
	return out, nil
}

// load reads one tensor and uploads it.
func (x *Weights) load(device, i int) (backends.Buffer, error) {
	t, s := x.list[i], x.shapes[i]
	info, err := x.file.Info(t.File)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (backends.Buffer, error) {
		return nil, fmt.Errorf("%s: tensor %q: %w", x.file.Path(), t.File, err)
	}
	if x.asBlocks(x.file, info, t) {
		var b backends.Buffer
		err := mmapfile.Guard(func() error {
			raw, err := x.file.Raw(t.File)
			if err == nil && t.Heads > 0 {
				raw = unpermuteRows(raw, t.Heads, t.Dims[0]/t.Heads)
			}
			if err == nil {
				b, err = x.backend.(blockBackend).BlockBuffer(string(info.DType), raw, s)
			}
			return err
		})
		if err != nil {
			return fail(err)
		}
		x.file.Release(t.File)
		return b, nil
	}
	if s.DType == dtypes.BFloat16 && info.DType == weights.BF16 && t.Heads == 0 && !x.file.Changed(t.File) {
		half := make([]bfloat16.BFloat16, info.Len())
		err := mmapfile.Guard(func() error {
			raw, err := x.file.Raw(t.File)
			for j := range half {
				half[j] = bfloat16.BFloat16(binary.LittleEndian.Uint16(raw[2*j:]))
			}
			return err
		})
		if err != nil {
			return fail(err)
		}
		x.file.Release(t.File)
		return UploadTo(x.backend, device, half, s)
	}
	read := func(dst []float32) error {
		if err := x.file.ReadFloat32(t.File, dst); err != nil {
			return err
		}
		if t.Heads > 0 {
			unpermute(dst, t.Heads, t.Dims[0]/t.Heads)
		}
		return nil
	}
	if l, ok := x.backend.(lazyBackend); ok && s.DType == dtypes.Float32 && int64(s.Memory()) >= lazyBytes {
		b, err := l.LazyBuffer(s, read)
		if err != nil {
			return fail(err)
		}
		return b, nil
	}
	v := make([]float32, info.Len())
	if err := read(v); err != nil {
		return nil, err
	}
	var b backends.Buffer
	if s.DType == dtypes.BFloat16 {
		half := make([]bfloat16.BFloat16, len(v))
		for j, f := range v {
			half[j] = bfloat16.FromFloat32(f)
		}
		b, err = UploadTo(x.backend, device, half, s)
	} else {
		b, err = Give(x.backend, device, v, s)
	}
	if err != nil {
		return fail(fmt.Errorf("upload: %w", err))
	}
	return b, nil
}

// Close frees the buffers; no program that uses them may be running. Closing again does
// nothing.
func (x *Weights) Close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.file == nil {
		return
	}
	forget(x.engine, x.pending, x.Bytes()-x.pending)
	for _, bufs := range x.bufs {
		for _, b := range bufs {
			if b != nil {
				_ = x.backend.BufferFinalize(b)
			}
		}
	}
	x.bufs = nil
	_ = x.file.Close()
	x.file = nil
}

// unpermute moves the rows of w, see Tensor.Heads.
func unpermute[T any](w []T, heads, dim int) {
	in := len(w) / (heads * dim)
	tmp := make([]T, dim*in)
	for h := range heads {
		block := w[h*dim*in : (h+1)*dim*in]
		copy(tmp, block)
		for i := range dim / 2 {
			copy(block[i*in:(i+1)*in], tmp[2*i*in:])
			copy(block[(i+dim/2)*in:(i+dim/2+1)*in], tmp[(2*i+1)*in:(2*i+2)*in])
		}
	}
}

// unpermuteRows is unpermute on a copy of the stored rows, whatever their encoding.
func unpermuteRows(raw []byte, heads, dim int) []byte {
	out := slices.Clone(raw)
	unpermute(out, heads, dim)
	return out
}
