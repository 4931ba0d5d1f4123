package simd

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// awkward are values that every kernel must survive.
var awkward = []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0.5, 1e-30, -1e-30, 1e30, -1e30, inf, -inf, nan, 87, 88.7, 88.73, 89, 100, -87, -88, -104, -1e9, 4, -4, 3.9, 8, -8, 0.0003, 0.0005}

func same(got, want, tol float32) bool {
	if want != want || got != got {
		return want != want && got != got
	}
	if got == want {
		return true
	}
	return float32(math.Abs(float64(got-want))) <= tol*max(1, float32(math.Abs(float64(want))))
}

func vectors(seed uint64, n int) (a, b, c []float32) {
	r := rand.New(rand.NewPCG(seed, 3))
	off := int(seed % 5)
	get := func() []float32 {
		x := randomFloats(r, n+off)[off:]
		for i := range x {
			if r.IntN(4) == 0 {
				x[i] = awkward[r.IntN(len(awkward))]
			} else {
				x[i] *= 3
			}
		}
		return x
	}
	return get(), get(), get()
}

func checkElementwise(t *testing.T, seed uint64, n int) {
	t.Helper()
	a, b, c := vectors(seed, n)
	s := &c[0]
	if n == 0 {
		return
	}
	dst := make([]float32, n+1)
	guard := func(what any) {
		if dst[n] != 77 {
			t.Fatalf("op %v n %d: wrote behind the end", what, n)
		}
	}
	truths := func(x []float32) []float32 {
		y := make([]float32, len(x))
		for i := range x {
			y[i] = truth(x[i] > 0)
		}
		return y
	}
	for op := range opCount {
		dst[n] = 77
		if !op.IsBinary() {
			Unary(op, dst[:n], a)
			guard(op)
			for i := range n {
				want := plainUnary[op](a[i])
				tol := float32(4e-7)
				if op == Gelu {
					tol *= max(1, float32(math.Abs(float64(a[i]))))
				}
				if math.IsInf(float64(a[i]), 0) && op == Gelu {
					continue // 0·Inf or Inf, as computed
				}
				if !same(dst[i], want, tol) {
					t.Fatalf("op %d of %g = %g, want %g", op, a[i], dst[i], want)
				}
			}
			continue
		}
		x, y, s := a, b, s
		if op >= And {
			x, y, s = truths(a), truths(b), &truths(c)[0]
		}
		for form := range 3 {
			switch form {
			case 0:
				Binary(op, dst[:n], x, y)
			case 1:
				BinaryVS(op, dst[:n], x, s)
			case 2:
				BinarySV(op, dst[:n], s, y)
			}
			guard(op)
			for i := range n {
				l, r := x[i], y[i]
				if form == 1 {
					r = *s
				} else if form == 2 {
					l = *s
				}
				if want := plainBinary[op](l, r); !same(dst[i], want, 0) {
					t.Fatalf("op %d form %d of %g, %g = %g, want %g", op, form, l, r, dst[i], want)
				}
			}
		}
	}
	Where(dst[:n], truths(a), b, c)
	guard("where")
	for i := range n {
		want := c[i]
		if a[i] > 0 {
			want = b[i]
		}
		if !same(dst[i], want, 0) {
			t.Fatal("where")
		}
	}
	bools := make([]byte, n)
	for i := range bools {
		bools[i] = byte(truth(a[i] > 0))
	}
	BoolsToFloat(dst[:n], bools)
	guard("bools")
	for i := range n {
		if dst[i] != float32(bools[i]) {
			t.Fatal("bools")
		}
	}
	hi, lo := -inf, inf
	sum, mag := 0.0, 0.0
	for i, x := range a {
		hi, lo = max(hi, x), min(lo, x)
		y := float64(b[i])
		if y != y || math.Abs(y) > 1e20 {
			b[i], y = 1, 1
		}
		sum, mag = sum+y, mag+math.Abs(y)
	}
	if !same(Maximum(a), hi, 0) || !same(Minimum(a), lo, 0) {
		t.Fatalf("n %d: extremes %g %g, want %g %g", n, Maximum(a), Minimum(a), hi, lo)
	}
	if got := Sum(b); math.Abs(float64(got)-sum) > 1e-6*mag {
		t.Fatalf("n %d: sum %g, want %g", n, got, sum)
	}
}

