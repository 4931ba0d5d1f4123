package native

import (
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/dtypes/bfloat16"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/x448/float16"
)

var supportedDTypes = []dtypes.DType{dtypes.Bool, dtypes.Int8, dtypes.Int16, dtypes.Int32, dtypes.Int64, dtypes.Uint8, dtypes.Uint16,
	dtypes.Uint32, dtypes.Uint64, dtypes.Float16, dtypes.BFloat16, dtypes.Float32, dtypes.Float64}

// Buffer is an array in memory.
type Buffer struct {
	backend *Backend
	shape   shapes.Shape
	mem     []uint64 // flat; nil when the elements are elsewhere, see storage.go
	blocks  *blocks
	dead    bool // finalized
	bytes   int
	shared  bool                      // the client may write to it
	adopted bool                      // the memory is the client's, which may be read-only
	host    bool                      // came from the host: never changes, so packed copies may be kept
	source  func(dst []float32) error // reads the elements, see LazyBuffer

	mu    sync.Mutex
	packs map[packKey][]float32
	whole packKey // of the packed copy that holds every element, if one does
	int8  map[packKey]*simd.Int8Weights
}

// packKey tells packed copies of one buffer apart.
type packKey struct{ off, k, n, strideK, strideN int }

func (b *Buffer) base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b.mem)) }

func checkShape(s shapes.Shape) error {
	if !dtypeOK(s.DType) {
		return fmt.Errorf("native: dtype %s is not supported", s.DType)
	}
	size := 1
	for _, d := range s.Dimensions {
		if d < 0 || (d > 0 && size > (1<<46)/d) {
			return fmt.Errorf("native: shape %s is out of range", s)
		}
		size *= d
	}
	return nil
}

func dtypeOK(d dtypes.DType) bool {
	for _, x := range supportedDTypes {
		if x == d {
			return true
		}
	}
	return false
}

func (b *Backend) newBuffer(s shapes.Shape) *Buffer {
	n := s.Size() * elemSize(s.DType)
	return &Buffer{backend: b, shape: s, mem: b.alloc(n), bytes: n}
}

// buffer checks that x is a live buffer of this backend.
func (b *Backend) buffer(x backends.Buffer) (*Buffer, error) {
	buf, ok := x.(*Buffer)
	if !ok || buf == nil || buf.backend != b {
		return nil, fmt.Errorf("native: %T is not a buffer of this backend", x)
	}
	if buf.dead || b.IsFinalized() {
		return nil, errFinalized
	}
	return buf, nil
}

// maxReuse, in words, is the longest memory kept for later buffers: weights are not.
const maxReuse = 2 << 20

// BufferFinalize frees a buffer.
func (b *Backend) BufferFinalize(x backends.Buffer) error {
	buf, err := b.buffer(x)
	if err != nil {
		return err
	}
	buf.mu.Lock()
	defer buf.mu.Unlock()
	m := buf.mem
	buf.mem, buf.packs, buf.int8, buf.blocks, buf.source, buf.dead = nil, nil, nil, nil, nil, true
	if !buf.shared && !buf.adopted && m != nil && len(m) <= maxReuse {
		b.release(m)
	}
	return nil
}

// BufferShape is the buffer's shape.
func (b *Backend) BufferShape(x backends.Buffer) (shapes.Shape, error) {
	buf, err := b.buffer(x)
	if err != nil {
		return shapes.Invalid(), err
	}
	return buf.shape, nil
}

// BufferDeviceNum is 0.
func (b *Backend) BufferDeviceNum(x backends.Buffer) (backends.DeviceNum, error) {
	_, err := b.buffer(x)
	return 0, err
}

// flatBytes returns the memory of a slice of the dtype's Go type with n elements.
func flatBytes(flat any, d dtypes.DType, n int) ([]byte, error) {
	v := reflect.ValueOf(flat)
	if v.Kind() != reflect.Slice || v.Type().Elem() != d.GoType() {
		return nil, fmt.Errorf("native: %T given, a slice of %s is needed", flat, d.GoType())
	}
	if v.Len() != n {
		return nil, fmt.Errorf("native: %d elements given, %d needed", v.Len(), n)
	}
	return unsafe.Slice((*byte)(v.UnsafePointer()), n*elemSize(d)), nil
}

// BufferToFlatData copies a buffer into flat, a slice of the dtype's Go type.
func (b *Backend) BufferToFlatData(x backends.Buffer, flat any) error {
	buf, err := b.buffer(x)
	if err != nil {
		return err
	}
	dst, err := flatBytes(flat, buf.shape.DType, buf.shape.Size())
	if err != nil {
		return err
	}
	p, err := buf.ensureFlat()
	if err != nil {
		return err
	}
	copy(dst, unsafe.Slice((*byte)(p), buf.bytes))
	return nil
}

