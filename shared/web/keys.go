package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const maxKeysBytes = 1 << 20

type keysErrKey struct{}

// noticingKeys reports, through the *error in the context, that a token could not be evaluated because
// the keys could not be fetched. go-oidc v3.21.0 returns the same kind of error as for a wrong
// signature.
type noticingKeys struct{ *oidc.RemoteKeySet }

// VerifySignature is the remote key set's. It wraps only the error of a fetch.
func (k noticingKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.RemoteKeySet.VerifySignature(ctx, jwt)
	if fetch := errors.Unwrap(err); fetch != nil {
		*ctx.Value(keysErrKey{}).(*error) = fmt.Errorf("fetch the issuer's keys: %w", fetch)
	}
	return payload, err
}

// keysTransport fetches a key set, and for a while after a success answers from its cache.
type keysTransport struct {
	base    http.RoundTripper
	refresh time.Duration
	fetched func(jwks []byte) // called with each key set before it is returned

	mu   sync.Mutex
	last []byte
	at   time.Time // when it was fetched
}

func newKeysClient(refresh time.Duration, fetched func(jwks []byte)) *http.Client {
	return &http.Client{
		Timeout: verifyDeadline,
		// Fetches are rare: no connection is kept between them.
		Transport: &keysTransport{refresh: refresh, fetched: fetched, base: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		}},
	}
}

// RoundTrip answers from the cache if the last success is recent. go-oidc makes one fetch at a time, so
// holding the lock during it delays no other request.
func (t *keysTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || time.Since(t.at) >= t.refresh {
		resp, err := t.base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %s", r.URL, resp.Status)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeysBytes))
		if err != nil {
			return nil, fmt.Errorf("GET %s: %w", r.URL, err)
		}
		t.last, t.at = body, time.Now()
		t.fetched(body)
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(t.last)), ContentLength: int64(len(t.last)),
	}, nil
}
