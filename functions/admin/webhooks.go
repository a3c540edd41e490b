package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/store"
	eventlog "github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// Webhooks is what the operators' calls about the endpoints of events use.
type Webhooks struct {
	Log      *eventlog.Log
	Settings config.Events
}

// pathEndpoint returns the endpoint in the path. Only the settings add endpoints.
func (a *Server) pathEndpoint(r *http.Request) (string, error) {
	name := r.PathValue("endpoint")
	if !slices.Contains(a.Endpoints, name) {
		return "", web.NewProblem(web.NotFound, "the settings name no endpoint %.64q: GET /admin/v1/webhook-endpoints lists them", name)
	}
	return name, nil
}

// listEndpoints lists the endpoints of events with the state of their deliveries.
func (a *Server) listEndpoints(r *http.Request) (map[string]any, error) {
	if _, err := serve.Parameters(r); err != nil {
		return nil, err
	}
	all := make([]client.WebhookEndpoint, len(a.Endpoints))
	for i, name := range a.Endpoints {
		var err error
		if all[i], err = a.viewEndpoint(r.Context(), name); err != nil {
			return nil, err
		}
	}
	return map[string]any{"endpoints": all}, nil
}

func (a *Server) viewEndpoint(ctx context.Context, name string) (client.WebhookEndpoint, error) {
	e, err := a.Webhooks.Log.Endpoint(ctx, name)
	if err != nil {
		return client.WebhookEndpoint{}, err
	}
	v := client.WebhookEndpoint{
		Name: name, Kind: "publisher", Callers: a.Webhooks.Settings.Callers[name], UnansweredCalls: e.Unanswered,
		Backlog: client.EndpointBacklog{
			Events: min(e.Events, eventlog.MaxBacklog), Submitters: min(e.Submitters, eventlog.MaxBacklog), More: max(e.Events, e.Submitters) > eventlog.MaxBacklog,
		},
	}
	address, isWebhook := a.Webhooks.Settings.URLs[name]
	switch {
	case isWebhook:
		v.Kind = "webhook"
		v.Host, v.Path = shownAddress(address)
	case a.Webhooks.Settings.Mode == config.EventsOutbox && name == PubSubEndpoint:
		v.Kind = "pubsub"
	}
	if o := e.Oldest; o != nil {
		v.Oldest = &client.EndpointOldest{
			Submitter: string(o.Submitter), Since: o.Since.UTC(), Attempts: o.Attempts, LastError: o.LastError, NextAttemptAt: o.NextAttemptAt.UTC(),
		}
	}
	if e.PausedAt != nil {
		v.Paused = &client.EndpointPause{Since: e.PausedAt.UTC(), By: *e.PausedBy, Reason: *e.PauseReason}
	}
	if e.Secrets != nil {
		v.Secrets = &client.EndpointSecrets{Count: len(e.Secrets), Fingerprints: e.Secrets}
	}
	v.LastAnswer = viewAnswer(e.Status, e.Answer, e.AnsweredAt)
	if t := e.LastTest; t != nil {
		v.LastTest = viewTest(*t)
	}
	return v, nil
}

// PubSubEndpoint is the name of the only endpoint in the mode mq_outbox.
const PubSubEndpoint = "pubsub"

func viewAnswer(status *int, text *string, at *time.Time) *client.EndpointAnswer {
	if at == nil {
		return nil
	}
	v := &client.EndpointAnswer{Status: status, At: at.UTC()}
	if text != nil {
		v.Text = *text
	}
	return v
}

func viewTest(t eventlog.Test) *client.EndpointTest {
	return &client.EndpointTest{By: t.By, At: t.At.UTC(), Answer: viewAnswer(t.Status, t.Answer, t.AnsweredAt)}
}

// longestShown is the longest part of a path that is shown whole.
const longestShown = 12

// shownAddress returns the host and the path of a webhook's URL without its credentials: a user, a query, and the
// rest of each long part of the path.
func shownAddress(address string) (host, path string) {
	u, err := url.Parse(address)
	if err != nil {
		return "", ""
	}
	parts := strings.Split(u.Path, "/")
	for i, part := range parts {
		if runes := []rune(part); len(runes) > longestShown {
			parts[i] = string(runes[:4]) + "…"
		}
	}
	return u.Host, strings.Join(parts, "/")
}

const (
	testMargin = 10 * time.Second       // for the task, beyond the time-out of the delivery
	testPoll   = 100 * time.Millisecond // between two looks at the answer
)

// testEndpoint sends a signed test event to a webhook endpoint, and answers what the receiver answered. The function
// publish sends it, since it alone has the secrets.
func (a *Server) testEndpoint(w http.ResponseWriter, r *http.Request, c call[string, reasonRequest]) error {
	if a.Webhooks.Settings.URLs[c.on] == "" {
		return web.FieldProblem("endpoint", "is %q, which is no webhook: only an endpoint of events.webhook.urls can be tested", c.on)
	}
	test, err := a.Webhooks.Log.RequestTest(r.Context(), c.on, c.by, c.reason)
	if err != nil {
		return err
	}
	a.Log.InfoContext(r.Context(), "a webhook endpoint is tested", "endpoint", c.on, "operator", c.by, "reason", c.reason)
	if err := a.Tasks.PublishTest(r.Context(), c.on, test); err != nil {
		return web.UnavailableBecause(err, "no task could be made for the function publish, which sends the test; nothing was sent: try again")
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.Webhooks.Settings.Timeout+testMargin)
	defer cancel()
	for {
		t, err := a.Webhooks.Log.Test(ctx, test)
		if err == nil && t.AnsweredAt != nil {
			return web.Reply(w, r, http.StatusOK, client.TestResult{Accepted: t.Status != nil && *t.Status/100 == 2, EndpointTest: *viewTest(t)})
		}
		select {
		case <-time.After(testPoll):
		case <-ctx.Done():
			return web.UnavailableBecause(errors.Join(ctx.Err(), err),
				"the function publish has not sent the test yet; it may still do so: see lastTest in GET /admin/v1/webhook-endpoints")
		}
	}
}

