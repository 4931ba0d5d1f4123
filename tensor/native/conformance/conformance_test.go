package conformance

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"rag2/tensor"
	"rag2/tensor/native"
	"rag2/tensor/simd"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/simplego"
)

func all() []Case { return slices.Concat(Ops(), Fused(), Gradients(), DTypes(), Caches(), Weights()) }

func TestAgainstSimpleGo(t *testing.T) {
	b := native.New(0)
	defer b.Finalize()
	cases := slices.DeleteFunc(all(), func(c Case) bool {
		// On other dtypes simplego fails in goroutines of its own, which ends the process.
		other := strings.HasPrefix(c.Name, "dtype/") && !strings.HasPrefix(c.Name, "dtype/Float32/") && !strings.HasPrefix(c.Name, "dtype/Int32/")
		return c.Half || c.Bits || other
	})
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
	cases := slices.DeleteFunc(all(), func(c Case) bool { return c.NaN || c.Crash })
	n := Compare(t, func() backends.Backend { return b }, e.Backend, cases)
	t.Logf("%d of %d cases are beyond the oracle", n, len(all()))
}

// The engines that round weights give float32's results within what their elements
// lose, where a case has a weight, and the same results where it has none. A weight is
// what comes from the host as a large matrix.
func TestStorage(t *testing.T) {
	exact := native.New(2)
	defer exact.Finalize()
	for name, e := range map[string]struct {
		b   *native.Backend
		tol float64
	}{"bf16": {native.NewHalf(2, simd.BlockBF16), 0.02}, "f16": {native.NewHalf(2, simd.BlockF16), 0.002}, "int8": {native.NewInt8(2), 0.05}} {
		defer e.b.Finalize()
		rounded := 0
		for _, c := range slices.Concat(Ops(), Fused(), Caches(), Weights()) {
			want, err := c.Run(exact)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Run(e.b)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			same := true
			for i := range want {
				same = same && Equal(got[i], want[i], 1e-300) == nil
				tol := e.tol
				if !strings.HasPrefix(c.Name, "weight/") {
					tol = 1e-300 // small inputs stay as they are
				}
				if err := Equal(got[i], want[i], tol); err != nil {
					t.Errorf("%s: %s: output %d: %v", name, c.Name, i, err)
				}
			}
			if strings.HasPrefix(c.Name, "weight/") && !same {
				rounded++
			}
		}
		if n := len(Weights()); rounded != n {
			t.Errorf("%s: %d of %d cases with weights were computed with rounded ones", name, rounded, n)
		}
	}
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

// Every op that the engine says it has is in a case.
func TestEveryOpHasACase(t *testing.T) {
	b := native.New(1)
	defer b.Finalize()
	seen := map[string]bool{}
	for _, c := range all() {
		ops, err := c.Ops(b)
		if err != nil {
			t.Error(err)
		}
		for _, o := range ops {
			seen[o] = true
		}
	}
	for o := range b.Capabilities().Operations {
		if !seen[o.String()] {
			t.Errorf("op %s has no case", o)
		}
	}
}
