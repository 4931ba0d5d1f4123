package llama

import (
	"testing"

	"rag2/tensor"
	"rag2/tensor/native"

	"github.com/gomlx/gomlx/backends"
)

// apart is native as a GPU looks: it shares no memory with the host.
type apart struct{ *native.Backend }

func (apart) HasSharedBuffers() bool { return false }

func init() {
	tensor.Register("test:apart", func(tensor.Options) (backends.Backend, error) { return apart{native.New(0)}, nil })
}

// Sequences and batches on an engine without shared memory give what they give with it.
func TestEngineWithoutSharedMemory(t *testing.T) {
	var want []int32
	for _, name := range []string{"native", "test:apart"} {
		e, err := tensor.Open(name, tensor.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, w, err := Open(e, "../../testdata/llama/llama3")
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		s := m.NewSession()
		got, _ := greedy(t, s, sample(300, m.Config.Vocab), 40)
		if s.Close(); want == nil {
			want = got
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s: token %d is %d, want %d", name, i, got[i], want[i])
			}
		}
		testBatch(t, m, 12, false)
		if apart := name != "native"; (m.updates.Compilations() > 0) != apart {
			t.Errorf("%s: %d programs write single tokens", name, m.updates.Compilations())
		}
		m.Close()
		e.Close()
	}
}
