package transferload

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// user follows one transfer from the first post to its end.
type user struct {
	client.Client
	env     *stack.Stack
	ledger  *Ledger
	script  *Script
	timeout retry.Timeout // of calls to the store
}

func newUser(s *stack.Stack, l *Ledger, script *Script) *user {
	u := &user{env: s, ledger: l, script: script}
	u.Client = u.clientOf(script.UserID)
	return u
}

func (u *user) clientOf(userID int64) client.Client {
	return client.Client{Generation: u.ledger.Generation, Call: func(ctx context.Context, method, path string, body any) (int, []byte, error) {
		return u.env.CallAsUser(ctx, userID, method, path, body)
	}}
}

// run posts the transfer until the answer is clear, carries out the habits, and polls until
// the transfer is terminal.
func (u *user) run(ctx context.Context) {
	defer u.script.Change(func(t *Answers) { t.Done = true })
	if u.script.invalid {
		u.postWrong(ctx)
	}
	if u.script.abandoned {
		u.abandon(ctx)
	} else {
		u.postCopies(ctx)
	}
	if u.script.Answers().ID == "" {
		u.script.Change(func(t *Answers) { t.Refused = ctx.Err() == nil })
		return
	}
	var others sync.WaitGroup
	if u.script.conflict {
		others.Go(func() { u.postAnother(ctx) })
	}
	if u.script.peek {
		others.Go(func() { u.askAsOtherUser(ctx) })
	}
	retry.Poll(ctx, u.script.pace, func() bool { return u.isFinished(ctx) })
	if u.script.again && ctx.Err() == nil && !u.isStale() {
		u.ledger.Count(Again)
		u.post(ctx)
	}
	others.Wait()
	u.ask(ctx) // once more: a final answer must not change
}

// terminalState returns the end in the answer; nil: the transfer is not terminal.
func terminalState(a client.Answer) *End {
	i := slices.IndexFunc(transfer.States(), func(s transfer.State) bool { return s.String() == a.State })
	if i < 0 || !transfer.States()[i].Terminal() {
		return nil
	}
	e := &End{State: transfer.States()[i], Reason: a.Reason}
	if a.Status == http.StatusUnprocessableEntity {
		e.Reason = transfer.Reason(a.Code)
	}
	return e
}

func (u *user) contradict(format string, args ...any) {
	u.ledger.contradict(u.script.UserID, u.script.Answers().ID, fmt.Sprintf("cid %q: ", u.script.CID)+fmt.Sprintf(format, args...))
}

// postCopies posts the transfer several times at once, each copy until it is answered.
func (u *user) postCopies(ctx context.Context) {
	if u.script.copies > 1 {
		u.ledger.Count(Repeats)
	}
	client.Concurrently(u.script.copies, func() { u.post(ctx) })
}

func (u *user) post(ctx context.Context) {
	var pauses retry.Backoff
	for ctx.Err() == nil {
		begun := u.ledger.Generation()
		if u.isStale() { // another copy was answered before a restore: a user with a final answer posts no more
			u.repeatAfterRestore(ctx)
			return
		}
		a := u.Ask(ctx, http.MethodPost, u.script.urlPath(), u.script.body())
		switch {
		case a.IsUnclear():
			pauses.Pause(ctx)
		case u.Replaced(begun), u.isStale(): // across a restore: it is posted again
		default:
			u.recordAcceptance(a)
			return
		}
	}
}

// isAccepted reports whether an answer to a post says that the transfer is stored, and whether it was stored just then.
func isAccepted(a client.Answer) (fresh, ok bool) {
	fresh = a.Code != string(transfer.DuplicateRequest)
	ok = a.Status == http.StatusOK || fresh && (a.Status == http.StatusAccepted || a.Status == http.StatusUnprocessableEntity)
	return fresh, ok && a.ReqID != ""
}

// recordAcceptance records the answer to a post. A cid must keep its first req_id, and must
// be stored only once.
func (u *user) recordAcceptance(a client.Answer) {
	fresh, ok := isAccepted(a)
	if !ok {
		u.contradict("posted: got %s, want it accepted, or refused by a ledger", a)
		return
	}
	var first string
	var stored int
	u.script.Change(func(t *Answers) {
		if t.ID == "" {
			t.ID, t.IDAt, t.Generation = a.ReqID, time.Now(), a.Generation
		}
		if fresh {
			t.Fresh++
		}
		first, stored = t.ID, t.Fresh
	})
	if a.ReqID != first {
		u.contradict("posted again: got req_id %s, and before %s", a.ReqID, first)
	}
	if stored > 1 {
		u.contradict("%d answers said that it was stored just then: want one, and DUPLICATE_REQUEST after it", stored)
	}
	u.recordAnswer(a)
}

// postAnother posts the same cid with another amount. It stops at a restore: the transfer may be lost
// then, and the other one would be new.
func (u *user) postAnother(ctx context.Context) {
	begun := u.ledger.Generation()
	if u.isStale() {
		return
	}
	post := func() client.Answer {
		if u.Replaced(begun) { // during the pause before a repeat
			return client.Answer{}
		}
		return u.Ask(ctx, http.MethodPost, u.script.urlPath(), u.script.conflictingRequest())
	}
	a := retry.Until(ctx, post, func(a client.Answer) bool { return a.IsClear() || u.Replaced(begun) })
	if a.IsUnclear() || u.Replaced(begun) {
		return
	}
	u.ledger.Count(Conflicts)
	if a.Status != http.StatusConflict || a.Code != string(transfer.CIDConflict) {
		u.contradict("the cid with another amount: got %s, want 409 CID_CONFLICT", a)
	}
}

// postWrong posts invalid requests, which must be refused in every state.
func (u *user) postWrong(ctx context.Context) {
	for code, body := range u.script.invalidRequests() {
		a := u.Insist(ctx, http.MethodPost, u.script.urlPath(), body)
		if a.IsUnclear() {
			return
		}
		u.ledger.Count(Invalid)
		if a.Code != code || a.ReqID != "" {
			u.contradict("an invalid request %v: got %s, want %s", body, a, code)
		}
	}
}

// askAsOtherUser asks for the transfer as another user, which must be refused.
func (u *user) askAsOtherUser(ctx context.Context) {
	other := u.clientOf(u.script.UserID + 1_000_000)
	a := other.Insist(ctx, http.MethodGet, "/api/v1/internal_transfer/"+u.script.Answers().ID, nil)
	if a.IsUnclear() {
		return
	}
	u.ledger.Count(Peeks)
	if a.Status != http.StatusNotFound {
		u.contradict("another user asked for it: got %s, want 404", a)
	}
}

// ask asks for the state and reports whether it is terminal.
func (u *user) ask(ctx context.Context) (final bool) {
	begun := u.ledger.Generation()
	a := u.Ask(ctx, http.MethodGet, "/api/v1/internal_transfer/"+u.script.Answers().ID, nil)
	switch {
	case a.IsUnclear(), u.Replaced(begun), u.isStale(): // checked at the end of the run
		return false
	case a.Status != http.StatusOK || a.Asset != u.script.Asset.Name || a.Amount != u.script.amount(u.script.Units):
		u.contradict("asked for what was accepted, %s %s: got %s", u.script.amount(u.script.Units), u.script.Asset.Name, a)
		return false
	}
	return u.recordAnswer(a)
}

// recordAnswer compares an answer with earlier ones and reports whether it is final.
func (u *user) recordAnswer(a client.Answer) (final bool) {
	end := terminalState(a)
	if contradiction := u.script.RecordEnd(end, a); contradiction != "" {
		u.contradict("%s", contradiction)
	}
	return end != nil
}
