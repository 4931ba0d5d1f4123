package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rag2/models"
)

const answer = `{"id":"1","object":"chat.completion","created":1,"model":"m-1","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"The answer is (B)."}}],"usage":{"prompt_tokens":7,"completion_tokens":6,"total_tokens":13}}`

// serve starts a server on loopback; handler sees the number of the request, from 1.
func serve(t *testing.T, handler func(w http.ResponseWriter, r *http.Request, n int)) (string, *atomic.Int32) {
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not see the client leave
		handler(w, r, int(n.Add(1)))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", &n
}

func remote(t *testing.T, url string, o Options) *Remote {
	t.Helper()
	o.BaseURL, o.Model = url, "m"
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var hello = []models.Message{{Role: "user", Content: "a private question"}}

func TestChat(t *testing.T) {
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("%s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	})
	c, err := remote(t, url, Options{APIKey: "k"}).Chat(t.Context(), hello, models.GenerateOptions{})
	if err != nil || c.Text != "The answer is (B)." || c.Model != "m-1" || c.PromptTokens != 7 || c.NewTokens != 6 || c.FinishReason != "stop" {
		t.Errorf("%+v %v", c, err)
	}
}

func TestStream(t *testing.T) {
	chunk := func(s, finish string) string {
		return `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":{"content":"` + s + `"},"finish_reason":` + finish + `}]}` + "\n\n"
	}
	for _, c := range []struct {
		name, body, text string
		err              error
	}{
		{"whole", chunk("The answer ", "null") + chunk("is (B).", `"stop"`) + "data: [DONE]\n\n", "The answer is (B).", nil},
		{"cut", chunk("The ans", "null"), "", ErrUnavailable},
		{"broken", chunk("The", "null") + "data: {\"id\":\n\n", "", ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, c.body)
			})
			var got strings.Builder
			r, err := remote(t, url, Options{}).Chat(t.Context(), hello, models.GenerateOptions{OnToken: func(s string) { got.WriteString(s) }})
			if !errors.Is(err, c.err) || c.err == nil && (r.Text != c.text || got.String() != c.text || err != nil) {
				t.Errorf("%q, streamed %q, %v", r.Text, got.String(), err)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	status := func(code int, after int) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, _ *http.Request, n int) {
			w.Header().Set("Content-Type", "application/json")
			if n > after && after > 0 {
				fmt.Fprint(w, answer)
				return
			}
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"error":{"message":"because of %d","type":"x"}}`, code)
		}
	}
	for _, c := range []struct {
		name     string
		handler  func(http.ResponseWriter, *http.Request, int)
		o        Options
		err      error
		says     string
		requests int32
	}{
		{"429 passes", status(429, 2), Options{}, nil, "", 3},
		{"429 stays", status(429, 0), Options{}, ErrUnavailable, "429", 3},
		{"500 passes", status(500, 1), Options{}, nil, "", 2},
		{"no retries", status(500, 1), Options{Retries: -1}, ErrUnavailable, "500", 1},
		{"bad key", status(401, 0), Options{}, ErrRefused, "because of 401", 1},
		{"too long", status(400, 0), Options{}, ErrRefused, "because of 400", 1},
		{"no choices", func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"choices":[]}`)
		}, Options{}, ErrRefused, "without a choice", 1},
		{"html", func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>login</html>")
		}, Options{Retries: -1}, ErrUnavailable, "", 1},
		{"slow", func(w http.ResponseWriter, r *http.Request, _ int) {
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
			}
		}, Options{Timeout: 50 * time.Millisecond, Retries: -1}, ErrUnavailable, "within 50ms", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, n := serve(t, c.handler)
			_, err := remote(t, url, c.o).Chat(t.Context(), hello, models.GenerateOptions{})
			if !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "private")) {
				t.Errorf("error says %q, want %q and no question", err, c.says)
			}
			if n.Load() != c.requests {
				t.Errorf("%d requests, want %d", n.Load(), c.requests)
			}
		})
	}
}

func TestDownAndCancelled(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL + "/v1"
	s.Close()
	if _, err := remote(t, url, Options{Retries: -1}).Chat(t.Context(), hello, models.GenerateOptions{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a server that is down: %v", err)
	}
	url, _ = serve(t, func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := remote(t, url, Options{}).Chat(ctx, hello, models.GenerateOptions{}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnavailable) {
		t.Errorf("the caller's deadline: %v", err)
	}
}
