package llama

import (
	"math"
	"slices"
	"testing"

	"rag2/tensor"
)

func argmax(v []float32) int32 {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return int32(best)
}

// greedy continues ids alone.
func greedy(t *testing.T, s *Session, ids []int32, n int) (out []int32, last []float32) {
	t.Helper()
	logits, err := s.Feed(t.Context(), ids)
	for range n {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, argmax(logits))
		logits, err = s.Feed(t.Context(), out[len(out)-1:])
	}
	if err != nil {
		t.Fatal(err)
	}
	return out, logits
}

// testBatch decodes prompts of different lengths together, some joining late and some
// leaving early, with and without a shared prefix; every stream gives the tokens, and,
// where exact says so, the very logits, of the prompt alone.
func testBatch(t *testing.T, m *Model, steps int, exact bool) {
	ctx := t.Context()
	head := sample(21, m.Config.Vocab)
	type stream struct {
		prompt, want, got []int32
		last              []float32
		join, leave       int // steps
	}
	for _, shared := range []bool{false, true} {
		var prefix *Session
		if shared {
			prefix = m.NewSession()
			if _, err := prefix.Feed(ctx, head); err != nil {
				t.Fatal(err)
			}
			defer prefix.Close()
		}
		var all []*stream
		for i, n := range []int{3, 17, 40, 1, 9} {
			p := sample(n+5*i, m.Config.Vocab)[5*i:]
			x := &stream{prompt: p, join: i / 2, leave: steps - i}
			s := m.NewSession()
			x.want, x.last = greedy(t, s, append(slices.Clone(head), p...), x.leave-x.join)
			s.Close()
			all = append(all, x)
		}
		b := m.NewBatch(prefix)
		defer b.Close()
		live := map[*stream]*Stream{}
		for step := range steps {
			var streams []*Stream
			var ids []int32
			var xs []*stream
			for _, x := range all {
				switch {
				case x.join == step:
					s, prompt := m.NewSession(), append(slices.Clone(head), x.prompt...)
					if shared {
						var err error
						if s, err = prefix.Continue(); err != nil {
							t.Fatal(err)
						}
						prompt = x.prompt
					}
					logits, err := s.Feed(ctx, prompt)
					if err != nil {
						t.Fatal(err)
					}
					x.got = append(x.got, argmax(logits))
					if live[x], err = b.Join(s); err != nil {
						t.Fatal(err)
					}
					s.Close()
				case x.leave == step:
					live[x].Leave()
					delete(live, x)
				}
				if live[x] != nil {
					streams, ids, xs = append(streams, live[x]), append(ids, x.got[len(x.got)-1]), append(xs, x)
				}
			}
			logits, err := b.Step(ctx, streams, ids)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range xs {
				if step+1 < x.leave {
					x.got = append(x.got, argmax(logits[i]))
					continue
				}
				if exact && !slices.Equal(logits[i], x.last) {
					t.Errorf("shared %v: logits of %d tokens differ from those of the prompt alone", shared, len(x.prompt))
				}
			}
		}
		for _, x := range all {
			if !slices.Equal(x.got, x.want) {
				t.Errorf("shared %v: %v behind %d tokens, alone %v", shared, x.got, len(x.prompt), x.want)
			}
		}
	}
}

func openTiny(t *testing.T, engine, name string) *Model {
	t.Helper()
	e, err := tensor.Open(engine, tensor.Options{})
	if err != nil {
		t.Skipf("engine %s is not here: %v", engine, err)
	}
	m, w, err := Open(e, "../../testdata/llama/"+name)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { m.Close(); e.Close() })
	return m
}

func TestBatchEqualsSession(t *testing.T) {
	for _, name := range []string{"llama3", "mistral"} {
		for _, engine := range []string{"native", "go"} {
			t.Run(engine+"/"+name, func(t *testing.T) {
				testBatch(t, openTiny(t, engine, name), 12, false)
			})
		}
	}
	// Products with blocks and attention do not depend on the batch.
	t.Run("smollm2", func(t *testing.T) { testBatch(t, openSmol(t), 24, true) })
}

func TestBatchRefuses(t *testing.T) {
	m, other := openTiny(t, "native", "llama3"), openTiny(t, "native", "mistral")
	b := m.NewBatch(nil)
	defer b.Close()
	s, o := m.NewSession(), other.NewSession()
	defer s.Close()
	defer o.Close()
	if _, err := b.Join(s); err == nil {
		t.Error("a session without tokens joined")
	}
	if _, err := s.Continue(); err == nil {
		t.Error("an empty session is a prefix")
	}
	for _, x := range []*Session{s, o} {
		if _, err := x.Feed(t.Context(), []int32{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Join(o); err == nil {
		t.Error("a session of another model joined")
	}
	st, err := b.Join(s)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"no stream": func() error { _, err := b.Step(t.Context(), nil, nil); return err },
		"twice":     func() error { _, err := b.Step(t.Context(), []*Stream{st, st}, []int32{1, 1}); return err },
		"outside":   func() error { _, err := b.Step(t.Context(), []*Stream{st}, []int32{int32(m.Config.Vocab)}); return err },
	} {
		if f() == nil {
			t.Error(name, ": no error")
		}
	}
	st.Leave()
	if _, err := b.Step(t.Context(), []*Stream{st}, []int32{1}); err == nil {
		t.Error("a stream that left: no error")
	}
}

// The cost of a step follows the tokens in use: a model for long contexts has the same
// cache and the same graphs as one for short ones, and on the native engine a cache
// with more room gives the same logits without reading the room, which holds NaN.
func TestStepIndependentOfCapacity(t *testing.T) {
	for _, engine := range []string{"native", "xla:cpu"} {
		t.Run(engine, func(t *testing.T) {
			m := openTiny(t, engine, "llama3")
			ids := sample(300, m.Config.Vocab)
			feed := func(context, room int) (*Session, []float32) {
				m.Config.Context = context
				s := m.NewSession()
				t.Cleanup(s.Close)
				if room > 0 {
					c, err := m.newCache(1, room)
					if err != nil {
						t.Fatal(err)
					}
					for i := range c.flat {
						c.flat[i] = float32(math.NaN())
					}
					s.cache = c
				}
				if _, err := s.Feed(t.Context(), ids); err != nil {
					t.Fatal(err)
				}
				logits, err := s.Feed(t.Context(), ids[:1])
				if err != nil {
					t.Fatal(err)
				}
				return s, logits
			}
			short, want := feed(512, 0)
			graphs := m.Compilations()
			long, got := feed(8192, 0)
			if short.cache.capacity != 512 || long.cache.capacity != 512 || m.Compilations() != graphs || !slices.Equal(got, want) {
				t.Errorf("caches of %d and %d tokens, %d and %d graphs", short.cache.capacity, long.cache.capacity, graphs, m.Compilations())
			}
			if engine != "native" {
				return
			}
			if _, got := feed(8192, 8192); !slices.Equal(got, want) {
				t.Error("a cache with more room gives other logits")
			}
		})
	}
}
