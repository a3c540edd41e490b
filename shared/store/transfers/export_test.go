package transfers

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

// HotStatements are those whose cost must not grow with the number of finished transfers.
var HotStatements = map[string]string{
	"lockUsers": lockUsers, "lockTransfers": lockTransfers, "insertTransfers": insertTransfers, "findCreated": findCreated, "obstacles": obstacles,
	"byReqID": byReqID, "byReqIDs": byReqIDs, "starts": starts, "moves": moves, "startsOrMoves": startsOrMoves, "furtherMoves": furtherMoves, "postpone": postpone, "cancel": cancel, "due": due, "busy": busy,
	"latePending": transferColumns + latePending + latestFew + "$3", "lateRefunds": transferColumns + lateRefunds + latestFew + "$2",
	"howLatePending": howLate + latePending, "howLateRefunds": howLate + lateRefunds,
	"record": record, "answer": answer, "history": history, "resolutions": resolutions, "acknowledge": acknowledge, "acknowledgements": acknowledgements,
	"findPayoutObstacles": findPayoutObstacles, "addAddress": addAddress, "removeAddress": removeAddress,
	"inList":    inList,
	"allWanted": windowOfAll.wanted(), "openWanted": windowOfOpen.wanted(), "failedWanted": windowOfFailed.wanted(), "userWanted": windowOfUser.wanted(), "endedWanted": windowOfEnded.wanted(), "endedLast": windowOfEnded.last(),
	"olderWanted": windowOfOlder.wanted(), "olderLast": windowOfOlder.last(), "usersOpenWanted": windowOfUsersOpen.wanted(), "usersOpenLast": windowOfUsersOpen.last(),
	"allLast": windowOfAll.last(), "openLast": windowOfOpen.last(), "failedLast": windowOfFailed.last(), "userLast": windowOfUser.last(),
	"actByID": actByID, "actOf": actOf, "actsOfAccount": actsOfAccount, "statusActs": statusActs, "dueActs": dueActs, "wantedStatus": wantedStatus,
	"countHalts": countHalts, "openHalts": openHalts,
	"assetPage": assetPage, "fundingOf": fundingOf,
}

// WindowRowsOf is how many rows are read for the first page of a list of one user.
func WindowRowsOf(q ListQuery) int { return q.rowsOf(q.windowOfOne(), q.Size+1) }

// Start is a compare-and-set out of INIT for [Store.Together].
type Start struct {
	ReqID       string
	InitTimeout time.Duration
}

// Creation is a create for [Store.Together].
type Creation struct {
	Request transfer.Request
	Terms   transfer.Terms
}

// Together makes the writes in one transaction: each a Start, [transfer.Transition],
// [transfer.Postponement] or Creation. Alone reports those that must be made alone.
func (s *Store) Together(ctx context.Context, all []any) (results []transfer.TransitionResult, alone []bool, err error) {
	writes := make([]write, len(all))
	for i, x := range all {
		switch x := x.(type) {
		case Start:
			writes[i].start = &starting{x.ReqID, x.InitTimeout}
		case transfer.Transition:
			writes[i].move = &x
		case transfer.Postponement:
			writes[i].postpone = &x
		case Creation:
			writes[i].create = newCreation(x.Request, x.Terms)
		}
	}
	for _, r := range s.writeAll(ctx, writes) {
		_, repeat := errors.AsType[batch.AloneError](r.Err)
		results, alone = append(results, transfer.TransitionResult{Done: r.Value.done, Now: r.Value.now}), append(alone, repeat)
		if r.Err != nil && !repeat {
			err = r.Err
		}
	}
	return results, alone, err
}

const openHalt = `
insert into transfer_halt (scope, user_id, asset_id, evidence)
values ($1, nullif($2::bigint, 0), nullif($3::integer, 0), $4::text::jsonb)`

// OpenHalt opens a halt beside the open ones; each stays until it is resumed. It uses the scope, user,
// asset and evidence of h.
func (s *Store) OpenHalt(ctx context.Context, h Halt) error {
	_, err := s.db.Exec(ctx, openHalt, h.Scope, h.UserID, h.AssetID, string(h.Evidence))
	return results.Wrap(err, "halt %s", h.Scope)
}
