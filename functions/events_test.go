package functions_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// deliverySettings configure two endpoints, at which no service listens.
var deliverySettings = []string{
	"FENCEPOST_EVENTS_MODE=webhook", "FENCEPOST_EVENTS_WEBHOOK_URLS=books=http://127.0.0.1:1/, shop=http://127.0.0.1:1/",
	"FENCEPOST_EVENTS_WEBHOOK_SECRETS=books=" + hookSecret + ",shop=" + hookSecret,
}

var hookSecret = "whsec_" + strings.Repeat("QUJD", 8)

// Each caller replays the events of its transactions, an operator all, from any point. A request that
// made events has a task for each endpoint.
func TestEventsAreReplayed(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t, deliverySettings...)
	shop, other, operator := h.clientOf(h.callerToken("shop")), h.clientOf(h.callerToken("other")), h.clientOf(h.callerToken("ann"))
	for i, by := range []*client.Client{shop, other, shop} {
		check.OK(t)(by.CreateTx(t.Context(), intentOf(fmt.Sprintf("r-%d", i))))
	}
	all := []string{"r-0@1TxAccepted1", "r-1@2TxAccepted1", "r-2@3TxAccepted1"}
	for _, c := range []struct {
		what string
		by   *client.Client
		q    client.EventQuery
		want string
	}{
		{"an operator", operator, client.EventQuery{PageSize: 2}, strings.Join(all, " ")},
		{"whose they are", shop, client.EventQuery{PageSize: 1}, all[0] + " " + all[2]},
		{"another", other, client.EventQuery{Submitter: shopAccount}, all[1]},
		{"from a cursor on", operator, client.EventQuery{PageToken: "2"}, all[2]},
		{"at the end", operator, client.EventQuery{PageToken: "3"}, ""},
	} {
		all := check.Value(collect(c.by.Events(t.Context(), c.q), func(e client.Event) string { return fmt.Sprint(e.RequestID, "@", e.Cursor, e.Type, e.Sequence) }))(t)
		check.Equal(t, c.what, all, c.want)
	}
	for _, endpoint := range []string{`"books"`, `"shop"`} {
		if names := h.cloud.about(endpoint); len(names) == 0 || !strings.Contains(names[0], "-publish-") {
			t.Errorf("tasks for %s: got %v, want some of the queue of publish", endpoint, names)
		}
	}
}

// An invalid query is refused, and the answer names the fault.
func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	h := build(t, deliverySettings...)
	for query, want := range map[string]string{
		"?pageToken=1": "400 INVALID_FIELD pageToken", "?pageToken=-1": "400 INVALID_FIELD pageToken",
		"?submitter=x": "400 INVALID_FIELD submitter", "?pageToken=0": "200 <nil> <nil>", "": "200 <nil> <nil>",
	} {
		a := h.as("shop", "GET", "/api/v1/events"+query, nil)
		check.Equal(t, fmt.Sprintf("%q (%v)", query, a.body), a.is("code", "field"), want)
	}
	h.run(`update event_counter set last = 9, forgotten = 5`)
	check.Equal(t, "behind what is kept", h.as("shop", "GET", "/api/v1/events?pageToken=4", nil).is("oldest"), "400 5")
	call(t, t.Context(), "", "GET", h.url+"/api/v1/events", nil).wants(t, 401, "without a token")
	for mode, url := range map[string]string{"poll": h.serve(h.transferSettings()...), "log": h.serve(append(h.transferSettings(), "FENCEPOST_EVENTS_MODE=log")...)} {
		a := call(t, t.Context(), h.callerToken("shop"), "GET", url+"/api/v1/events", nil)
		if detail := fmt.Sprint(a.body["detail"]); a.status != 404 || !strings.Contains(detail, "events.mode is "+mode) {
			t.Errorf("with %s: got %d %s, want 404 and the setting", mode, a.status, detail)
		}
	}
}

