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

// ProblemError is a response of the core without an answer. None of its codes means that an
// operation was refused.
type ProblemError struct {
	Status int
	Code   string // as in wire and web; empty if the response had none
}

func (e *ProblemError) Error() string {
	return fmt.Sprintf("the core answered with status %d, code %.64q", e.Status, e.Code)
}

// call makes one request within the ledger's time-out and decodes a T strictly. The error is a
// [*ProblemError] for every status but 200.
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
	r.Header["Idempotency-Key"] = nil // a reqId is idempotent: net/http may then repeat the request on a dead connection, and sends no header
	resp, err := l.client.Do(r)
	if err != nil {
		return answer, err
	}
	defer func() {
		_, _ = io.CopyN(io.Discard, resp.Body, maxRest) // so that the connection can be reused
		_ = resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		return answer, problemOf(resp)
	}
	// An answer is read as strictly as a request.
	return web.Decode[T](nil, &http.Request{Header: resp.Header, Body: resp.Body}, wire.MaxAnswer)
}

// Limits of reading beyond answers.
const (
	maxProblem = 16 << 10
	maxRest    = 4 << 10
)

func problemOf(resp *http.Response) error {
	var p struct {
		Code string `json:"code"`
	}
	content, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	_ = json.Unmarshal(content, &p) // its content only changes the error's text
	return &ProblemError{Status: resp.StatusCode, Code: p.Code}
}
