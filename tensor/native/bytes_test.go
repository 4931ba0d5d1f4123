package native

import (
	"testing"

	"rag2/tensor/simd"
)

// What ProductBytes promises is what a weight takes.
func TestProductBytes(t *testing.T) {
	for _, s := range [][2]int{{16, 32}, {50, 768}, {768, 3072}, {17, 129}} {
		n, k := s[0], s[1]
		if got, want := (&Backend{int8: true}).ProductBytes(n, k), len(simd.QuantizeWeights(make([]float32, k*n), k, n, n, 1).Data); got != int64(want) {
			t.Errorf("%v: int8 %d, takes %d", s, got, want)
		}
		panels := (n + simd.PanelWidth - 1) / simd.PanelWidth
		if got, want := (&Backend{half: simd.BlockBF16}).ProductBytes(n, k), panels*simd.BlockBF16.PanelBytes(k); got != int64(want) {
			t.Errorf("%v: bf16 %d, takes %d", s, got, want)
		}
		if got := (&Backend{}).ProductBytes(n, k); got != int64(4*n*k) {
			t.Errorf("%v: f32 %d", s, got)
		}
	}
}