// A task of a removed endpoint, or of another mode, is dropped. A task without an endpoint or without
// a valid token is refused. Undelivered events have a task.
func TestPublishTasks(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t, deliverySettings...)
	h.createTx("r")
	for _, c := range []struct {
		by, endpoint string
		want         int
	}{{"tasks", "gone", 204}, {"tasks", "books", 204}, {"tasks", "", 400}, {"shop", "books", 403}} {
		h.as(c.by, "POST", "/internal/publish", map[string]any{"submitter": shopAccount, "endpoint": c.endpoint}).wants(t, c.want, "%s for %q", c.by, c.endpoint)
	}
	check.Equal(t, "failures", h.one(`select failures from event_delivery_queue where endpoint = 'books'`), "1")
	if names := h.cloud.about(`"books"`); len(names) < 2 {
		t.Errorf("tasks: got %v, want that of the create and one for the next attempt", names)
	}
}

// Only the process that delivers events needs the endpoints' secrets, and it does not start without
// them.
func TestSecretsOfEndpoints(t *testing.T) {
	t.Parallel()
	h := build(t)
	settings := append([]string{}, deliverySettings[:2]...)
	for target, starts := range map[string]bool{"publish": false, "all": false, "create": true, "sweep": true} {
		got := h.startError(functions.Extensions{}, append(settings, "FUNCTION_TARGET="+target)...)
		if (got == "") != starts || !starts && !strings.Contains(got, "no secret in events.webhook.secrets") {
			t.Errorf("%s without secrets: got %q, want it to start: %t", target, got, starts)
		}
	}
	if _, err := config.Load(h.settings("FENCEPOST_EVENTS_MODE=mq_outbox")); err == nil || !strings.Contains(err.Error(), "events.pubsub.topic") {
		t.Errorf("mq_outbox without a topic: got %v, want it refused", err)
	}
}

// An endpoint that is slow for many submitters uses only its share of the delivery slots; another
// endpoint gets its events at once.
func TestSlowEndpointTakesItsShare(t *testing.T) {
	t.Parallel()
	const streams, share = 20, 5
	slowly, open := new(atomic.Int64), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice the cancelled request
		slowly.Add(1)
		select {
		case <-open:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	quickly := new(atomic.Int64)
	quick := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { quickly.Add(1) }))
	t.Cleanup(quick.Close)
	h := build(t, "FENCEPOST_EVENTS_MODE=webhook", "FENCEPOST_EVENTS_WEBHOOK_URLS=quick="+quick.URL+",slow="+slow.URL,
		"FENCEPOST_EVENTS_WEBHOOK_SECRETS=quick="+hookSecret+",slow="+hookSecret)
	shop := h.clientOf(h.callerToken("shop"))
	var of []string
	for n := range streams {
		of = append(of, fmt.Sprintf("eip155:1337:0x%040x", n+1))
		h.Bundle.Register(t, txmanager.Submitter(of[n]), 1)
		check.OK(t)(shop.CreateTx(t.Context(), client.Intent{Submitter: of[n], RequestID: "r", Payload: client.Payload{To: paidTo, Value: "1"}}))
	}
	var telling sync.WaitGroup
	turned := make(chan struct{}, streams)
	publish := func(submitter, endpoint string) {
		h.as("tasks", "POST", "/internal/publish", members{"submitter": submitter, "endpoint": endpoint}).wants(t, 204, "publish")
	}
	for _, s := range of {
		telling.Go(func() {
			publish(s, "slow")
			turned <- struct{}{}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // the endpoint's time-out is 5 s
	defer cancel()
	for range streams - share {
		select {
		case <-turned:
		case <-ctx.Done():
			t.Fatalf("told at once: got %d of %d submitters' events, want %d, and the others left to the sweep", slowly.Load(), streams, share)
		}
	}
	for _, s := range of {
		publish(s, "quick")
	}
	if got, told := slowly.Load(), quickly.Load(); got != share || told != streams {
		t.Errorf("told: got %d events to the slow, %d to the quick; want %d and %d", got, told, share, streams)
	}
	close(open)
	telling.Wait()
	for _, s := range of {
		publish(s, "slow")
	}
	check.Equal(t, "told once it is quick", slowly.Load(), streams)
}
