// Package webhook sends signed requests to other services, and verifies such requests, by the scheme of
// Standard Webhooks
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
// That is HMAC-SHA256 over the id, the time and the body. The headers are webhook-id,
// webhook-timestamp and webhook-signature. Any library of that scheme can verify them.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request.
const (
	HeaderID        = "webhook-id"        // the same at each attempt
	HeaderTimestamp = "webhook-timestamp" // seconds since 1970, of this attempt
	HeaderSignature = "webhook-signature" // one signature for each key, separated by spaces
)

// Tolerance is the largest difference between a request's time and the receiver's clock.
const Tolerance = 5 * time.Minute

// secretPrefix begins a secret's written form.
const secretPrefix = "whsec_"

// Key is the shared secret of a sender and a receiver. Printing it never shows the secret.
type Key struct{ bytes []byte }

// ErrNotKey reports a text that is not a secret of the scheme. It never contains the text.
var ErrNotKey = errors.New("want whsec_ and the base64 of 24 to 64 random bytes")

// ParseKey reads a secret in its written form: "whsec_" and the base64 of 24 to 64
// bytes. The error is [ErrNotKey].
func ParseKey(text string) (Key, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(secret) < 24 || len(secret) > 64 {
		return Key{}, ErrNotKey
	}
	return Key{secret}, nil
}

func (Key) String() string { return "[redacted]" }

// GoString returns "[redacted]", which %#v prints.
func (Key) GoString() string { return "[redacted]" }

// Fingerprint identifies the secret without showing it: the first eight bytes of a SHA-256 in hex.
func (k Key) Fingerprint() string {
	sum := sha256.Sum256(append([]byte("fencepost webhook secret "), k.bytes...))
	return hex.EncodeToString(sum[:8])
}

// signature returns the signature of one key, with the scheme's version.
func (k Key) signature(id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, k.bytes)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Sign sets the three headers for a request with that body: one signature for each key, so that a
// receiver can change from one key to the next.
func Sign(h http.Header, id string, at time.Time, body []byte, keys ...Key) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, k := range keys {
		signatures[i] = k.signature(id, timestamp, body)
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, timestamp)
	h.Set(HeaderSignature, strings.Join(signatures, " "))
}

// ErrNotSigned reports a request without a valid signature of a known key, or with a time outside
// [Tolerance].
var ErrNotSigned = errors.New("not signed by a known key for this time")

// Verify checks a request that was received at that time. It must have an id, a time within
// [Tolerance], and a signature by one of the keys over both and the body. Verify returns the id;
// the error wraps [ErrNotSigned].
func Verify(h http.Header, at time.Time, body []byte, keys ...Key) (id string, err error) {
	id, timestamp := h.Get(HeaderID), h.Get(HeaderTimestamp)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	switch {
	case id == "":
		return "", fmt.Errorf("no %s: %w", HeaderID, ErrNotSigned)
	case err != nil:
		return "", fmt.Errorf("no %s in seconds: %w", HeaderTimestamp, ErrNotSigned)
	case at.Sub(time.Unix(seconds, 0)).Abs() > Tolerance:
		return "", fmt.Errorf("its time is not within %s of ours: %w", Tolerance, ErrNotSigned)
	}
	given := strings.Fields(h.Get(HeaderSignature))
	for _, k := range keys {
		want := []byte(k.signature(id, timestamp, body))
		if slices.ContainsFunc(given, func(s string) bool { return hmac.Equal([]byte(s), want) }) {
			return id, nil
		}
	}
	return "", fmt.Errorf("no signature of a known key: %w", ErrNotSigned)
}

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
