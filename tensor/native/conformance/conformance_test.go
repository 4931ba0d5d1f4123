package conformance

import (
	"errors"
	"slices"
	"testing"

	"rag2/tensor"
	"rag2/tensor/native"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/simplego"
)

func all() []Case { return append(append(Ops(), Fused()...), Gradients()...) }

func TestAgainstSimpleGo(t *testing.T) {
	b := native.New(0)
	defer b.Finalize()
	cases := slices.DeleteFunc(all(), func(c Case) bool { return c.Half || c.Bits })
	n := Compare(t, func() backends.Backend { return b }, simplego.GetBackend, cases)
	t.Logf("%d of %d cases are beyond the oracle", n, len(all()))
}

func TestAgainstXLA(t *testing.T) {
	e, err := tensor.Open("xla:cpu", tensor.Options{})
	if errors.Is(err, tensor.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	b := native.New(0)
	defer b.Finalize()
	cases := slices.DeleteFunc(all(), func(c Case) bool { return c.NaN })
	n := Compare(t, func() backends.Backend { return b }, e.Backend, cases)
	t.Logf("%d of %d cases are beyond the oracle", n, len(all()))
}

// Results are the same bits whatever the number of threads.
func TestThreads(t *testing.T) {
	one, three := native.New(1), native.New(3)
	defer one.Finalize()
	defer three.Finalize()
	for _, c := range all() {
		a, err := c.Run(one)
		if err != nil {
			t.Error(err)
			continue
		}
		b, err := c.Run(three)
		if err != nil {
			t.Error(err)
			continue
		}
		for i := range a {
			if err := Equal(b[i], a[i], 1e-300); err != nil {
				t.Errorf("%s: output %d: %v", c.Name, i, err)
			}
		}
	}
}
