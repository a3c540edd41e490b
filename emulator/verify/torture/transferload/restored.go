package transferload

import (
	"context"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/shared/transfer"
)

// EndMayBeLost reports whether a restore may have lost the user's final answer.
func (l *Ledger) EndMayBeLost(t Answers) bool {
	return t.End != nil && l.MayBeLost(t.EndGeneration, t.EndAt)
}

// isStale reports whether the user's last answer came from a database that was replaced.
func (u *user) isStale() bool {
	answers := u.script.Answers()
	return answers.ReqID != "" && answers.Generation != u.ledger.Generation()
}

// repeatAfterRestore posts the cid again until the current database has answered. It either
// has the transfer with its req_id, or lost it and gives a new one.
func (u *user) repeatAfterRestore(ctx context.Context) {
	for ctx.Err() == nil && u.isStale() && u.script.Answers().End == nil {
		begun := u.ledger.Generation()
		if a := u.Insist(ctx, http.MethodPost, u.script.urlPath(), u.script.body()); !a.IsUnclear() && !u.Replaced(begun) {
			u.recordRepeat(a, begun)
		}
	}
}

// recordRepeat records the answer to a cid that was posted again after a restore. A transfer
// accepted before the backup must keep its req_id.
func (u *user) recordRepeat(a client.Answer, generation int) {
	fresh := a.Code != string(transfer.DuplicateRequest)
	ok := a.Status == http.StatusOK || fresh && (a.Status == http.StatusAccepted || a.Status == http.StatusUnprocessableEntity)
	before := u.script.Answers()
	switch {
	case !ok || a.ReqID == "":
		u.contradict("repeated after a restore: got %s, want it accepted, or refused by a ledger", a)
		u.script.Change(func(t *Answers) { t.Generation = generation })
		return
	case a.ReqID != before.ReqID && !u.ledger.MayBeLost(before.Generation, before.ReqAt):
		u.contradict("accepted before the backup, and repeated after the restore: got req_id %s, and before %s", a.ReqID, before.ReqID)
	}
	u.script.Change(func(t *Answers) {
		if a.ReqID != t.ReqID {
			t.Lost = append(t.Lost, t.ReqID)
			t.Fresh = 0
			if fresh {
				t.Fresh = 1
			}
			t.ReqAt = time.Now()
		}
		t.ReqID, t.Generation = a.ReqID, generation
	})
	a.Generation = generation
	u.recordAnswer(a)
}

// isFinished polls once, after repeating what a restore may have lost.
func (u *user) isFinished(ctx context.Context) bool {
	u.repeatAfterRestore(ctx)
	return u.script.Answers().End != nil || u.ask(ctx)
}
