package hnsw

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"rag2/internal/mmapfile"
	"rag2/internal/npy"
)

var update = flag.Bool("update", false, "rewrite the frozen files of the current format")

// frozen is a small file of each kind of codes, kept as every released format made
// it: it must stay readable.
const frozenDir = "testdata/format2"

func TestFrozenFiles(t *testing.T) {
	vectors := filepath.Join(frozenDir, "vectors.npy")
	names := map[string]BuildOptions{
		"ip.hnsw":       {Codes: FourBit, M: 4, EfConstruction: 20},
		"l2-int8.hnsw":  {Metric: L2, Codes: Int8, M: 4, EfConstruction: 20},
		"cos-1bit.hnsw": {Metric: Cosine, Codes: OneBit, M: 4, EfConstruction: 20},
		"l2-pca.hnsw":   {Metric: L2, Codes: Principal, M: 4, EfConstruction: 20},
	}
	if *update {
		if err := os.MkdirAll(frozenDir, 0o755); err != nil {
			t.Fatal(err)
		}
		path, _ := write(t, 60, 20, 77)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectors, b, 0o644); err != nil {
			t.Fatal(err)
		}
		for n, o := range names {
			if err := Build(context.Background(), vectors, filepath.Join(frozenDir, n), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, err := npy.Open(vectors)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for n := range names {
		x, err := Open(filepath.Join(frozenDir, n))
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Verify(context.Background()); err != nil {
			t.Error(err)
		}
		for i := range a.Rows() {
			q := append([]float32(nil), a.Row32(i, nil)...)
			got, _, err := x.Search(context.Background(), q, 5, SearchOptions{Ef: 40, Rescore: 40})
			if err != nil {
				t.Fatal(err)
			}
			want, _, _ := x.Search(context.Background(), q, 5, SearchOptions{Exact: true})
			if got[0] != want[0] {
				t.Errorf("%s, row %d: %v, want %v", n, i, got[0], want[0])
			}
		}
		x.Close()
	}
}

func TestNotOursAndVersions(t *testing.T) {
	path, _ := write(t, 50, 16, 6)
	g := filepath.Join(t.TempDir(), "g")
	if err := Build(context.Background(), path, g, BuildOptions{}); err != nil {
		t.Fatal(err)
	}
	good, _ := os.ReadFile(g)
	try := func(b []byte) error {
		if err := os.WriteFile(g, b, 0o644); err != nil {
			t.Fatal(err)
		}
		x, err := Open(g, path)
		if err == nil {
			x.Close()
		}
		return err
	}
	for _, b := range [][]byte{nil, []byte("short"), []byte("PK\x03\x04 something else entirely, long enough for a header …………………………")} {
		if err := try(b); !errors.Is(err, ErrNotOurs) {
			t.Errorf("%q: %v", b, err)
		}
	}
	for _, v := range []byte{1, 3, 255} {
		b := bytes.Clone(good)
		b[8] = v
		if err := try(b); !errors.Is(err, ErrVersion) {
			t.Errorf("version %d: %v", v, err)
		}
	}
	if err := try(good); err != nil {
		t.Error(err)
	}
	if err := os.Rename(path, path+"x"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(g, path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing vectors: %v", err)
	}
}

// A file that shrinks while it is mapped is an error, in Go code and in assembly.
func TestTruncatedWhileOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("truncation under a mapping is tested on Linux")
	}
	for _, codes := range []Codes{NoCodes, Int8, FourBit, OneBit, Principal} {
		for _, cut := range []string{"index", "vectors"} {
			path, queries := write(t, 3000, 64, 6)
			x := open(t, path, BuildOptions{Codes: codes, EfConstruction: 30})
			victim := path
			if cut == "index" {
				victim = x.Path()
			}
			if err := os.Truncate(victim, 100); err != nil {
				t.Fatal(err)
			}
			if _, _, err := x.Search(context.Background(), queries[0], 5, SearchOptions{}); !errors.Is(err, mmapfile.ErrFault) {
				t.Errorf("%v, %s cut: search: %v", codes, cut, err)
			}
			if err := x.Verify(context.Background()); !errors.Is(err, mmapfile.ErrFault) {
				t.Errorf("%v, %s cut: verify: %v", codes, cut, err)
			}
			if cut == "vectors" {
				if _, _, err := x.Search(context.Background(), queries[0], 5, SearchOptions{Exact: true}); !errors.Is(err, mmapfile.ErrFault) {
					t.Errorf("%v: exact: %v", codes, err)
				}
			}
		}
	}
}

// FuzzIndexFile opens and searches damaged files: errors or wrong hits, no panic.
func FuzzIndexFile(f *testing.F) {
	names, _ := filepath.Glob(frozenDir + "/*.hnsw")
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint32(100), byte(1), true)
		f.Add(b, uint32(9000), byte(0xff), false)
	}
	dir := f.TempDir()
	v, err := os.ReadFile(frozenDir + "/vectors.npy")
	if err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(dir+"/vectors.npy", v, 0o644); err != nil {
		f.Fatal(err)
	}
	q := make([]float32, 20)
	for i := range q {
		q[i] = float32(i%5) - 2.5
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint32, flip byte, fix bool) {
		if len(b) > 0 {
			b = bytes.Clone(b)
			b[int(at)%len(b)] ^= flip
		}
		if fix && len(b) > headLen { // so that the damage gets past the checksums
			if hl := int(le.Uint32(b[16:])); hl <= len(b) && hl >= headLen {
				for i := 0; headLen+entryLen*(i+1) <= hl; i++ {
					e := b[headLen+entryLen*i:]
					if off, n := le.Uint64(e[8:]), le.Uint64(e[16:]); off <= uint64(len(b)) && n <= uint64(len(b))-off {
						le.PutUint32(e[4:], crcOf(b[off:off+n]))
					}
				}
				le.PutUint32(b[32:], headerCRC(b[:hl]))
			}
		}
		p := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		x, err := Open(p, dir+"/vectors.npy")
		if err != nil {
			return
		}
		defer x.Close()
		ctx := context.Background()
		_ = x.Verify(ctx)
		_, _, _ = x.Search(ctx, q, 7, SearchOptions{Ef: 30})
		_, _, _ = x.Search(ctx, q, 7, SearchOptions{Ef: 30, Keep: func(r int) bool { return r%2 == 0 }})
	})
}
