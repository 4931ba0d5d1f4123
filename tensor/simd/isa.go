package simd

import (
	"fmt"
	"os"
	"strings"
)

// ISA is an instruction set level; a higher one contains the lower ones of its
// architecture.
type ISA int

// The levels. On amd64: Generic, AVX2 (with FMA, F16C), AVX512 (F, BW, DQ, VL), VNNI
// (AVX-512 VNNI) and BF16 (AVX-512 BF16). On arm64: Generic and NEON.
const (
	Generic ISA = iota
	NEON
	AVX2
	AVX512
	VNNI
	BF16
)

var isaNames = [...]string{"generic", "neon", "avx2", "avx512", "avx512vnni", "avx512bf16"}

func (i ISA) String() string { return isaNames[i] }

// ParseISA reads a level's name.
func ParseISA(s string) (ISA, error) {
	for i, n := range isaNames {
		if strings.EqualFold(s, n) {
			return ISA(i), nil
		}
	}
	return 0, fmt.Errorf("unknown instruction set %q; one of %s", s, strings.Join(isaNames[:], ", "))
}

// Supported lists the levels that this CPU runs, lowest first.
func Supported() []ISA { return supported() }

// Level is the level in use: the CPU's best, or the one named by RAG2_ISA when the
// CPU runs it. LevelError says what was wrong with RAG2_ISA.
var Level, LevelError = chooseISA(os.Getenv("RAG2_ISA"))

func chooseISA(name string) (ISA, error) {
	all := supported()
	best := all[len(all)-1]
	if name == "" {
		return best, nil
	}
	want, err := ParseISA(name)
	if err != nil {
		return best, fmt.Errorf("RAG2_ISA: %w", err)
	}
	for _, l := range all {
		if l == want {
			return l, nil
		}
	}
	return best, fmt.Errorf("RAG2_ISA: this CPU does not run %s; using %s", want, best)
}

// useLevel changes the level, for tests: nothing may be running.
func useLevel(l ISA) {
	Level = l
	selectKernels()
	selectElementwise()
}

func init() { useLevel(Level) }