// BufferFromFlatData copies flat, a slice of the shape's Go type, into a new buffer.
func (b *Backend) BufferFromFlatData(device backends.DeviceNum, flat any, s shapes.Shape) (backends.Buffer, error) {
	if b.IsFinalized() {
		return nil, errFinalized
	}
	if err := checkDevice(device, s); err != nil {
		return nil, err
	}
	src, err := flatBytes(flat, s.DType, s.Size())
	if err != nil {
		return nil, err
	}
	// Small inputs of every call are recycled; what is large enough for panels to
	// matter is a weight.
	buf := b.newBuffer(s.Clone())
	buf.host = buf.bytes >= 1<<14
	copy(unsafe.Slice((*byte)(buf.base()), buf.bytes), src)
	return buf, nil
}

// AdoptFlatData is BufferFromFlatData without a copy where possible: flat belongs to
// the backend from here on.
func (b *Backend) AdoptFlatData(device backends.DeviceNum, flat any, s shapes.Shape) (backends.Buffer, error) {
	src, err := flatBytes(flat, s.DType, s.Size())
	if err != nil {
		return nil, err
	}
	if len(src) < 1<<14 || len(src)%8 != 0 || uintptr(unsafe.Pointer(&src[0]))%8 != 0 {
		return b.BufferFromFlatData(device, flat, s)
	}
	if b.IsFinalized() {
		return nil, errFinalized
	}
	if err := checkDevice(device, s); err != nil {
		return nil, err
	}
	return &Buffer{backend: b, shape: s.Clone(), mem: cast[uint64](src), bytes: len(src), host: true, adopted: true}, nil
}

func checkDevice(device backends.DeviceNum, s shapes.Shape) error {
	if device != 0 {
		return fmt.Errorf("native: device %d does not exist", device)
	}
	return checkShape(s)
}

// HasSharedBuffers is true.
func (b *Backend) HasSharedBuffers() bool { return true }

// NewSharedBuffer makes a buffer of zeros that the caller may read and write, while
// no execution uses it, through the returned slice.
func (b *Backend) NewSharedBuffer(device backends.DeviceNum, s shapes.Shape) (backends.Buffer, any, error) {
	if b.IsFinalized() {
		return nil, nil, errFinalized
	}
	if err := checkDevice(device, s); err != nil {
		return nil, nil, err
	}
	n := s.Size() * elemSize(s.DType)
	buf := &Buffer{backend: b, shape: s.Clone(), mem: hugeWords(max(1, (n+7)/8)), bytes: n, shared: true}
	return buf, flatSlice(buf.base(), s.DType, s.Size()), nil
}

// BufferData is the buffer's memory. Writing to it is allowed for shared buffers.
func (b *Backend) BufferData(x backends.Buffer) (any, error) {
	buf, err := b.buffer(x)
	if err != nil {
		return nil, err
	}
	p, err := buf.ensureFlat()
	if err != nil {
		return nil, err
	}
	return flatSlice(p, buf.shape.DType, buf.shape.Size()), nil
}

// BufferCopyToDevice fails: there is one device.
func (b *Backend) BufferCopyToDevice(backends.Buffer, backends.DeviceNum) (backends.Buffer, error) {
	return nil, fmt.Errorf("native: there is no other device to copy to")
}

// flatSlice is memory as a slice of the dtype's Go type.
func flatSlice(p unsafe.Pointer, d dtypes.DType, n int) any {
	switch d {
	case dtypes.Bool:
		return unsafe.Slice((*bool)(p), n)
	case dtypes.Int8:
		return unsafe.Slice((*int8)(p), n)
	case dtypes.Int16:
		return unsafe.Slice((*int16)(p), n)
	case dtypes.Int32:
		return unsafe.Slice((*int32)(p), n)
	case dtypes.Int64:
		return unsafe.Slice((*int64)(p), n)
	case dtypes.Uint8:
		return unsafe.Slice((*uint8)(p), n)
	case dtypes.Uint16:
		return unsafe.Slice((*uint16)(p), n)
	case dtypes.Uint32:
		return unsafe.Slice((*uint32)(p), n)
	case dtypes.Uint64:
		return unsafe.Slice((*uint64)(p), n)
	case dtypes.Float16:
		return unsafe.Slice((*float16.Float16)(p), n)
	case dtypes.BFloat16:
		return unsafe.Slice((*bfloat16.BFloat16)(p), n)
	case dtypes.Float64:
		return unsafe.Slice((*float64)(p), n)
	default:
		return unsafe.Slice((*float32)(p), n)
	}
}

// elemSize is the size of an element in bytes.
func elemSize(d dtypes.DType) int { return int(d.GoType().Size()) }
