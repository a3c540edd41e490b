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
	if u.script.Answers().ReqID == "" {
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
	u.ledger.contradict(u.script.UserID, u.script.Answers().ReqID, fmt.Sprintf("cid %q: ", u.script.CID)+fmt.Sprintf(format, args...))
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
			a.Generation = begun
			u.recordAcceptance(a)
			return
		}
	}
}

// recordAcceptance records the answer to a post. A cid must keep its first req_id, and must
// be stored only once.
func (u *user) recordAcceptance(a client.Answer) {
	fresh := a.Code != string(transfer.DuplicateRequest)
	ok := a.Status == http.StatusOK || fresh && (a.Status == http.StatusAccepted || a.Status == http.StatusUnprocessableEntity)
	if !ok || a.ReqID == "" {
		u.contradict("posted: got %s, want it accepted, or refused by a ledger", a)
		return
	}
	var first string
	var stored int
	u.script.Change(func(t *Answers) {
		if t.ReqID == "" {
			t.ReqID, t.ReqAt, t.Generation = a.ReqID, time.Now(), a.Generation
		}
		if fresh {
			t.Fresh++
		}
		first, stored = t.ReqID, t.Fresh
	})
	if a.ReqID != first {
		u.contradict("posted again: got req_id %s, and before %s", a.ReqID, first)
	}
	if stored > 1 {
		u.contradict("%d answers said that it was stored just then: want one, and DUPLICATE_REQUEST after it", stored)
	}
	u.recordAnswer(a)
}

// postAnother posts the same cid with another amount.
func (u *user) postAnother(ctx context.Context) {
	var a client.Answer
	var pauses retry.Backoff
	for a.IsUnclear() {
		if ctx.Err() != nil || u.isStale() {
			return // the transfer may be lost, and the other one would then be new
		}
		a = u.Ask(ctx, http.MethodPost, u.script.urlPath(), u.script.conflictingRequest())
		pauses.Pause(ctx)
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
	a := other.Insist(ctx, http.MethodGet, "/api/v1/internal_transfer/"+u.script.Answers().ReqID, nil)
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
	a := u.Ask(ctx, http.MethodGet, "/api/v1/internal_transfer/"+u.script.Answers().ReqID, nil)
	a.Generation = begun
	switch {
	case a.IsUnclear(), u.Replaced(begun), u.isStale(): // checked at the end of the run
		return false
	case a.Status != http.StatusOK || a.Asset != u.script.Asset.Name || a.Amount != u.script.amount(u.script.Units):
		u.contradict("asked for what was accepted, %s %s: got %s", u.script.amount(u.script.Units), u.script.Asset.Name, a)
		return false
	}
	return u.recordAnswer(a)
}

// recordAnswer compares an answer with earlier ones and reports whether it is final. A final
// answer must never change. A request that began after it must get the same.
func (u *user) recordAnswer(a client.Answer) (final bool) {
	end := terminalState(a)
	var before Answers
	u.script.Change(func(t *Answers) {
		before = *t
		if end != nil && t.End == nil {
			t.End, t.EndAt, t.EndGeneration = end, time.Now(), a.Generation
		}
	})
	switch {
	case before.End == nil:
	case end != nil && *end != *before.End:
		u.contradict("it was %s, and now it is %s", before.End, end)
	case end == nil && a.Begun.After(before.EndAt):
		u.contradict("it was %s, and a question put after that got %s", before.End, a)
	}
	return end != nil
}
