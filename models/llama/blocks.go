package llama

import (
	"rag2/tensor/weights"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// blockBackend is an engine that computes with GGUF blocks as they are.
type blockBackend interface {
	BlockBuffer(ggufType string, blocks []byte, s shapes.Shape) (backends.Buffer, error)
}

// loadBlocks uploads a quantised matrix [out,in] as blocks. ok is false when the
// engine or the storage type does not allow it. heads, when not 0, tells that the
// rows are those of a query or key projection, see unpermute.
func loadBlocks(b backends.Backend, w *weights.File, name string, s shapes.Shape, heads, headDim int) (buf backends.Buffer, ok bool, err error) {
	q, ok := b.(blockBackend)
	info, err := w.Info(name)
	if err != nil || !ok || s.Rank() != 2 || (info.DType != weights.Q4_0 && info.DType != weights.Q4_1 && info.DType != weights.Q8_0) {
		return nil, false, err
	}
	raw, err := w.Raw(name)
	if err != nil {
		return nil, false, err
	}
	if heads > 0 {
		raw = unpermuteRows(raw, heads, headDim)
	}
	buf, err = q.BlockBuffer(string(info.DType), raw, s)
	return buf, err == nil, err
}

// unpermuteRows is unpermute on the stored rows, whatever their encoding.
func unpermuteRows(raw []byte, heads, dim int) []byte {
	out := make([]byte, len(raw))
	row := len(raw) / (heads * dim)
	for h := range heads {
		src, dst := raw[h*dim*row:(h+1)*dim*row], out[h*dim*row:(h+1)*dim*row]
		for i := range dim / 2 {
			copy(dst[i*row:(i+1)*row], src[2*i*row:])
			copy(dst[(i+dim/2)*row:(i+dim/2+1)*row], src[(2*i+1)*row:])
		}
	}
	return out
}