func TestElementwise(t *testing.T) { eachLevel(t, testElementwise) }

func testElementwise(t *testing.T) {
	for n := 1; n < 80; n++ {
		checkElementwise(t, uint64(n), n)
	}
	checkElementwise(t, 5, 1000)
}

func FuzzElementwise(f *testing.F) {
	f.Add(uint64(1), uint16(9))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16) { checkElementwise(t, seed, int(n)%300+1) })
}

// Errors of the approximations over their interesting range.
func TestApproximations(t *testing.T) { eachLevel(t, testApproximations) }

func testApproximations(t *testing.T) {
	const n = 1 << 16
	x, y := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i] = float32(i-n/2) * 20 / n
	}
	for _, op := range []Op{Exp, Tanh, Erf, Logistic, Gelu} {
		Unary(op, y, x)
		worst, at := 0.0, float32(0)
		for i := range x {
			want := float64(plainUnary[op](x[i]))
			d := math.Abs(float64(y[i])-want) / max(1, math.Abs(want))
			if op == Gelu {
				d /= max(1, math.Abs(float64(x[i])))
			}
			if d > worst {
				worst, at = d, x[i]
			}
		}
		if worst > 4e-7 {
			t.Errorf("op %d: error %.3g at %g", op, worst, at)
		}
	}
	for _, v := range []float32{-inf, -1000, -1e9} {
		if Unary(Exp, y[:1], []float32{v}); y[0] != 0 {
			t.Errorf("exp(%g) = %g", v, y[0])
		}
	}
}

// Generated files are what their generators write.
func TestGeneratedFresh(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the generators")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command on this machine")
	}
	for _, x := range []struct {
		file string
		args []string
	}{{"gemm_amd64.s", []string{"gen_gemm.go"}}, {"int8_amd64.s", []string{"gen_int8.go"}}, {"blocks_amd64.s", []string{"gen_blocks.go"}}, {"elementwise_amd64.s", []string{"gen_elementwise.go", "s"}}, {"elementwise_amd64.go", []string{"gen_elementwise.go", "go"}},
		{"elementwise512_amd64.s", []string{"gen_elementwise.go", "s512"}}, {"elementwise512_amd64.go", []string{"gen_elementwise.go", "go512"}}, {"weights_amd64.s", []string{"gen_weights.go"}},
		{"blocks512_amd64.s", []string{"gen_blocks512.go", "s"}}, {"blocks512_amd64.go", []string{"gen_blocks512.go", "go"}}, {"attention_amd64.s", []string{"gen_attention.go"}},
		{"avx512_amd64.s", []string{"gen_avx512.go", "gen_bf16.go", "s"}}, {"avx512_amd64.go", []string{"gen_avx512.go", "gen_bf16.go", "go"}}, {"neon_arm64.s", []string{"gen_neon.go", "s"}}, {"neon_arm64.go", []string{"gen_neon.go", "go"}}} {
		want, err := exec.Command("go", append([]string{"run"}, x.args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(x.file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not fresh (go generate): %v", x.file, err)
		}
	}
}

func BenchmarkUnary(b *testing.B) {
	x, y := make([]float32, 2048), make([]float32, 2048)
	for i := range x {
		x[i] = float32(i-1024) / 256
	}
	for name, op := range map[string]Op{"exp": Exp, "tanh": Tanh, "erf": Erf, "gelu": Gelu, "neg": Neg} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Unary(op, y, x)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2048, "ns/elem")
		})
	}
}
