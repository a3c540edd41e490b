package transferload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// user follows one transfer from the first post to its end.
type user struct {
	env     *stack.Stack
	ledger  *Ledger
	script  *Script
	timeout retry.Timeout
}

// run posts the transfer until the answer is clear, carries out the habits, and polls until
// the transfer is terminal.
func (u *user) run(ctx context.Context) {
	defer u.set(func(t *Answers) { t.Done = true })
	if u.script.invalid {
		u.postWrong(ctx)
	}
	if u.script.abandoned {
		u.abandon(ctx)
	} else {
		u.postCopies(ctx)
	}
	if u.script.Answers().ReqID == "" {
		u.set(func(t *Answers) { t.Refused = ctx.Err() == nil })
		return
	}
	var others sync.WaitGroup
	if u.script.conflict {
		others.Go(func() { u.postAnother(ctx) })
	}
	if u.script.peek {
		others.Go(func() { u.askAsOtherUser(ctx) })
	}
	for pauses := (retry.Backoff{Next: u.script.pace}); ctx.Err() == nil && !u.isFinished(ctx); {
		pauses.Pause(ctx)
	}
	if u.script.again && ctx.Err() == nil && !u.isStale() {
		u.ledger.Count(Again)
		u.post(ctx)
	}
	others.Wait()
	u.ask(ctx) // once more: a final answer must not change
}

func (u *user) set(change func(*Answers)) {
	u.script.mu.Lock()
	defer u.script.mu.Unlock()
	change(&u.script.answers)
}

// answer is the result of one request. Status 0: no answer came.
type answer struct {
	status int
	text   []byte
	begun  time.Time

	generation int // of the database at the time of the request

	ReqID  string          `json:"req_id"`
	State  string          `json:"state"`
	Code   string          `json:"code"`
	Reason transfer.Reason `json:"reason"`
	Asset  string          `json:"asset"`
	Amount string          `json:"amount"`
}

// isUnclear reports whether the user cannot know the effect of the request.
func (a answer) isUnclear() bool { return a.status == 0 || a.status >= 500 }

func (a answer) isClear() bool { return !a.isUnclear() }

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, bytes.TrimSpace(a.text)) }

// terminalState returns the end in the answer; nil: the transfer is not terminal.
func (a answer) terminalState() *End {
	i := slices.IndexFunc(transfer.States(), func(s transfer.State) bool { return s.String() == a.State })
	if i < 0 || !transfer.States()[i].Terminal() {
		return nil
	}
	e := &End{State: transfer.States()[i], Reason: a.Reason}
	if a.status == http.StatusUnprocessableEntity {
		e.Reason = transfer.Reason(a.Code)
	}
	return e
}

// call makes one request as the user of that id.
func (u *user) call(ctx context.Context, userID int64, method, path string, body any) (a answer) {
	ctx, done := u.timeout.Context(ctx)
	defer done()
	begun := time.Now()
	status, text, err := u.env.CallAsUser(ctx, userID, method, path, body)
	if err != nil || json.Unmarshal(text, &a) != nil {
		return answer{begun: begun} // no answer, or cut off
	}
	a.status, a.text, a.begun = status, text, begun
	return a
}

// insist repeats the request until the answer is clear.
func (u *user) insist(ctx context.Context, method, path string, body any) answer {
	return retry.Until(ctx, func() answer { return u.call(ctx, u.script.UserID, method, path, body) }, answer.isClear)
}

func (u *user) contradict(format string, args ...any) {
	u.ledger.contradict(u.script.UserID, u.script.Answers().ReqID, fmt.Sprintf("cid %q: ", u.script.CID)+fmt.Sprintf(format, args...))
}

// postCopies posts the transfer several times at once, each copy until it is answered.
func (u *user) postCopies(ctx context.Context) {
	if u.script.copies > 1 {
		u.ledger.Count(Repeats)
	}
	var copies sync.WaitGroup
	for range u.script.copies {
		copies.Go(func() { u.post(ctx) })
	}
	copies.Wait()
}

