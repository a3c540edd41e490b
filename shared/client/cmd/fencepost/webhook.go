package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) webhookGroup() *cobra.Command {
	var in client.RedeliveryRequest
	var submitter string
	return group("webhook", "Receive webhooks, and look after the endpoints", a.webhookListen(),
		a.list(operator, "list", "List the endpoints, which are settings (operators)", nil, func(q call) error {
			all, err := q.api.WebhookEndpoints(q.ctx)
			return printList(a, each(all, err), "NAME KIND HOST BACKLOG OLDEST PAUSED LAST_ANSWER", func(e client.WebhookEndpoint) []any {
				oldest := cmp.Or(e.Oldest, &client.EndpointOldest{})
				return []any{e.Name, e.Kind, e.Host, position(e.Backlog.Events, e.Backlog.More), oldest.Since, paused(e), answered(e.LastAnswer)}
			})
		}),
		a.act("test ENDPOINT", "Send a signed test event to an endpoint now (operators)", nil, a.testWebhook),
		actOn(a, "pause ENDPOINT", "Stop the deliveries to an endpoint; its events are kept (operators)", (*client.Client).PauseWebhookEndpoint, a.printPause),
		actOn(a, "resume ENDPOINT", "End the pause of an endpoint (operators)", (*client.Client).ResumeWebhookEndpoint, a.printPause),
		a.act("redeliver ENDPOINT", "Deliver the events after a cursor again (operators)", []option{
			required(&in.After, "after", "the `cursor` of an event, from fencepost events tail"),
			flag(&submitter, "submitter", "only the events of this `account`"),
		}, func(q call) error {
			if in.Reason = a.why; submitter != "" {
				in.Submitter = &submitter
			}
			r, err := q.api.RedeliverEvents(q.ctx, q.args[0], in)
			return a.answer(err, "endpoint", r.Endpoint, "after", r.After, "submitters", r.Submitters)
		}))
}

func paused(e client.WebhookEndpoint) string {
	if e.Paused == nil {
		return ""
	}
	return fmt.Sprintf("by %s: %s", e.Paused.By, e.Paused.Reason)
}

// answered describes what a receiver answered.
func answered(to *client.EndpointAnswer) string {
	switch {
	case to == nil:
		return ""
	case to.Status == nil:
		return "no answer: " + to.Text
	}
	return fmt.Sprintf("%d at %s", *to.Status, cell(to.At))
}

func (a *app) testWebhook(q call) error {
	r, err := q.api.TestWebhookEndpoint(q.ctx, q.args[0], a.why)
	err = a.answer(err, "endpoint", q.args[0], "accepted", r.Accepted, "answer", answered(r.Answer), "at", r.At)
	unanswered := r.Answer == nil || r.Answer.Status == nil
	return cmp.Or(err,
		endIf(!r.Accepted && unanswered, exitUnknown,
			"%s: no answer to the test event, which may have arrived: see fencepost webhook list", q.args[0]),
		endIf(!r.Accepted, exitFailed, "%s did not accept the test event: %s", q.args[0], answered(r.Answer)))
}

func (a *app) printPause(e client.WebhookEndpoint, err error) error {
	return a.answer(err, "endpoint", e.Name, "backlog", position(e.Backlog.Events, e.Backlog.More), "paused", paused(e))
}