type redeliverRequest struct {
	reasonRequest
	After     string          `json:"after"`     // a cursor of GET /api/v1/events
	Submitter *serve.Optional `json:"submitter"` // only of this one; nil: of all
}

// maxKicked is the most delivery queues that an act enqueues at once. The sweep finds the rest.
const maxKicked = 100

// redeliver delivers an endpoint the events after a cursor again. Receivers drop what they have, by webhook-id.
func (a *Server) redeliver(w http.ResponseWriter, r *http.Request, c call[string, redeliverRequest]) error {
	n, ok := serve.Digits(c.body.After)
	if !ok {
		return web.FieldProblem("after", "is %.40q: want a cursor of GET /api/v1/events; the events after it are delivered again", c.body.After)
	}
	order := eventlog.Redelivery{Endpoint: c.on, After: uint64(n), By: c.by, Reason: c.reason}
	whose := "all submitters"
	if c.body.Submitter != nil {
		name, err := c.body.Submitter.Of("submitter")
		if err != nil {
			return err
		}
		if order.Submitter, err = a.Submitter("submitter", name); err != nil {
			return err
		}
		whose = string(order.Submitter)
	}
	if mustPropose(r) {
		return a.propose(w, r, proposed{"webhook", map[string]any{"endpoint": c.on}, c.reason, fmt.Sprintf("delivers the events of %s after %d to %s again", whose, n, c.on)})
	}
	of, err := a.Webhooks.Log.Redeliver(r.Context(), order)
	if err := cursorProblem(err); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "events are delivered again", "endpoint", c.on, "after", n, "submitters", len(of), "operator", c.by, "reason", c.reason)
	a.kick(r.Context(), c.on, of[:min(len(of), maxKicked)])
	return web.Reply(w, r, http.StatusOK, client.Redelivery{Endpoint: c.on, After: c.body.After, Submitters: len(of)})
}

// cursorProblem is what an operator sees of an error of a redelivery.
func cursorProblem(err error) error {
	var forgotten eventlog.EventsDeletedError
	switch {
	case errors.Is(err, store.ErrCursor):
		return web.FieldProblem("after", "is no position of an event: give a cursor of GET /api/v1/events")
	case errors.As(err, &forgotten):
		return web.FieldProblem("after", "is too old: the events after it were deleted (events.keep); give %d or more", forgotten.Oldest)
	}
	return err
}

// kick enqueues the delivery of events. The sweep enqueues what fails.
func (a *Server) kick(ctx context.Context, endpoint string, of []txmanager.Submitter) {
	now := time.Now()
	failed, first := serve.MakeTasks(ctx, of, func(s txmanager.Submitter) error {
		return a.Tasks.Publish(ctx, events.DeliveryQueue{Submitter: s, Endpoint: endpoint}, now)
	})
	if failed > 0 {
		a.Log.WarnContext(ctx, "no publish tasks: the sweep will find the events", "endpoint", endpoint, "deliveryQueues", failed, "error", first.Error())
	}
}

// pauseEndpoint stops the deliveries to an endpoint. Its events are kept, also beyond events.keep.
func (a *Server) pauseEndpoint(w http.ResponseWriter, r *http.Request, c call[string, reasonRequest]) error {
	changed, err := a.Webhooks.Log.Pause(r.Context(), c.on, c.by, c.reason)
	if err != nil {
		return err
	}
	if changed {
		a.Log.WarnContext(r.Context(), "deliveries paused", "endpoint", c.on, "operator", c.by, "reason", c.reason)
	}
	return serve.Reply(w, r)(a.viewEndpoint(r.Context(), c.on))
}

// resumeEndpoint ends a pause. The events that waited are delivered in their order.
func (a *Server) resumeEndpoint(w http.ResponseWriter, r *http.Request, c call[string, reasonRequest]) error {
	if mustPropose(r) {
		switch now, err := a.Webhooks.Log.Endpoint(r.Context(), c.on); {
		case err != nil:
			return err
		case now.PausedAt != nil:
			return a.propose(w, r, proposed{"webhook", map[string]any{"endpoint": c.on}, c.reason, "resumes the deliveries to " + c.on})
		}
	}
	changed, err := a.Webhooks.Log.Resume(r.Context(), c.on, c.by, c.reason)
	if err != nil {
		return err
	}
	if changed {
		a.Log.WarnContext(r.Context(), "deliveries resumed", "endpoint", c.on, "operator", c.by, "reason", c.reason)
		of, err := a.Webhooks.Log.Waiting(r.Context(), c.on, maxKicked)
		if err != nil {
			a.Log.WarnContext(r.Context(), "the sweep will find the events that wait", "endpoint", c.on, "error", err.Error())
		}
		a.kick(r.Context(), c.on, of)
	}
	return serve.Reply(w, r)(a.viewEndpoint(r.Context(), c.on))
}
