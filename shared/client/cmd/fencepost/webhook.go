package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) webhookGroup() *cobra.Command {
	return group("webhook", "Receive webhooks, and look after the endpoints", a.webhookListen(), a.webhookList(), a.webhookTest(),
		act(a, "pause ENDPOINT", "Stop the deliveries to an endpoint; its events are kept (operators)", (*client.Client).PauseWebhookEndpoint, a.printPause),
		act(a, "resume ENDPOINT", "End the pause of an endpoint (operators)", (*client.Client).ResumeWebhookEndpoint, a.printPause),
		a.webhookRedeliver())
}

func (a *app) webhookList() *cobra.Command {
	return a.list(operator, "list", "List the endpoints, which are settings (operators)", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		all, err := api.WebhookEndpoints(ctx)
		return printList(a, each(all, err), "NAME KIND HOST BACKLOG OLDEST PAUSED LAST_ANSWER", func(e client.WebhookEndpoint) []any {
			return []any{e.Name, e.Kind, e.Host, backlog(e), oldest(e), paused(e), answered(e.LastAnswer)}
		})
	})
}

func backlog(e client.WebhookEndpoint) string {
	text := fmt.Sprint(e.Backlog.Events)
	if e.Backlog.More {
		return "above " + text
	}
	return text
}

func oldest(e client.WebhookEndpoint) any {
	if e.Oldest == nil {
		return nil
	}
	return e.Oldest.Since
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

func (a *app) webhookTest() *cobra.Command {
	return a.onRecord("test ENDPOINT", "Send a signed test event to an endpoint now (operators)", 1, func(ctx context.Context, api *client.Client, args []string) error {
		r, err := api.TestWebhookEndpoint(ctx, args[0], a.why)
		err = a.answer(err, "endpoint", args[0], "accepted", r.Accepted, "answer", answered(r.Answer), "at", r.At)
		if err == nil && !r.Accepted && (r.Answer == nil || r.Answer.Status == nil) {
			return endf(exitUnknown, "%s: no answer to the test event, which may have arrived: see fencepost webhook list", args[0])
		}
		if err == nil && !r.Accepted {
			err = endf(exitFailed, "%s did not accept the test event: %s", args[0], answered(r.Answer))
		}
		return err
	})
}

func (a *app) printPause(e client.WebhookEndpoint) error {
	return a.printAnswer("endpoint", e.Name, "backlog", backlog(e), "paused", paused(e))
}

func (a *app) webhookRedeliver() *cobra.Command {
	var in client.RedeliveryRequest
	var submitter string
	c := a.onRecord("redeliver ENDPOINT", "Deliver the events after a cursor again (operators)", 1, func(ctx context.Context, api *client.Client, args []string) error {
		if in.Reason = a.why; submitter != "" {
			in.Submitter = &submitter
		}
		r, err := api.RedeliverEvents(ctx, args[0], in)
		return a.answer(err, "endpoint", r.Endpoint, "after", r.After, "submitters", r.Submitters)
	})
	c.Flags().StringVar(&in.After, "after", "", "the `cursor` of an event, from fencepost events tail")
	c.Flags().StringVar(&submitter, "submitter", "", "only the events of this `account`")
	require(c, "after")
	return c
}
