package native

import (
	"sync"
	"unsafe"
)

// Products stream through tens of megabytes of panels. On 4 KiB pages every one of
// them costs a walk of the page table (two levels of them in a virtual machine) and
// ends the hardware's prefetching, so large memory is placed on huge pages.

const hugePage = 2 << 20

// hugeWords is zeroed memory, for the most part on huge pages when it is large.
func hugeWords(n int) []uint64 {
	if 8*n < 2*hugePage {
		return make([]uint64, n)
	}
	m := make([]uint64, n+hugePage/8)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
	skip := int((hugePage - at%hugePage) % hugePage)
	m = m[skip/8 : skip/8+n : skip/8+n]
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(m))), 8*n)
	adviseHuge(b[:8*n/hugePage*hugePage])
	return m
}

// panelMemory hands out memory for packed weights from chunks, so that small weights
// come to huge pages too. A chunk lives as long as a weight in it.
type panelMemory struct {
	mu    sync.Mutex
	chunk []uint64 // what is left of it
}

const panelChunk = 8 * hugePage

// bytes is zeroed memory at the beginning of a cache line.
func (p *panelMemory) bytes(n int) []byte {
	words := max(1, n+63) / 64 * 8
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.chunk) < words {
		if 8*words >= panelChunk/2 {
			return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(hugeWords(words)))), n)
		}
		p.chunk = hugeWords(panelChunk / 8)
	}
	m := p.chunk[:words:words]
	p.chunk = p.chunk[words:]
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(m))), n)
}

func (p *panelMemory) floats(n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(p.bytes(4*n)))), n)
}
