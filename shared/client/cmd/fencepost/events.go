package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) eventsGroup() *cobra.Command {
	return group("events", "Read the events of transactions", a.eventsTail())
}

func (a *app) eventsTail() *cobra.Command {
	var query client.EventQuery
	var follow bool
	every := 2 * time.Second
	c := a.call(caller, "tail", "Print the kept events, the oldest first, and with --follow those that come", []option{
		flag(&query.PageToken, "after", "the `cursor` of the last event that you have; default: from the oldest that is kept"),
		flag(&query.Submitter, "submitter", "only events of this `account`"),
		flag(&follow, "follow", "go on until interrupted"),
		flag(&every, "every", "with --follow: how often to ask"),
	}, func(q call) error {
		if every <= 0 {
			return usagef("--every %s: want a time above 0", every)
		}
		for {
			err := a.printEvents(q.ctx, q.api, &query)
			if follow && q.ctx.Err() != nil {
				return nil // the reader has seen enough
			}
			if err != nil || !follow {
				return err
			}
			select {
			case <-q.ctx.Done():
			case <-time.After(every):
			}
		}
	})
	c.Long = `Tail prints the kept events: a caller's own, or all with an operator's token in FENCEPOST_TOKEN. Each line begins with
its cursor; continue after it by --after, within events.keep. A deployment keeps events only if events.mode is
webhook or mq_outbox. Elsewhere the answer is NOT_FOUND: follow transactions by fencepost tx wait.`
	return c
}

// printEvents prints the events after the place in q, and moves it behind them.
func (a *app) printEvents(ctx context.Context, api *client.Client, q *client.EventQuery) error {
	for e, err := range api.Events(ctx, *q) {
		if err != nil {
			return err
		}
		if err := a.printAlone(e.Cursor, e.Timestamp, e.Type, e.TxID, e.RequestID, e.Sequence, e.Data); err != nil {
			return err
		}
		q.PageToken = e.Cursor
	}
	return nil
}
