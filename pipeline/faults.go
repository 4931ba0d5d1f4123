package pipeline

import (
	"context"
	"errors"
	"net/http"
	"os"

	"rag2/models"
	"rag2/models/registry"
	"rag2/pipeline/home"
	"rag2/pipeline/llm"
	"rag2/tensor"
)

// Fault is a kind of error with its exit code and HTTP status.
type Fault struct {
	Kind string
	Exit int // 1 failed, 2 called wrongly
	HTTP int
}

var faults = []struct {
	err error
	f   Fault
}{
	{ErrQuestion, Fault{"bad question", 2, http.StatusBadRequest}},
	{ErrOptions, Fault{"bad settings", 2, http.StatusBadRequest}},
	{home.ErrNoCorpus, Fault{"no such corpus", 1, http.StatusNotFound}},
	{home.ErrNoIndex, Fault{"no index", 1, http.StatusConflict}},
	{home.ErrBusy, Fault{"corpus is busy", 1, http.StatusConflict}},
	{home.ErrStale, Fault{"stale index", 1, http.StatusConflict}},
	{ErrNotConfigured, Fault{"not configured", 1, http.StatusConflict}},
	{registry.ErrUnknown, Fault{"no such model", 1, http.StatusNotFound}},
	{registry.ErrMissing, Fault{"model missing", 1, http.StatusConflict}},
	{models.ErrContext, Fault{"prompt too long", 1, http.StatusRequestEntityTooLarge}},
	{llm.ErrNoScores, Fault{"language model cannot score", 1, http.StatusConflict}},
	{llm.ErrUnavailable, Fault{"language model unavailable", 1, http.StatusBadGateway}},
	{llm.ErrRefused, Fault{"language model refused", 1, http.StatusBadGateway}},
	{tensor.ErrUnavailable, Fault{"no engine", 1, http.StatusServiceUnavailable}},
	{os.ErrNotExist, Fault{"file not found", 1, http.StatusNotFound}},
	{context.Canceled, Fault{"cancelled", 1, 499}},
	{context.DeadlineExceeded, Fault{"timeout", 1, http.StatusGatewayTimeout}},
}

// FaultOf classifies an error; what is not in the table is "failed", 1, 500.
func FaultOf(err error) Fault {
	for _, x := range faults {
		if errors.Is(err, x.err) {
			return x.f
		}
	}
	return Fault{"failed", 1, http.StatusInternalServerError}
}
