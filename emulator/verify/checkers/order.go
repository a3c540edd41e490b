package checkers

import (
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// queueOrder compares each intent that gets a nonce with the earlier intents that were still waiting
// then, by the reasons in the history. No intent may pass a waiting one, with two exceptions: see
// [passable], and a deferred intent, which other callers' intents may pass.
func queueOrder(a *account, report reporter) {
	rows := make(map[string]managed, len(a.txs))
	for _, t := range a.txs {
		rows[t.ID] = t
	}
	waits := make(map[string]string) // reasons by transaction
	for _, c := range a.history {
		switch c.State {
		case txmanager.Queued:
			if delete(waits, c.TxID); c.Reason != "" && !passable(c.Reason) {
				waits[c.TxID] = c.Reason
			}
			continue
		case txmanager.InFlight, txmanager.Submitted:
		default:
			delete(waits, c.TxID)
			continue
		}
		delete(waits, c.TxID)
		bound, known := rows[c.TxID]
		if c.From == nil || *c.From != txmanager.Queued || !known {
			continue
		}
		for id, reason := range waits {
			first, known := rows[id]
			deferred := strings.Contains(reason, "; deferred since ")
			if known && first.Seq < bound.Seq && (!deferred || first.Caller == bound.Caller) {
				report(c.TxID, "change %d: it has a nonce, and %s of %q, before it in the queue, waits: %s", c.ID, id, first.Caller, reason)
			}
		}
	}
}

// passable reports whether every intent may pass an intent that waits for the reason.
func passable(reason string) bool {
	return strings.HasPrefix(reason, "held: ") || strings.HasPrefix(reason, "deferred until ") || strings.Contains(reason, "does not have the key")
}