func (u *user) post(ctx context.Context) {
	var pauses retry.Backoff
	for ctx.Err() == nil {
		begun := u.ledger.Generation()
		if u.isStale() { // another copy was answered before a restore: a user with a final answer posts no more
			u.repeatAfterRestore(ctx)
			return
		}
		a := u.call(ctx, u.script.UserID, http.MethodPost, u.script.urlPath(), u.script.body())
		switch {
		case a.isUnclear():
			pauses.Pause(ctx)
		case u.databaseReplacedSince(begun), u.isStale(): // across a restore: it is posted again
		default:
			a.generation = begun
			u.recordAcceptance(a)
			return
		}
	}
}

// recordAcceptance records the answer to a post. A cid must keep its first req_id, and must
// be stored only once.
func (u *user) recordAcceptance(a answer) {
	fresh := a.Code != string(transfer.DuplicateRequest)
	ok := a.status == http.StatusOK || fresh && (a.status == http.StatusAccepted || a.status == http.StatusUnprocessableEntity)
	if !ok || a.ReqID == "" {
		u.contradict("posted: got %s, want it accepted, or refused by a ledger", a)
		return
	}
	var first string
	var stored int
	u.set(func(t *Answers) {
		if t.ReqID == "" {
			t.ReqID, t.ReqAt, t.Generation = a.ReqID, time.Now(), a.generation
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
	var a answer
	var pauses retry.Backoff
	for a.isUnclear() {
		if ctx.Err() != nil || u.isStale() {
			return // the transfer may be lost, and the other one would then be new
		}
		a = u.call(ctx, u.script.UserID, http.MethodPost, u.script.urlPath(), u.script.conflictingRequest())
		pauses.Pause(ctx)
	}
	u.ledger.Count(Conflicts)
	if a.status != http.StatusConflict || a.Code != string(transfer.CIDConflict) {
		u.contradict("the cid with another amount: got %s, want 409 CID_CONFLICT", a)
	}
}

// postWrong posts invalid requests, which must be refused in every state.
func (u *user) postWrong(ctx context.Context) {
	for code, body := range u.script.invalidRequests() {
		a := u.insist(ctx, http.MethodPost, u.script.urlPath(), body)
		if a.isUnclear() {
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
	for ctx.Err() == nil {
		a := u.call(ctx, u.script.UserID+1_000_000, http.MethodGet, "/api/v1/internal_transfer/"+u.script.Answers().ReqID, nil)
		if a.isUnclear() {
			retry.Pause(ctx, u.script.pace)
			continue
		}
		u.ledger.Count(Peeks)
		if a.status != http.StatusNotFound {
			u.contradict("another user asked for it: got %s, want 404", a)
		}
		return
	}
}

// ask asks for the state and reports whether it is terminal.
func (u *user) ask(ctx context.Context) (final bool) {
	begun := u.ledger.Generation()
	a := u.call(ctx, u.script.UserID, http.MethodGet, "/api/v1/internal_transfer/"+u.script.Answers().ReqID, nil)
	a.generation = begun
	switch {
	case a.isUnclear(), u.databaseReplacedSince(begun), u.isStale(): // checked at the end of the run
		return false
	case a.status != http.StatusOK || a.Asset != u.script.Asset.Name || a.Amount != u.script.amount(u.script.Units):
		u.contradict("asked for what was accepted, %s %s: got %s", u.script.amount(u.script.Units), u.script.Asset.Name, a)
		return false
	}
	return u.recordAnswer(a)
}

// recordAnswer compares an answer with earlier ones and reports whether it is final. A final
// answer must never change. A request that began after it must get the same.
func (u *user) recordAnswer(a answer) (final bool) {
	end := a.terminalState()
	var before Answers
	u.set(func(t *Answers) {
		before = *t
		if end != nil && t.End == nil {
			t.End, t.EndAt, t.EndGeneration = end, time.Now(), a.generation
		}
	})
	switch {
	case before.End == nil:
	case end != nil && *end != *before.End:
		u.contradict("it was %s, and now it is %s", before.End, end)
	case end == nil && a.begun.After(before.EndAt):
		u.contradict("it was %s, and a question put after that got %s", before.End, a)
	}
	return end != nil
}
