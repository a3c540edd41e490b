// Package client is the client under the load generators of a run: its requests with their
// answers, and the record of what the answers said.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Answer is the result of one request about an intent or a transfer.
type Answer struct {
	Status     int       `json:"-"` // 0: no answer came, or it was cut off
	Err        error     `json:"-"` // why not
	Text       []byte    `json:"-"`
	Begun      time.Time `json:"-"` // when the request began
	Generation int       `json:"-"` // of the database at that time

	State string
	Code  string // of a problem

	TxID, SubState, Outcome string // of an intent

	ReqID  string `json:"req_id"` // of a transfer, with the next ones
	Reason transfer.Reason
	Asset  string
	Amount string

	Result string // of a check of conservation
}

// IsUnclear reports whether the client cannot know the effect of the request.
func (a Answer) IsUnclear() bool { return a.Status == 0 || a.Status >= 500 }

// String returns the status and the text, or why there is none.
func (a Answer) String() string {
	if a.Err != nil {
		return fmt.Sprintf("no answer: %v", a.Err)
	}
	return fmt.Sprintf("%d %s", a.Status, bytes.TrimSpace(a.Text))
}

// Client makes requests as one account or user. Several goroutines can use it.
type Client struct {
	Call       func(ctx context.Context, method, path string, body any) (status int, text []byte, err error)
	Generation func() int // of the database now

	timeout retry.Timeout
}

// NewClient returns a client of the deployment, for an account. The function generation is that of
// the ledger which records the answers.
func NewClient(s *stack.Stack, account string, generation func() int) Client {
	return Client{Generation: generation, Call: func(ctx context.Context, method, path string, body any) (int, []byte, error) {
		return s.Call(ctx, account, method, path, body)
	}}
}

// Ask makes one request. The limit for its answer grows with answers that are late.
func (c *Client) Ask(ctx context.Context, method, path string, body any) Answer {
	ctx, done := c.timeout.Context(ctx)
	defer done()
	return c.AskOnce(ctx, method, path, body)
}

// AskOnce makes one request, which only ctx ends.
func (c *Client) AskOnce(ctx context.Context, method, path string, body any) (a Answer) {
	begun, generation := time.Now(), c.Generation()
	status, text, err := c.Call(ctx, method, path, body)
	if err == nil && status != http.StatusNoContent {
		if err = json.Unmarshal(text, &a); err != nil {
			err = fmt.Errorf("%d %s: %w", status, bytes.TrimSpace(text), err)
		}
	}
	if err != nil {
		return Answer{Err: err, Begun: begun, Generation: generation}
	}
	a.Status, a.Text, a.Begun, a.Generation = status, text, begun, generation
	return a
}

// Insist repeats the request until the answer is clear.
func (c *Client) Insist(ctx context.Context, method, path string, body any) Answer {
	return retry.Until(ctx, func() Answer { return c.Ask(ctx, method, path, body) }, func(a Answer) bool { return !a.IsUnclear() })
}

// Read asks for a view, and reports whether it got one.
func (c *Client) Read(ctx context.Context, path string, view any) (a Answer, ok bool) {
	a = c.Ask(ctx, http.MethodGet, path, nil)
	return a, a.Status == http.StatusOK && json.Unmarshal(a.Text, view) == nil
}

// Replaced reports whether a restore happened since the generation given. The answer to a request
// that spans a restore proves nothing about either database.
func (c *Client) Replaced(since int) bool { return c.Generation() != since }

// Concurrently calls do n times at once, and returns when all calls have ended.
func Concurrently(n int, do func()) {
	var calls sync.WaitGroup
	for range n {
		calls.Go(do)
	}
	calls.Wait()
}

// Each calls do for each element, eight at a time.
func Each[T any](all []T, do func(T)) {
	slots := make(chan struct{}, 8)
	var working sync.WaitGroup
	for _, x := range all {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			do(x)
		})
	}
	working.Wait()
}
