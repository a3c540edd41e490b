// Package webhook delivers events over HTTP: one POST for each event, signed by the scheme of
// Standard Webhooks. The webhook-id is the event's key ([txmanager.Event.Key]) and the body is the
// event's. A status from 200 to 299 accepts the event; after any other result it is delivered
// again.
package webhook

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

// Publisher publishes to one webhook endpoint.
type Publisher struct {
	webhook.Endpoint
	Log func(ctx context.Context, e txmanager.Event, err error) // gets errors that must not be stored; may be nil
}

// Publish implements [txmanager.DomainEventPublisher]. It begins no delivery that could miss the
// deadline, so it may accept less than all without an error.
func (p Publisher) Publish(ctx context.Context, all []txmanager.Event) (taken int, err error) {
	for i, e := range all {
		if until, ok := ctx.Deadline(); ok && i > 0 && time.Until(until) < p.Timeout {
			return i, nil
		}
		if err := p.deliver(ctx, e); err != nil {
			return i, err
		}
	}
	return len(all), nil
}

func (p Publisher) deliver(ctx context.Context, e txmanager.Event) error {
	status, text, err := p.Post(ctx, e.Key(), e.Body, 64<<10) // more than is kept, so that the connection can be reused
	if err != nil && status == 0 {
		if p.Log != nil {
			p.Log(ctx, e, err)
		}
		p.record(ctx, 0, "not reached, or not in time")
		return fmt.Errorf("not reached, or not in time: %w", txmanager.ErrNoAnswer)
	}
	p.record(ctx, status, string(text[:min(len(text), maxAnswer)]))
	switch {
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
func (p Publisher) record(ctx context.Context, status int, text string) {
	secrets := make([]string, len(p.Keys))
	for i, k := range p.Keys {
		secrets[i] = k.Fingerprint()
	}
	events.RecordAnswer(ctx, events.Answer{Status: status, Text: text, Secrets: secrets})
}
