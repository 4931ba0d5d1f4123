package native

import (
	"fmt"
	"math/bits"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// RNGBitGenerator fills an array of Uint32 or Uint64 with random bits by Philox 4×32
// with ten rounds (Salmon et al., SC 2011). The state, [3]uint64, is the key and the
// counter of 128 bits, low half first; the new state's counter is ahead by the blocks of
// four words that were drawn. The bits are those of XLA's generator of the same name.
func (b *Builder) RNGBitGenerator(state backends.Op, s shapes.Shape) (newState, values backends.Op, err error) {
	in, err := b.inputs(backends.OpTypeRNGBitGenerator, state)
	if err != nil {
		return nil, nil, err
	}
	if err := checkShape(s); err != nil {
		return nil, nil, err
	}
	if !in[0].shape.Equal(backends.RNGStateShape) || s.DType != dtypes.Uint32 && s.DType != dtypes.Uint64 {
		return nil, nil, fmt.Errorf("native: RNGBitGenerator of %s from a state of %s: Uint32 or Uint64 from %s is supported", s, in[0].shape, backends.RNGStateShape)
	}
	blocks := uint64(s.Size()*elemSize(s.DType)+15) / 16
	next := b.add(backends.OpTypeRNGBitGenerator, in[0].shape.Clone(), blocks, in[0])
	return next, b.add(backends.OpTypeRNGBitGenerator, s.Clone(), nil, in[0]), nil
}

// rngFunc computes one of the op's two results: the state, or with advance nil the bits.
func rngFunc(advance any) genericFunc {
	if n, ok := advance.(uint64); ok {
		return func(out []byte, in [][]byte) {
			o, s := cast[uint64](out), cast[uint64](in[0])
			lo, carry := bits.Add64(s[1], n, 0)
			o[0], o[1], o[2] = s[0], lo, s[2]+carry
		}
	}
	return func(out []byte, in [][]byte) {
		s, o := cast[uint64](in[0]), cast[uint32](out)
		key, lo, hi := s[0], s[1], s[2]
		for ; len(o) >= 4; o = o[4:] {
			o[0], o[1], o[2], o[3] = philox(key, lo, hi)
			if lo++; lo == 0 {
				hi++
			}
		}
		if len(o) > 0 {
			var last [4]uint32
			last[0], last[1], last[2], last[3] = philox(key, lo, hi)
			copy(o, last[:])
		}
	}
}

// philox is the block of a counter.
func philox(key, lo, hi uint64) (c0, c1, c2, c3 uint32) {
	k0, k1 := uint32(key), uint32(key>>32)
	c0, c1, c2, c3 = uint32(lo), uint32(lo>>32), uint32(hi), uint32(hi>>32)
	for range 10 {
		p, q := 0xD2511F53*uint64(c0), 0xCD9E8D57*uint64(c2)
		c0, c1, c2, c3 = uint32(q>>32)^c1^k0, uint32(q), uint32(p>>32)^c3^k1, uint32(p)
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	return
}
