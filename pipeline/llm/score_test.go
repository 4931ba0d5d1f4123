package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"rag2/models"
)

// server answers as a recorded server does: prompts are tokenised by bytes, and token i
// of a prompt has log-probability -i/10.
type server struct {
	tokenize string // "vllm", "llama.cpp", ""
	shape    string // "vllm", "echo", "content", "no logprobs", "no echo", "null", ""
	zero     bool   // max_tokens 0 is taken
	requests atomic.Int32
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	fail := func(code int, msg string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"error":{"message":%q,"code":%d}}`, msg, code)
	}
	text := func(v any) string {
		m := v.([]any)[0].(map[string]any)
		return "<" + m["content"].(string) + ">"
	}
	ids := func(s string) string {
		var out []string
		for i := range len(s) {
			out = append(out, fmt.Sprint(s[i]))
		}
		return `{"count":1,"tokens":[` + strings.Join(out, ",") + `]}`
	}
	switch r.URL.Path {
	case "/tokenize":
		switch {
		case s.tokenize == "vllm" && in["messages"] != nil:
			fmt.Fprint(w, ids(text(in["messages"])))
		case s.tokenize == "vllm" && in["prompt"] != nil && in["add_special_tokens"] == false:
			fmt.Fprint(w, ids(in["prompt"].(string)))
		case s.tokenize == "llama.cpp" && in["content"] != nil:
			fmt.Fprint(w, ids(in["content"].(string)))
		case s.tokenize == "llama.cpp":
			fmt.Fprint(w, `{"tokens":[]}`)
		default:
			fail(404, "Not Found")
		}
	case "/apply-template":
		if s.tokenize != "llama.cpp" {
			fail(404, "Not Found")
			return
		}
		fmt.Fprintf(w, `{"prompt":%q}`, text(in["messages"]))
	case "/v1/completions":
		if in["max_tokens"].(float64) == 0 && !s.zero {
			fail(400, "max_tokens must be at least 1, got 0.")
			return
		}
		sent := in["prompt"].([]any)
		n := len(sent)
		more := int(in["max_tokens"].(float64))
		var ts, lps, content, prompt []string
		for i := range n + more {
			lp := fmt.Sprintf("%.1f", -float64(i)/10)
			id := 0
			if i < n {
				id = int(sent[i].(float64))
			}
			entry := fmt.Sprintf(`{"%d":{"logprob":%s,"rank":2,"decoded_token":"t"},"7":{"logprob":-0.01,"rank":1,"decoded_token":"u"}}`, id, lp)
			switch s.shape {
			case "vllm, likelier first":
				entry = fmt.Sprintf(`{"7":{"logprob":-0.01,"rank":1,"decoded_token":"u"},"%d":{"logprob":%s,"rank":2,"decoded_token":"t"}}`, id, lp)
			case "vllm, others only":
				entry = `{"7":{"logprob":-0.01,"rank":1,"decoded_token":"u"}}`
			}
			if i == 0 || s.shape == "null" {
				lp, entry = "null", "null"
			}
			ts, lps = append(ts, `"t"`), append(lps, lp)
			content = append(content, `{"token":"t","logprob":`+lp+`,"bytes":[116]}`)
			if i < n {
				prompt = append(prompt, entry)
			}
		}
		usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d}`, n, more)
		join := func(x []string) string { return strings.Join(x, ",") }
		switch {
		case strings.HasPrefix(s.shape, "vllm") && in["prompt_logprobs"] != nil:
			fmt.Fprintf(w, `{"choices":[{"text":"x","logprobs":null,"prompt_logprobs":[%s]}],%s}`, join(prompt), usage)
		case (s.shape == "echo" || s.shape == "null") && in["echo"] == true:
			fmt.Fprintf(w, `{"choices":[{"text":"x","logprobs":{"tokens":[%s],"token_logprobs":[%s],"top_logprobs":[],"text_offset":[]}}],%s}`, join(ts), join(lps), usage)
		case s.shape == "content" && in["echo"] == true:
			fmt.Fprintf(w, `{"choices":[{"text":"x","logprobs":{"content":[%s]}}],%s}`, join(content), usage)
		case s.shape == "no echo":
			fmt.Fprintf(w, `{"choices":[{"text":"x","logprobs":{"tokens":["x"],"token_logprobs":[-0.5]}}],%s}`, usage)
		case s.shape == "":
			fail(501, "not implemented")
		default:
			fmt.Fprintf(w, `{"choices":[{"text":"x","logprobs":null}],%s}`, usage)
		}
	default:
		fail(404, "Not Found")
	}
}

func TestScoreShapes(t *testing.T) {
	for _, c := range []struct {
		name string
		s    *server
		says string // of the refusal; "" = scores
	}{
		{"vllm prompt_logprobs", &server{tokenize: "vllm", shape: "vllm"}, ""},
		{"vllm, another token first", &server{tokenize: "vllm", shape: "vllm, likelier first"}, ""},
		{"vllm, the prompt's token is missing", &server{tokenize: "vllm", shape: "vllm, others only"}, "not the prompt's own"},
		{"vllm echo, 0 rejected", &server{tokenize: "vllm", shape: "echo"}, ""},
		{"echo, 0 taken", &server{tokenize: "vllm", shape: "echo", zero: true}, ""},
		{"llama.cpp echo", &server{tokenize: "llama.cpp", shape: "echo"}, ""},
		{"llama.cpp chat shape", &server{tokenize: "llama.cpp", shape: "content"}, ""},
		{"no ids", &server{shape: "echo"}, "no ids of a chat prompt"},
		{"no log-probabilities", &server{tokenize: "vllm", shape: "no logprobs"}, "no log-probabilities"},
		{"no echo", &server{tokenize: "vllm", shape: "no echo"}, "not echoed"},
		{"nulls", &server{tokenize: "vllm", shape: "null"}, "has no log-probability"},
		{"no completions", &server{tokenize: "llama.cpp"}, "501"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := httptest.NewServer(c.s)
			defer h.Close()
			r := remote(t, h.URL+"/v1", Options{Retries: -1})
			ids, lp, err := r.ScoreContinuation(t.Context(), hello, "abc")
			if c.says != "" {
				if !errors.Is(err, ErrNoScores) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "private") {
					t.Fatalf("%v", err)
				}
				n := c.s.requests.Load()
				if r.ProbeScores(t.Context()) == nil || c.s.requests.Load() != n {
					t.Error("probed again")
				}
				return
			}
			from := float64(len(hello[0].Content) + 2)
			want := []float64{-from / 10, -(from + 1) / 10, -(from + 2) / 10}
			close := func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
			if err != nil || !slices.Equal(ids, []int{'a', 'b', 'c'}) || !slices.EqualFunc(lp, want, close) {
				t.Errorf("%v %v %v", ids, lp, err)
			}
		})
	}
	h := httptest.NewServer(&server{tokenize: "vllm", shape: "vllm"})
	defer h.Close()
	if _, _, err := remote(t, h.URL+"/v1", Options{Context: 10}).ScoreContinuation(t.Context(), hello, "abc"); !errors.Is(err, models.ErrContext) {
		t.Errorf("%v", err)
	}
	h.Close()
	if _, _, err := remote(t, h.URL+"/v1", Options{Retries: -1}).ScoreContinuation(t.Context(), hello, "abc"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
