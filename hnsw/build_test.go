package hnsw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func buildBytes(t testing.TB, vectors string, o BuildOptions) []byte {
	t.Helper()
	g := filepath.Join(filepath.Dir(vectors), "same")
	if err := Build(context.Background(), vectors, g, o); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(g)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSameFileForAnyThreads(t *testing.T) {
	path, _ := write(t, 1500, 24, 2)
	for _, o := range []BuildOptions{{Seed: 9}, {Codes: FourBit, Metric: L2}, {FullPrecision: true, Metric: Cosine, Codes: OneBit, M: 6, EfConstruction: 40}} {
		o.Workers = 1
		one := buildBytes(t, path, o)
		for _, w := range []int{2, 7} {
			o.Workers = w
			if !bytes.Equal(one, buildBytes(t, path, o)) {
				t.Errorf("%+v: %d workers make another file than one", o, w)
			}
		}
		o.Seed++
		if bytes.Equal(one, buildBytes(t, path, o)) {
			t.Errorf("%+v: another seed makes the same file", o)
		}
	}
}

// A build that is cancelled after any round and taken up again makes the same file.
// TestRecode: the file made by recoding is the one that a build with those codes makes.
func TestRecode(t *testing.T) {
	path, _ := write(t, 700, 24, 2)
	from, to := filepath.Join(filepath.Dir(path), "from"), filepath.Join(filepath.Dir(path), "to")
	for _, m := range []Metric{InnerProduct, Cosine} {
		if err := Build(context.Background(), path, from, BuildOptions{Codes: FourBit, Metric: m}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []Codes{NoCodes, Int8, FourBit, OneBit, Principal} {
			if err := Recode(context.Background(), from, to, c); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(to)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, buildBytes(t, path, BuildOptions{Codes: c, Metric: m})) {
				t.Errorf("%v, %v: another file than a build makes", m, c)
			}
		}
	}
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(from, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Recode(context.Background(), from, to, OneBit); err == nil {
		t.Error("a damaged index was recoded")
	}
}

func TestResumeAfterCancel(t *testing.T) {
	path, _ := write(t, 1200, 16, 3)
	o := BuildOptions{Codes: Int8, Workers: 2}
	want := buildBytes(t, path, o)
	g := filepath.Join(filepath.Dir(path), "g")
	rng := rand.New(rand.NewPCG(1, 2))
	stops := 0
	for {
		ctx, cancel := context.WithCancel(context.Background())
		b, err := newBuilder(ctx, []string{path}, g, o)
		if err != nil {
			t.Fatal(err)
		}
		left := 1 + rng.IntN(60)
		b.afterRound = func(int) error {
			if left--; left == 0 {
				cancel()
				return ctx.Err()
			}
			return nil
		}
		before := b.round
		err = b.run(ctx)
		cancel()
		b.close()
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) || b.round == before {
			t.Fatalf("after %d stops: %v", stops, err)
		}
		stops++
	}
	got, err := os.ReadFile(g)
	if err != nil {
		t.Fatal(err)
	}
	if stops < 3 || !bytes.Equal(got, want) {
		t.Errorf("%d stops; files equal: %v", stops, bytes.Equal(got, want))
	}
	if _, err := os.Stat(g + ".ckpt"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkpoint is left: %v", err)
	}
}

// TestMain lets the test binary be a build that gets killed.
func TestMain(m *testing.M) {
	if v := os.Getenv("RAG2_TEST_BUILD"); v != "" {
		a := strings.Split(v, "\n")
		err := Build(context.Background(), a[0], a[1], BuildOptions{Codes: OneBit, CheckpointEvery: time.Nanosecond})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestKilledBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	path, _ := write(t, 5000, 32, 4)
	want := buildBytes(t, path, BuildOptions{Codes: OneBit})
	g := filepath.Join(filepath.Dir(path), "g")
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 2))
	kills, resumed := 0, 0
	for try := 0; ; try++ {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "RAG2_TEST_BUILD="+path+"\n"+g)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Wait() }()
		wait := time.Duration(50+rng.IntN(300)) * time.Millisecond
		if try > 12 {
			wait = time.Minute
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(wait):
			_ = c.Process.Kill()
			if err := <-done; err != nil {
				if kills++; exists(g + ".ckpt") {
					resumed++
				}
				continue
			}
		}
		break
	}
	got, err := os.ReadFile(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("killed %d times, %d times with a checkpoint", kills, resumed)
	if !bytes.Equal(got, want) {
		t.Error("a killed and resumed build made another file")
	}
}

func TestForeignCheckpoints(t *testing.T) {
	path, _ := write(t, 600, 16, 3)
	g := filepath.Join(filepath.Dir(path), "g")
	want := buildBytes(t, path, BuildOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	b, err := newBuilder(ctx, []string{path}, g, BuildOptions{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	b.afterRound = func(r int) error {
		if r == 60 {
			cancel()
		}
		return ctx.Err()
	}
	if err := b.run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.close()
	ck, err := os.ReadFile(g + ".ckpt")
	if err != nil {
		t.Fatal(err)
	}
	// One of other options is not taken up.
	if err := Build(context.Background(), path, g, BuildOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(g); !bytes.Equal(got, want) {
		t.Error("a checkpoint of another build was taken up")
	}
	// A damaged one is an error.
	ck[len(ck)-3] ^= 1
	if err := os.WriteFile(g+".ckpt", ck, 0o644); err != nil {
		t.Fatal(err)
	}
	var c *ErrCorrupt
	if err := Build(context.Background(), path, g, BuildOptions{Seed: 5}); !errors.As(err, &c) {
		t.Errorf("damaged checkpoint: %v", err)
	}
}

func TestBuildOptionsValidate(t *testing.T) {
	err := BuildOptions{M: 1, EfConstruction: 1 << 20, Metric: 9, Codes: 9, Workers: -1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, w := range []string{"M is", "efConstruction", "metric", "codes", "workers"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not reported in %v", w, err)
		}
	}
}

// An index whose edges were chosen by an earlier rule is read, but not built on.
func TestEarlierEdgesAreNotTakenOver(t *testing.T) {
	vectors, err := filepath.Abs(filepath.Join(frozenDir, "vectors.npy"))
	if err != nil {
		t.Fatal(err)
	}
	o := BuildOptions{Codes: FourBit, M: 4, EfConstruction: 20}
	dir := t.TempDir()
	build := func(name, base string) (path string, baseRows int, file []byte) {
		path = filepath.Join(dir, name)
		o := o
		o.base = base
		if err := BuildShards(context.Background(), []string{vectors}, path, o); err != nil {
			t.Fatal(err)
		}
		x, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if file, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		return path, x.p.base, file
	}
	fresh, _, want := build("fresh", "")
	if _, rows, got := build("earlier", filepath.Join(frozenDir, "ip.hnsw")); rows != 0 || !bytes.Equal(got, want) {
		t.Errorf("%d rows of a graph by an earlier rule were taken over", rows)
	}
	if _, rows, _ := build("same", fresh); rows != 60 {
		t.Errorf("%d rows of a graph by the same rule were taken over, not 60", rows)
	}
}
