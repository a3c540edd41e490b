package trading

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/web"
)

// ProblemError is what the core said instead of an answer. None of its codes says
// that an operation was refused.
type ProblemError struct {
	Status int
	Code   string // as in wire and web; empty where the answer had none
}

// Error is both.
func (e *ProblemError) Error() string {
	return fmt.Sprintf("the core answered with status %d, code %.64q", e.Status, e.Code)
}

// call asks once, within the ledger's time-out, and decodes a T strictly. The
// error is a [*ProblemError] for everything that the core says but status 200.
func call[T any](ctx context.Context, l *Ledger, method, path string, body any) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var content []byte
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return answer, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, l.url+path, bytes.NewReader(content))
	if err != nil {
		return answer, err
	}
	r.Header.Set("Authorization", "Bearer "+l.secret)
	r.Header.Set("Content-Type", "application/json")
	r.Header["Idempotency-Key"] = nil // it is by reqId: net/http may ask again where a kept connection was dead, and sends no header
	resp, err := l.client.Do(r)
	if err != nil {
		return answer, err
	}
	defer func() {
		_, _ = io.CopyN(io.Discard, resp.Body, maxRest) // so that the connection can be used again
		_ = resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		return answer, problemOf(resp)
	}
	// An answer is read as strictly as a request.
	return web.Decode[T](nil, &http.Request{Header: resp.Header, Body: resp.Body}, wire.MaxAnswer)
}

// Bounds of what is read beside answers.
const (
	maxProblem = 16 << 10
	maxRest    = 4 << 10
)

func problemOf(resp *http.Response) error {
	var p struct {
		Code string `json:"code"`
	}
	content, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	_ = json.Unmarshal(content, &p) // what it says changes nothing but the error's text
	return &ProblemError{Status: resp.StatusCode, Code: p.Code}
}
