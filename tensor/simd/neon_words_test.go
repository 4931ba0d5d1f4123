package simd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The words of neon_arm64.s are the instructions that stand beside them, as GNU as
// encodes these.
func TestNEONWords(t *testing.T) {
	as, err := exec.LookPath("aarch64-linux-gnu-as")
	if err != nil {
		t.Skip("aarch64-linux-gnu-as (Debian: binutils-aarch64-linux-gnu) is missing: the encodings were not compared")
	}
	src, err := os.ReadFile("neon_arm64.s")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]uint32{}
	var list []string
	for _, m := range regexp.MustCompile(`(?m)WORD \$0x([0-9A-F]{8}) // (.*)$`).FindAllSubmatch(src, -1) {
		var w uint32
		fmt.Sscanf(string(m[1]), "%x", &w)
		text := string(m[2])
		if old, ok := words[text]; ok && old != w {
			t.Fatalf("%s is both %08x and %08x", text, old, w)
		} else if !ok {
			words[text], list = w, append(list, text)
		}
	}
	if len(list) < 100 {
		t.Fatalf("%d instructions found", len(list))
	}
	dir := t.TempDir()
	var asm bytes.Buffer
	for _, l := range list {
		fmt.Fprintln(&asm, l)
	}
	in, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o")
	if err := os.WriteFile(in, asm.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if msg, err := exec.Command(as, "-o", out, in).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	bin := filepath.Join(dir, "a.bin")
	if msg, err := exec.Command("aarch64-linux-gnu-objcopy", "-O", "binary", "-j", ".text", out, bin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	code, err := os.ReadFile(bin)
	if err != nil || len(code) != 4*len(list) {
		t.Fatalf("%d bytes of code for %d instructions: %v", len(code), len(list), err)
	}
	for i, l := range list {
		if w := binary.LittleEndian.Uint32(code[4*i:]); w != words[l] {
			t.Errorf("%s is %08x, the generator writes %08x", l, w, words[l])
		}
	}
}
