// Package webhook delivers events over HTTP: one POST for each event, signed by the scheme of
// Standard Webhooks. The webhook-id is the event's key ([txmanager.Event.Key]) and the body is the
// event's. A status from 200 to 299 accepts the event; after any other result it is delivered
// again.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

// Endpoint is one webhook endpoint.
type Endpoint struct {
	URL     string                                                  // https, or http to this machine; no log or error contains it
	Keys    []webhook.Key                                           // each signs; the endpoint knows one of them
	Timeout time.Duration                                           // of one event
	Client  *http.Client                                            // must not follow redirects
	Log     func(ctx context.Context, e txmanager.Event, err error) // gets errors that must not be stored; may be nil
}

// Publish implements [txmanager.DomainEventPublisher]. It begins no delivery that could miss the
// deadline, so it may accept less than all without an error.
func (r Endpoint) Publish(ctx context.Context, all []txmanager.Event) (taken int, err error) {
	for i, e := range all {
		if until, ok := ctx.Deadline(); ok && i > 0 && time.Until(until) < r.Timeout {
			return i, nil
		}
		if err := r.deliver(ctx, e); err != nil {
			return i, err
		}
	}
	return len(all), nil
}

func (r Endpoint) deliver(ctx context.Context, e txmanager.Event) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(e.Body))
	if err != nil {
		return errors.New("its URL is invalid") // the URL may contain a secret
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "fencepost")
	webhook.Sign(req.Header, e.Key(), time.Now(), e.Body, r.Keys...)
	resp, err := r.Client.Do(req)
	if err != nil {
		if r.Log != nil {
			r.Log(ctx, e, webhook.WithoutURL(err))
		}
		r.record(ctx, 0, "not reached, or not in time")
		return fmt.Errorf("not reached, or not in time: %w", txmanager.ErrNoAnswer)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // more than is kept, so that the connection can be reused
	r.record(ctx, resp.StatusCode, string(text[:min(len(text), maxAnswer)]))
	switch status := resp.StatusCode; {
	case status/100 == 2:
		return nil
	case status == http.StatusTooManyRequests, status >= 500:
		return fmt.Errorf("it answered %d: %w", status, txmanager.ErrNoAnswer)
	default:
		return fmt.Errorf("it answered %d", status)
	}
}

// maxAnswer is the number of bytes of an answer that are kept.
const maxAnswer = 300

// record gives an answer to the caller of Publish.
func (r Endpoint) record(ctx context.Context, status int, text string) {
	secrets := make([]string, len(r.Keys))
	for i, k := range r.Keys {
		secrets[i] = k.Fingerprint()
	}
	events.RecordAnswer(ctx, events.Answer{Status: status, Text: text, Secrets: secrets})
}
