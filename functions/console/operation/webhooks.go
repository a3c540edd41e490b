package operation

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

const endpointsPath = "/console/webhooks"

// endpointPoll is how often the backlogs are read again.
const endpointPoll = 10 * time.Second

// listEndpoints shows each endpoint with its backlog and its last answer. It makes 1 call.
func listEndpoints(ctx context.Context, call page.Call) (page.View, error) {
	all, err := call.Admin.WebhookEndpoints(ctx)
	return page.View{Title: "Webhook endpoints", Body: "operation/webhooks", Data: all, Poll: endpointPoll}, err
}

var endpointActs = []page.Act{
	{Name: "test", Button: "Send a test event", Do: page.ActOf((*client.Client).TestWebhookEndpoint),
		Meaning: "Sends one signed event of the type EndpointTest now, to a paused endpoint too. No transaction made it. The answer is on the page Webhook endpoints afterwards."},
	{Name: "pause", Button: "Pause the deliveries", Do: page.ActOf((*client.Client).PauseWebhookEndpoint),
		Meaning: "Stops the deliveries and keeps the events, also beyond events.keep, until an operator resumes. A page of 100 events that is being delivered may still arrive."},
	{Name: "resume", Button: "Resume the deliveries", Do: page.ActOf((*client.Client).ResumeWebhookEndpoint),
		Meaning: "Delivers the events that waited, in the order of each submitter. The receiver must be able to take them."},
	{Name: "redeliver", Button: "Deliver events again", Danger: true, Do: redeliver,
		Meaning: "Delivers the events after a cursor once more. A receiver drops those that it has, by the header webhook-id. One that does not compare it acts twice: this cannot be undone."},
}

// endpointForm is the form of an act on an endpoint.
type endpointForm struct {
	Name     string
	Act      page.Act
	Endpoint *client.WebhookEndpoint // nil: it was not read, or is unknown
	Error    string                  // why it was not read; "": it was
}

// actOnEndpoint draws the form of an act on an endpoint and carries it out. GET makes 1 call, POST 1, a refused POST 2.
func actOnEndpoint(ctx context.Context, call page.Call) (page.View, error) {
	act, err := page.ActOfPath(call, endpointActs, "There is no such act on an endpoint. Open the page Webhook endpoints.")
	if err != nil {
		return page.View{}, err
	}
	name := call.PathValue("endpoint")
	form := func(ctx context.Context, problem error) (page.View, error) {
		f := &endpointForm{Name: name, Act: act}
		all, err := call.Admin.WebhookEndpoints(ctx)
		f.Error = page.WhyUnread(err)
		if at := slices.IndexFunc(all, func(e client.WebhookEndpoint) bool { return e.Name == name }); at >= 0 {
			f.Endpoint = &all[at]
		}
		return page.View{Title: act.Button, Body: "operation/webhook-act", Data: f, WayOn: endpointWays.After(problem)}, nil
	}
	return page.ServeForm(ctx, call, endpointsPath, form, act.On(call, name, name))
}

// endpointWays has the way on after an act on an endpoint was refused.
var endpointWays = page.Ways{Codes: map[string]string{
	"TOO_LATE":  "The state has changed meanwhile, or another operator was faster. Open the page Webhook endpoints again.",
	"NOT_FOUND": "The settings do not name this endpoint any more (events.webhook.urls). No call adds one.",
}}

func redeliver(ctx context.Context, call page.Call, endpoint, reason string) error {
	in := client.RedeliveryRequest{After: strings.TrimSpace(call.PostFormValue("after")), Reason: reason}
	if in.After == "" {
		return page.Refuse("after", "Give the cursor of the last event that the receiver has, or 0 for all that are kept.")
	}
	if s := strings.TrimSpace(call.PostFormValue("submitter")); s != "" {
		in.Submitter = &s
	}
	_, err := call.Admin.RedeliverEvents(ctx, endpoint, in)
	return err
}
