//go:build daulet

package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpu is the process's CPU time.
func cpu(t testing.TB) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// The Go tokenizers give the Rust library's ids, for every text of RAG2_TOKENIZER_TEXTS (JSON
// lines {"text"}) and each tokenizer.json of RAG2_ORACLE (directories, separated by commas); CPU time
// of both, in turns of 4,096 texts, is logged.
func TestEqualsOracle(t *testing.T) {
	path, dirs := os.Getenv("RAG2_TOKENIZER_TEXTS"), os.Getenv("RAG2_ORACLE")
	if path == "" || dirs == "" {
		t.Skip("RAG2_TOKENIZER_TEXTS or RAG2_ORACLE is not set: no texts or vocabularies to compare with")
	}
	var texts []string
	size := 0
	readGoldens(t, path, func(g golden) { texts = append(texts, g.Text); size += len(g.Text) })
	for dir := range strings.SplitSeq(dirs, ",") {
		tok, err := Load(filepath.Join(dir, "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		d := tok.(*daulet)
		var ours, theirs time.Duration
		ids, diff := 0, 0
		for part := range slices.Chunk(texts, 4096) {
			got, want := make([][]int32, len(part)), make([][]int32, len(part))
			at := cpu(t)
			for i, s := range part {
				got[i] = d.framed.AppendPlain(nil, s)
			}
			mid := cpu(t)
			for i, s := range part {
				for _, id := range d.rust.EncodeWithOptions(valid(s), false).IDs {
					want[i] = append(want[i], int32(id))
				}
			}
			end := cpu(t)
			ours, theirs = ours+mid-at, theirs+end-mid
			for i := range part {
				ids += len(got[i])
				if slices.Equal(got[i], want[i]) {
					continue
				}
				if diff++; diff < 5 {
					k := 0
					for k < min(len(got[i]), len(want[i])) && got[i][k] == want[i][k] {
						k++
					}
					t.Errorf("%s: %.60q: %q, want %q", dir, part[i], d.Decode(got[i][max(k-2, 0):min(k+6, len(got[i]))]), d.Decode(want[i][max(k-2, 0):min(k+6, len(want[i]))]))
				}
			}
		}
		mb := float64(size) / 1e6
		t.Logf("%s: %d of %d texts differ, %d ids; Go %.1f MB/s of CPU time, Rust from Go %.1f MB/s: %.2f times", filepath.Base(dir), diff, len(texts), ids,
			mb/ours.Seconds(), mb/theirs.Seconds(), theirs.Seconds()/ours.Seconds())
	}
}
