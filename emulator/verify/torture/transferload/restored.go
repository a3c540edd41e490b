package transferload

import (
	"context"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/client"
)

// isStale reports whether the user's last answer came from a database that was replaced.
func (u *user) isStale() bool { return u.ledger.IsStale(u.script.Answers()) }

// repeatAfterRestore posts the cid again until the current database has answered. It either
// has the transfer with its req_id, or lost it and gives a new one.
func (u *user) repeatAfterRestore(ctx context.Context) {
	for ctx.Err() == nil && u.isStale() && u.script.Answers().End == nil {
		begun := u.ledger.Generation()
		if a := u.Insist(ctx, http.MethodPost, u.script.urlPath(), u.script.body()); !a.IsUnclear() && !u.Replaced(begun) {
			u.recordRepeat(a)
		}
	}
}

// recordRepeat records the answer to a cid that was posted again after a restore. A transfer
// accepted before the backup must keep its req_id.
func (u *user) recordRepeat(a client.Answer) {
	fresh, ok := isAccepted(a)
	before := u.script.Answers()
	switch {
	case !ok:
		u.contradict("repeated after a restore: got %s, want it accepted, or refused by a ledger", a)
		u.script.Change(func(t *Answers) { t.Generation = a.Generation })
		return
	case a.ReqID != before.ID && !u.ledger.MayBeLost(before.Generation, before.IDAt):
		u.contradict("accepted before the backup, and repeated after the restore: got req_id %s, and before %s", a.ReqID, before.ID)
	}
	u.script.Change(func(t *Answers) {
		if a.ReqID != t.ID {
			t.Lost = append(t.Lost, t.ID)
			t.Fresh = 0
			if fresh {
				t.Fresh = 1
			}
			t.IDAt = time.Now()
		}
		t.ID, t.Generation = a.ReqID, a.Generation
	})
	u.recordAnswer(a)
}

// isFinished polls once, after repeating what a restore may have lost.
func (u *user) isFinished(ctx context.Context) bool {
	u.repeatAfterRestore(ctx)
	return u.script.Answers().End != nil || u.ask(ctx)
}
