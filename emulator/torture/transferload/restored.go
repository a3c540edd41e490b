package transferload

import (
	"context"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Restored says that the database is another from here on, whose backup was begun at the
// time given: what it answered since may be lost. Each user without an end repeats the
// cid, and the teller books again what was booked in Funding.
func (l *Ledger) Restored(backedUp time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backups = append(l.backups, backedUp)
}

// Generation counts the restores so far.
func (l *Ledger) Generation() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.backups)
}

// MayBeLost says that what the database of that generation answered at a time was
// answered after the backup that replaced it was begun. What was answered before is kept,
// and nothing excuses its change.
func (l *Ledger) MayBeLost(generation int, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return generation < len(l.backups) && !at.Before(l.backups[generation])
}

// EndMayBeLost says so of the end that the user was told.
func (l *Ledger) EndMayBeLost(t Answers) bool {
	return t.End != nil && l.MayBeLost(t.EndGeneration, t.EndAt)
}

// isStale says that the user was heard last by a database that was replaced.
func (u *user) isStale() bool {
	answers := u.script.Answers()
	return answers.ReqID != "" && answers.Generation != u.ledger.Generation()
}

// databaseReplacedSince says that the database was replaced while a request was under way: its answer
// says nothing of either.
func (u *user) databaseReplacedSince(begun int) bool { return u.ledger.Generation() != begun }

// repeatAfterRestore posts the cid again until the database of now has answered. It has
// the transfer by its req_id, or it has lost it and gives it another.
func (u *user) repeatAfterRestore(ctx context.Context) {
	for ctx.Err() == nil && u.isStale() && u.script.Answers().End == nil {
		begun := u.ledger.Generation()
		if a := u.insist(ctx, http.MethodPost, u.script.urlPath(), u.script.body()); !a.isUnclear() && !u.databaseReplacedSince(begun) {
			u.recordRepeat(a, begun)
		}
	}
}

// recordRepeat takes note of the answer to a cid that was posted again after a restore. What
// was accepted before the backup keeps its req_id.
func (u *user) recordRepeat(a answer, generation int) {
	fresh := a.Code != string(transfer.DuplicateRequest)
	ok := a.status == http.StatusOK || fresh && (a.status == http.StatusAccepted || a.status == http.StatusUnprocessableEntity)
	before := u.script.Answers()
	switch {
	case !ok || a.ReqID == "":
		u.contradict("repeated after a restore: got %s, want it accepted, or refused by a ledger", a)
		u.set(func(t *Answers) { t.Generation = generation })
		return
	case a.ReqID != before.ReqID && !u.ledger.MayBeLost(before.Generation, before.ReqAt):
		u.contradict("accepted before the backup, and repeated after the restore: got req_id %s, and before %s", a.ReqID, before.ReqID)
	}
	u.set(func(t *Answers) {
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
	a.generation = generation
	u.recordAnswer(a)
}

// isFinished asks, and repeats first what a restore may have lost.
func (u *user) isFinished(ctx context.Context) bool {
	u.repeatAfterRestore(ctx)
	return u.script.Answers().End != nil || u.ask(ctx)
}
