package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Raw is one of the store's own connections, with exactly the parameters that
// [Open] gives each of them.
func (s *Store) Raw(ctx context.Context) (*pgxpool.Conn, error) { return s.db.Acquire(ctx) }

// RecordOf is what [Store.TxWaiting] and [Store.TxWaitingByRequest] return, without why the transaction waits.
func RecordOf(r Record, _ *Waiting, err error) (Record, error) { return r, err }

// CallDigest is the digest by which an intent's call is compared with a foreign transaction's.
func CallDigest(in Intent) []byte { return callDigest(in) }

// CreateTogether returns the results of creates that share one round trip.
func (s *Store) CreateTogether(ctx context.Context, intents []Intent, bound int) []Created {
	all, results := make([]pendingCreate, len(intents)), make([]Created, len(intents))
	for i, in := range intents {
		all[i] = pendingCreate{intent: in, bound: bound}
	}
	for i, r := range s.answerBatch(ctx, all) {
		if _, alone := errors.AsType[batch.AloneError](r.Err); alone {
			r = s.answerBatch(ctx, all[i:i+1])[0]
		}
		if results[i] = r.Value; r.Err != nil {
			results[i].Err = r.Err
		}
	}
	return results
}

// IsShareable reports whether a commit may share a round trip.
func IsShareable(w txmanager.Commit) bool {
	c, err := newFencedCommit(w)
	return err == nil && c.isShareable()
}

// CommitAnswer is the answer to one of [Store.CommitTogether].
type CommitAnswer struct {
	Done  txmanager.CommitResult
	Err   error
	Alone bool // it did not share
}

// CommitTogether makes one batch of the commits, and those alone that go alone. It returns after the batch.
func (s *Store) CommitTogether(ctx context.Context, all ...txmanager.Commit) (answers []<-chan CommitAnswer) {
	calls := make([]*fencedCommit, len(all))
	for i, w := range all {
		var err error
		if calls[i], err = newFencedCommit(w); err != nil || !calls[i].isShareable() {
			panic(fmt.Sprintf("commit %d may not share: %v", i, err))
		}
	}
	for i, r := range s.answerCommits(ctx, calls) {
		answer := make(chan CommitAnswer, 1)
		answers = append(answers, answer)
		if _, ok := errors.AsType[batch.AloneError](r.Err); !ok {
			answer <- CommitAnswer{r.Value, r.Err, false}
			continue
		}
		go func() {
			done, err := s.commitAlone(ctx, calls[i])
			answer <- CommitAnswer{done, err, true}
		}()
	}
	return answers
}

// IsCostly reports whether calls for the submitter share no round trip, because its load is costly.
func IsCostly(s *Store, sub txmanager.Submitter) bool { return s.costly.last(sub) }

// HotStatements are the statements whose cost must not grow with terminal rows, by the names
// of their constants.
var HotStatements = map[string]string{
	"insertIntents": insertIntents, "insertPayloads": insertPayloads, "findIntents": findIntents, "findUsable": findUsable, "measureQueues": measureQueues,
	"lockPolicies": lockPolicies, "insertLimited": insertLimited, "permitReserved": permitReserved, "permit": permit,
	"acquireOrMark": acquireOrMark, "releaseLease": releaseLease, "recheckQueue": recheckQueue, "lockLeases": lockLeases,
	"loadSubmitter": loadSubmitter, "loadUnsettled": loadUnsettled, "bumpSpent": bumpSpent, "loadQueue": loadQueue,
	"applyTransitions": applyTransitions, "insertReceipts": insertReceipts, "allocateTxs": allocateTxs, "storeVersion": storeVersion, "updateCursor": updateCursor, "countFees": countFees,
	"order": order, "findDecided": findDecided, "record": recordColumns + byTxID, "explainWait": explainWait, "explainWaitByRequest": explainWaitByRequest, "blockedHeads": blockedHeads, "txHistory": txHistory, "txVersions": txVersions, "txDecisions": txDecisions,
	"recordByRequest": recordColumns + byRequest,
	"listOwn":         listOwn, "listAll": listAll, "inList": inList, "listChanges": listChanges, "listIncidents": listIncidents, "policyUse": policyUse, "policyScopes": policyScopes,
	"listSubmitters": listSubmitters, "listSubmittersActive": listSubmittersActive, "listSubmittersNotActive": listSubmittersNotActive, "listSubmittersProtect": listSubmittersProtect, "listSubmittersByName": listSubmittersByName, "txOrder": txOrder,
	"findNewest": findNewest, "findClass": findClass, "findCause": findCause, "findCauseOf": findCauseOf, "findRequest": findRequest, "findNonce": findNonce,
	"findHash": findHash, "findCallers": findCallers, "laneBounds": laneBounds, "laneNonces": laneNonces, "queuePage": queuePage,
	"overdue": overdue, "overdueProtected": overdueProtected, "holdLease": leaseHeld,
	"backlog": backlog, "proceedOne": proceedOne, "proceedRepeated": proceedRepeated, "proceedOldest": proceedOldest, "findHeld": findHeld, "holdQueued": holdQueued,
	"lockHolds": lockHolds, "claimHolds": claimHolds, "writeOff": writeOff, "proceedUnknown": proceedUnknown, "openHolds": openHolds, "findHolds": findHolds,
	"foreignReading":      foreignReading,
	"viewSubmitter":       viewSubmitter,
	"foreignTransactions": foreignTransactions, "ownVersions": ownVersions, "openRequests": openRequests, "matchingIntents": matchingIntents, "moreIntents": moreIntents, "loadWaiting": loadWaiting,
	"oneProposal": oneProposal, "listProposals": listProposals, "listOpenProposals": listOpenProposals,
	"attentionPage": attentionPage, "attentionCounts": attentionCounts, "countMinutes": countMinutes, "lastMinutes": lastMinutes, "stateCounts": stateCounts, "oldestTx": oldestTx, "spending": spending,
	"takeRecyclable": takeRecyclable, "reserveNext": reserveNext, "reserveRecyclable": reserveRecyclable, "markUsed": markUsed, "markRecyclable": markRecyclable,
}

// leaseHeld is what require_lease runs.
const leaseHeld = `
select expires_at from submitter_lease
 where submitter = $1 and owner_node = $2 and fencing_token = $3
   for share`

// PayoutStatements are the statements whose cost must not grow with terminal rows.
var PayoutStatements = map[string]string{
	"findPayout": findPayout, "insertTombstone": insertTombstone, "confirmedPayouts": confirmedPayouts,
	"insertStatement": insertStatement, "withdrawStatement": withdrawStatement, "insertProof": insertProof, "payoutStatements": payoutStatements,
}

// ClassesOf are the values of state_class with transactions of the state.
func ClassesOf(state txmanager.State) []int16 { return classesOf(state) }

// AttentionArgs are the parameters of the statements attentionPage, without its place, and attentionCounts.
func (s *Store) AttentionArgs(l AttentionLimits) NamedArgs { return s.attentionArgs(l) }

// ActStatements are the statements of the list of operators' acts, by the place and the table of their source.
func ActStatements() map[string]string {
	all := make(map[string]string)
	for i, s := range actSources {
		all[fmt.Sprintf("acts_%02d_%s", i+1, s.table)] = s.statement()
	}
	return all
}

// ActReasons are the columns that hold the reasons of acts, as table.column.
func ActReasons() (columns []string) {
	for _, s := range actSources {
		columns = append(columns, s.table+strings.TrimPrefix(s.reason, "r"))
	}
	return columns
}
