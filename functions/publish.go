package functions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/events/pubsub"
	eventhook "github.com/fencepost/fencepost/shared/events/webhook"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// topicReceiver is the name of the only receiver in the mode mq_outbox.
const topicReceiver = "pubsub"

// openEvents makes the publishers of the mode. Every process knows the endpoints' names. Only a
// process that delivers needs their secrets.
func (a *App) openEvents() (err error) {
	c := a.config.Events
	publishers := make(map[string]txmanager.DomainEventPublisher)
	switch c.Mode {
	case config.EventsOutbox:
		a.receivers = []string{topicReceiver}
		a.topic = pubsub.New(c.Topic, c.PubSubEndpoint)
		publishers[topicReceiver] = a.topic
	case config.EventsWebhook:
		a.receivers = slices.Sorted(maps.Keys(c.URLs))
		if publishers, err = a.webhooks(c); err != nil {
			return err
		}
	}
	a.Events.Endpoints, a.Events.Tasks = a.receivers, a.tasks
	a.deliverySlots = newDeliverySlots(a.receivers)
	a.teller = &events.Worker{
		Book: a.store, Receivers: a.receivers, Publishers: publishers, Wake: a.tasks, Rules: leaseRules(a.config.Lease),
		EndAfter: a.Deadline / 2, Node: a.Node, Log: a.Log, Told: countDelivered, At: a.Points.At,
	}
	return nil
}

// webhooks returns the publishers of events.webhook.urls, if this process delivers events.
func (a *App) webhooks(c config.Events) (map[string]txmanager.DomainEventPublisher, error) {
	all := make(map[string]txmanager.DomainEventPublisher)
	for name, url := range c.URLs {
		keys, err := keysOf(c.Secrets[name])
		switch {
		case err != nil:
			return nil, fmt.Errorf("events.webhook.secrets of %s: %w", name, err)
		case len(keys) == 0 && a.publishes():
			return nil, fmt.Errorf("receiver %s of events.webhook.urls has no secret in events.webhook.secrets: it could not prove what it is told", name)
		case len(keys) == 0:
			continue
		}
		var p txmanager.DomainEventPublisher = eventhook.Receiver{URL: url, Keys: keys, Timeout: c.Timeout, Client: a.services,
			Log: func(ctx context.Context, e txmanager.Event, err error) {
				a.Log.WarnContext(ctx, "receiver not reached", "receiver", name, telemetry.TxIDKey, e.TxID, "error", err.Error())
			}}
		if callers := c.Callers[name]; len(callers) > 0 {
			p = events.OnlyOf(spellings(callers), p)
		}
		all[name] = p
	}
	return all, nil
}

// publishes reports whether this process delivers events.
func (a *App) publishes() bool {
	target := a.config.Platform.FunctionTarget
	return target == "" || target == All || target == "publish"
}

func (a *App) routePublish(mux *web.Mux) {
	a.HandleInternal(mux, "publish", "publish", a.publish)
}

type publishRequest struct {
	Submitter string `json:"submitter"`
	Receiver  string `json:"receiver"`
}

const (
	// totalSlots is the number of delivery queues that one process serves at once, over all endpoints.
	// It is this process's share of the 50 concurrent tasks of the queue publish, with five instances.
	totalSlots = 10
	// slotTimeout is how long a task waits for a delivery slot. Tasks of a slow endpoint must not fill
	// the queue by waiting.
	slotTimeout = 200 * time.Millisecond
)

// deliverySlots bounds each endpoint's share of a process, so that a slow endpoint uses no other's
// share.
type deliverySlots map[string]chan struct{}

func newDeliverySlots(receivers []string) deliverySlots {
	all := make(deliverySlots)
	if len(receivers) < 2 { // a single endpoint takes no other's share
		return all
	}
	for _, name := range receivers {
		all[name] = make(chan struct{}, max(1, totalSlots/len(receivers)))
	}
	return all
}

// acquire takes one of the endpoint's slots; the caller must call release. A single or unknown
// endpoint needs no slot.
func (t deliverySlots) acquire(ctx context.Context, receiver string) (release func(), ok bool) {
	turn, known := t[receiver]
	if !known {
		return func() {}, true
	}
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, true
	case <-ctx.Done():
		return nil, false
	}
}

// publish delivers one submitter's events to one endpoint. It answers 204 when its task has done its
// part, even if the endpoint accepted nothing: another task or the sweep then tries again. Any other
// answer makes Cloud Tasks retry the task.
func (a *App) publish(w http.ResponseWriter, r *http.Request) error {
	body, err := web.Decode[publishRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	s, err := a.Submitter("submitter", body.Submitter)
	if err != nil {
		return err
	}
	if body.Receiver == "" {
		return web.FieldProblem("receiver", "is required: who is to be told")
	}
	a.Log.DebugContext(r.Context(), "task", telemetry.SubmitterKey, s, "receiver", body.Receiver, "function", "publish",
		"task", r.Header.Get("X-CloudTasks-TaskName"), "retry", r.Header.Get("X-CloudTasks-TaskRetryCount"))
	release, ok := a.deliverySlots.acquire(r.Context(), body.Receiver)
	if !ok {
		a.Log.DebugContext(r.Context(), "receiver has all its turns: the sweep comes back", telemetry.SubmitterKey, s, "receiver", body.Receiver)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), a.Deadline-time.Second)
	defer cancel()
	if err := a.teller.Serve(ctx, events.Stream{Submitter: s, Receiver: body.Receiver}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxDeletedEvents is the most old events that one sweep deletes in one commit.
const maxDeletedEvents = 5000

// sweepEvents finds events whose tasks were lost, and deletes old ones.
func (a *App) sweepEvents(ctx context.Context, out *sweepResponse) error {
	if len(a.receivers) == 0 {
		return nil
	}
	failures := []error{a.store.NumberEvents(ctx, a.receivers)}
	found, began, err := a.store.OverdueStreams(ctx, a.receivers, a.config.Sweep.Grace, a.config.Sweep.Batch)
	out.Events = len(found)
	var enqueued atomic.Int64
	failed, first := serve.MakeTasks(ctx, found, func(s events.Stream) error {
		made, err := a.tasks.SweepPublish(ctx, s, began)
		if made {
			enqueued.Add(1)
		}
		return err
	})
	out.Enqueued += int(enqueued.Load())
	failures = append(failures, err)
	if failed > 0 {
		failures = append(failures, fmt.Errorf("no publish task for %d of %d streams: %w", failed, len(found), first))
	}
	for ctx.Err() == nil {
		n, err := a.store.ForgetEvents(ctx, a.config.Events.Keep, maxDeletedEvents)
		failures = append(failures, err)
		if err != nil || n < maxDeletedEvents {
			break
		}
	}
	return errors.Join(failures...)
}
