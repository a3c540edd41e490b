package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// checkEvents compares the stored and published events with the transactions. It checks nothing
// if events are off.
func (e *episode) checkEvents(ctx context.Context) []check {
	if !e.eventsOn() {
		return nil
	}
	complete := check{Name: "events-whole", Promise: "of each transaction the events 1, 2, 3, … are kept without a hole, the last of them its end"}
	published := check{Name: "events-told", Promise: "each stored event was published to the topic, and no other, in order for each submitter"}
	e.checkPublished(e.checkStored(ctx, &complete), &published)
	return []check{complete, published}
}

// selectEvents also returns a row for each transaction without events.
const selectEvents = `
select m.tx_id, m.submitter, m.state, m.event_sequence, coalesce(e.sequence, 0), coalesce(e.type, ''), coalesce(e.body ->> 'data', '{}')
  from managed_tx m
  left join event e using (tx_id)
 order by m.submitter, m.tx_id, e.sequence`

// checkStored returns the submitters of the stored events by the events' keys.
func (e *episode) checkStored(ctx context.Context, c *check) (stored map[string]string) {
	stored = make(map[string]string)
	next := make(map[string]int)
	var txID, submitter, kind, data string
	var state txmanager.State
	var counted, sequence int
	rows.Each(ctx, e.db, []any{&txID, &submitter, &state, &counted, &sequence, &kind, &data}, func() {
		if sequence > 0 {
			stored[fmt.Sprintf("%s-%s-%d", txID, kind, sequence)] = submitter
		}
		next[txID]++
		if detail := eventProblem(state, counted, next[txID], sequence, kind, data); detail != "" {
			c.report(submitter, txID, "%s", detail)
		}
	}, selectEvents)
	return stored
}

// eventProblem describes how the n-th event of a transaction is wrong, or returns "".
func eventProblem(state txmanager.State, counted, n, sequence int, kind, data string) string {
	var d struct{ Final bool }
	if err := json.Unmarshal([]byte(data), &d); err != nil {
		return fmt.Sprintf("%s %d: %v", kind, sequence, err)
	}
	last, end := sequence == counted, kind == string(txmanager.TxFailed) || d.Final
	switch {
	case sequence != n:
		return fmt.Sprintf("event %d of %d is %s, where %d should be", sequence, counted, kind, n)
	case end != (last && state.Terminal()):
		return fmt.Sprintf("event %d of %d is %s, final %t, and it is %s", sequence, counted, kind, d.Final, state)
	case last && (state == txmanager.Confirmed) != (kind == string(txmanager.TxConfirmed) && d.Final):
		return fmt.Sprintf("it is %s, and its last event is %s", state, kind)
	}
	return ""
}

// checkPublished compares the topic with the stored events. The first delivery of each event
// must be in order.
func (e *episode) checkPublished(stored map[string]string, c *check) {
	add := func(of client.Event, format string, args ...any) { c.report(of.Submitter, of.TxID, format, args...) }
	last, published := make(map[string]int), make(map[string]bool)
	for _, m := range e.env.PubSub.Messages() {
		var one client.Event
		if err := json.Unmarshal(m.Data, &one); err != nil {
			add(one, "a message of the topic: %v", err)
			continue
		}
		key := fmt.Sprintf("%s-%s-%d", one.TxID, one.Type, one.Sequence)
		if published[key] {
			continue
		}
		published[key] = true
		switch submitter, isStored := stored[key]; {
		case !isStored && e.restores.published[key] == one.Submitter && m.OrderingKey == one.Submitter: // stored by a lost database
			continue
		case !isStored:
			add(one, "%s %d was published, and is not stored", one.Type, one.Sequence)
		case one.Submitter != submitter || m.OrderingKey != submitter:
			add(one, "%s %d was published under %s, and belongs to %s", one.Type, one.Sequence, m.OrderingKey, submitter)
		case one.Sequence != last[one.TxID]+1 && !e.restores.lostEvents(one.TxID):
			add(one, "%s %d was published after %d", one.Type, one.Sequence, last[one.TxID])
		}
		last[one.TxID] = max(last[one.TxID], one.Sequence)
	}
	for key, submitter := range stored {
		if !published[key] {
			c.report(submitter, "", "%s was not published", key)
		}
	}
}

const selectFeatures = `
select (select count(*) from event), (select count(*) from tx_version where kind = 'BUMP'),
       (select count(*) from managed_tx m join tx_version v using (tx_hash) where v.kind = 'BUMP' and m.state in ('CONFIRMED', 'FAILED')),
       (select count(*) from managed_tx where last_mempool_diag is not null)`

// countFeatures returns how often each optional feature acted.
func (e *episode) countFeatures(ctx context.Context) map[string]int {
	var events, bumps, mined, diagnosed int
	steps.OK(e.db.QueryRow(ctx, selectFeatures).Scan(&events, &bumps, &mined, &diagnosed), "count the acts of optional features")
	did := make(map[string]int)
	for name, n := range map[string]int{"events kept": events, "gas bumps signed": bumps, "gas bumps mined": mined, "transactions diagnosed": diagnosed} {
		if n > 0 || len(e.set) == 0 {
			did[name] = n
		}
	}
	return did
}
