package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Raw is one of the store's own connections, with exactly the parameters that
// [Open] gives each of them.
func (s *Store) Raw(ctx context.Context) (*pgxpool.Conn, error) { return s.db.Acquire(ctx) }

// CreateTogether returns the results of creates that share one round trip.
func (s *Store) CreateTogether(ctx context.Context, intents []Intent, bound int) []Created {
	all, results := make([]*pendingCreate, len(intents)), make([]Created, len(intents))
	for i, in := range intents {
		all[i] = &pendingCreate{ctx: ctx, intent: in, bound: bound, answer: make(chan Created, 1)}
	}
	s.answerBatch(ctx, all)
	for i, w := range all {
		results[i] = <-w.answer
	}
	return results
}

// HotStatements are the statements whose cost must not grow with terminal rows, by the names
// of their constants.
var HotStatements = map[string]string{
	"insertIntents": insertIntents, "insertPayloads": insertPayloads, "findIntents": findIntents, "findUsable": findUsable, "countQueued": countQueued,
	"lockPolicies": lockPolicies, "insertLimited": insertLimited, "permitReserved": permitReserved, "permit": permit,
	"acquireOrMark": acquireOrMark, "nextIteration": nextIteration, "releaseLease": releaseLease, "recheckQueue": recheckQueue,
	"loadSubmitter": loadSubmitter, "loadUnsettled": loadUnsettled, "bumpSpent": bumpSpent, "loadQueue": loadQueue,
	"applyTransitions": applyTransitions, "insertReceipts": insertReceipts, "allocateTxs": allocateTxs, "storeVersion": storeVersion, "updateCursor": updateCursor,
	"order": order, "findDecided": findDecided, "record": recordColumns + byTxID,
	"recordByRequest": recordColumns + byRequest,
	"listOwn":         listOwn, "listAll": listAll, "inList": inList,
	"overdue": overdue, "overdueProtected": overdueProtected, "holdLease": leaseHeld,
	"backlog": backlog, "proceedOne": proceedOne, "proceedRepeated": proceedRepeated, "proceedOldest": proceedOldest, "findHeld": findHeld, "holdQueued": holdQueued,
	"lockHolds": lockHolds, "claimHolds": claimHolds, "writeOff": writeOff, "proceedUnknown": proceedUnknown, "openHolds": openHolds, "findHolds": findHolds,
	"foreignReading": foreignReading,
	"takeRecyclable": takeRecyclable, "reserveNext": reserveNext, "reserveRecyclable": reserveRecyclable, "markUsed": markUsed, "markRecyclable": markRecyclable,
}

// leaseHeld is what require_lease runs.
const leaseHeld = `
select expires_at from submitter_lease
 where submitter = $1 and owner_node = $2 and fencing_token = $3
   for share`

// CreateLedBy returns the results of creates of which the first, with context leader, makes
// the round trip.
func (s *Store) CreateLedBy(leader context.Context, intents []Intent, bound int) []Created {
	all := make([]*pendingCreate, len(intents))
	for i, in := range intents {
		all[i] = &pendingCreate{ctx: leader, intent: in, bound: bound, answer: make(chan Created, 1), lead: make(chan struct{}, 1)}
	}
	s.groupCommit.waiting, s.groupCommit.running = slices.Clone(all), true
	s.commitBatch(all[0])
	results := make([]Created, len(all))
	for i, w := range all {
		results[i] = <-w.answer
	}
	return results
}
