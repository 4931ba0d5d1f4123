package llama

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"rag2/tensor/exec"
)

// Batch decodes several sequences together, one token of each at a time: the weights
// are read once for all. All continue the same prefix or none. A Batch belongs to one
// goroutine at a time.
type Batch struct {
	m       *Model
	prefix  *Session
	cache   *kvCache
	streams []*Stream // by slot; nil where none is
	in      input
}

// Stream is a sequence of a batch.
type Stream struct {
	b    *Batch
	slot int
	n    int // tokens, without the prefix
}

// maxStreams bounds a batch.
const maxStreams = 64

// NewBatch makes an empty batch of sequences that continue prefix (nil = none).
func (m *Model) NewBatch(prefix *Session) *Batch { return &Batch{m: m, prefix: prefix} }

// Len is the number of streams.
func (b *Batch) Len() int {
	n := 0
	for _, s := range b.streams {
		if s != nil {
			n++
		}
	}
	return n
}

// Join adds what a session holds as a stream; the session stays as it is and may go on
// or be closed.
func (b *Batch) Join(s *Session) (*Stream, error) {
	if s.m != b.m || s.prefix != b.prefix || s.cache == nil || len(s.tokens) == 0 {
		return nil, fmt.Errorf("llama: a session without tokens, of another model or with another prefix cannot join the batch")
	}
	n := b.Len()
	if n == maxStreams {
		return nil, fmt.Errorf("llama: a batch holds %d sequences at most", maxStreams)
	}
	if err := b.resize(n+1, len(s.tokens)+1); err != nil {
		return nil, err
	}
	st := &Stream{b: b, slot: slices.Index(b.streams, nil), n: len(s.tokens)}
	b.cache.copySlot(st.slot, s.cache, 0, st.n)
	b.streams[st.slot] = st
	return st, nil
}

// Leave ends the stream.
func (s *Stream) Leave() {
	if s.b != nil {
		s.b.streams[s.slot] = nil
		s.b = nil
	}
}

// Len is the number of the stream's tokens, without the prefix.
func (s *Stream) Len() int { return s.n }

// Close frees the cache; streams end.
func (b *Batch) Close() {
	b.in.close(b.m.backend)
	b.cache.close()
	b.cache = nil
	for _, s := range b.streams {
		if s != nil {
			s.b = nil
		}
	}
	b.streams = nil
}

// resize gives the batch slots for n streams and room for tokens tokens in each. Slots
// are a power of two, so that few graphs are compiled.
func (b *Batch) resize(n, tokens int) error {
	slots := 1
	for slots < n {
		slots *= 2
	}
	capacity := roomFor(tokens)
	if b.cache != nil {
		if slots <= b.cache.slots && capacity <= b.cache.capacity && n > b.cache.slots/2 {
			return nil
		}
		capacity = max(capacity, b.cache.capacity)
	}
	c, err := b.m.newCache(slots, capacity)
	if err != nil {
		return err
	}
	streams := make([]*Stream, slots)
	at := 0
	for _, s := range b.streams {
		if s != nil {
			c.copySlot(at, b.cache, s.slot, s.n)
			s.slot, streams[at] = at, s
			at++
		}
	}
	b.cache.close()
	b.cache, b.streams = c, streams
	return nil
}

// Step appends tokens[i] to streams[i] and returns, for each, the logits that follow
// [vocab], valid until the next call; streams of the batch that are not given wait. The
// result for a stream is that of a Session alone.
func (b *Batch) Step(ctx context.Context, streams []*Stream, tokens []int32) ([][]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(streams) == 0 || len(streams) != len(tokens) {
		return nil, fmt.Errorf("llama: %d streams, %d tokens", len(streams), len(tokens))
	}
	longest := 0
	for i, s := range streams {
		if s.b != b {
			return nil, fmt.Errorf("llama: stream %d is not of this batch", i)
		}
		if slices.Contains(streams[:i], s) {
			return nil, fmt.Errorf("llama: stream %d is given twice", i)
		}
		longest = max(longest, s.n+1)
	}
	for _, s := range b.streams {
		if s != nil {
			longest = max(longest, s.n)
		}
	}
	shared := 0
	if b.prefix != nil {
		shared = len(b.prefix.tokens)
	}
	if err := b.m.check(tokens, shared+longest-len(tokens)); err != nil {
		return nil, err
	}
	if err := b.resize(b.Len(), longest); err != nil {
		return nil, err
	}
	n := b.cache.slots
	a := &call{bucket: bucket{sequences: n, tokens: 1, capacity: b.cache.capacity}, cache: b.cache, shared: shared,
		ids: make([]int32, n), pick: make([]int32, n), used: make([]float32, n)}
	if b.prefix != nil {
		a.prefix, a.bucket.prefix = b.prefix.cache, b.prefix.cache.capacity
	}
	for i, s := range streams {
		a.ids[s.slot], a.used[s.slot] = tokens[i], float32(s.n)
	}
	out, kv, err := b.m.run(&b.in, a)
	if err != nil {
		return nil, err
	}
	vocab := b.m.Config.Vocab
	logits := make([][]float32, len(streams))
	var failed atomic.Pointer[error]
	store := func(i int) {
		s := streams[i]
		logits[i] = out[s.slot*vocab : (s.slot+1)*vocab : (s.slot+1)*vocab]
		if err := finite(logits[i]); err != nil {
			failed.Store(&err)
			return
		}
		b.cache.store(s.slot, s.n, kv, n, s.slot, 1)
	}
	if b.cache.apart { // which updates the device's copy
		for i := range streams {
			store(i)
		}
	} else { // a key's floats go to as many cache lines
		exec.Parallel(b.m.backend, len(streams), store)
	}
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	for _, s := range streams {
		s.n++
	}
	return logits, nil
}
