package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ErrLate reports that there was no answer before the end of the request's time, or of its context.
var ErrLate = errors.New("no answer in time")

// Endpoint is a service that gets signed requests.
type Endpoint struct {
	URL     string        // https, or http to this machine; no log or error contains it
	Keys    []Key         // each signs; the service knows one of them
	Timeout time.Duration // of one request
	Client  *http.Client  // see [NewClient]
	Accept  string        // the media type of an answer; "": any
}

// NewClient returns the client for calls of services. It follows no redirect, which could lead to an
// address that was not allowed, and uses no proxy from the environment. It keeps connections; the
// caller closes the idle ones.
func NewClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Post sends the JSON body in a signed request. It returns the status of the answer and its first bytes, at most limit.
// Without an answer the status is 0. The error wraps [ErrLate] if the time was up.
func (e Endpoint) Post(ctx context.Context, id string, body []byte, limit int64) (status int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return 0, nil, errors.New("its URL is invalid") // the URL may contain a secret
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "fencepost")
	if e.Accept != "" {
		r.Header.Set("Accept", e.Accept)
	}
	Sign(r.Header, id, time.Now(), body, e.Keys...)
	resp, err := e.Client.Do(r)
	if err == nil {
		defer resp.Body.Close()
		status = resp.StatusCode
		text, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	}
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err // without the URL
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrLate, ctx.Err())
	}
	return status, text, err
}
