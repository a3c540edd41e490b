package movers

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
	"github.com/fencepost/fencepost/emulator/torture/patience"
	"github.com/fencepost/fencepost/shared/transfer"
)

// user sees one wish through.
type user struct {
	house    *stack.Stack
	ledger   *Ledger
	wish     *Wish
	patience patience.Patience
}

// live posts the wish until the answer is clear, does what its script says, and asks
// until it knows the end.
func (u *user) live(ctx context.Context) {
	defer u.set(func(t *Told) { t.Done = true })
	if u.wish.invalid {
		u.postWrong(ctx)
	}
	if u.wish.left {
		u.leave(ctx)
	} else {
		u.postCopies(ctx)
	}
	if u.wish.Told().ReqID == "" {
		u.set(func(t *Told) { t.Refused = ctx.Err() == nil })
		return
	}
	var besides sync.WaitGroup
	if u.wish.conflict {
		besides.Go(func() { u.postAnother(ctx) })
	}
	if u.wish.peek {
		besides.Go(func() { u.peek(ctx) })
	}
	for pauses := (patience.Pauses{Next: u.wish.pace}); ctx.Err() == nil && !u.ended(ctx); {
		pauses.Pause(ctx)
	}
	if u.wish.again && ctx.Err() == nil && !u.stale() {
		u.ledger.did(Again)
		u.post(ctx)
	}
	besides.Wait()
	u.ask(ctx) // once more: a final answer never changes
}

func (u *user) set(change func(*Told)) {
	u.wish.mu.Lock()
	defer u.wish.mu.Unlock()
	change(&u.wish.told)
}

// answer is what came of one request; status 0: nothing was heard.
type answer struct {
	status int
	text   []byte
	begun  time.Time

	generation int // of the database when the request was sent

	ReqID  string          `json:"req_id"`
	State  string          `json:"state"`
	Code   string          `json:"code"`
	Reason transfer.Reason `json:"reason"`
	Asset  string          `json:"asset"`
	Amount string          `json:"amount"`
}

// unclear says that the user cannot know what the request did.
func (a answer) unclear() bool { return a.status == 0 || a.status >= 500 }

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, bytes.TrimSpace(a.text)) }

// end is the end that the answer tells; nil: none.
func (a answer) end() *End {
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
	ctx, done := u.patience.Bound(ctx)
	defer done()
	begun := time.Now()
	status, text, err := u.house.CallAsUser(ctx, userID, method, path, body)
	if err != nil || json.Unmarshal(text, &a) != nil {
		return answer{begun: begun} // nothing, or cut off
	}
	a.status, a.text, a.begun = status, text, begun
	return a
}

// insist makes the request until the answer is clear.
func (u *user) insist(ctx context.Context, method, path string, body any) (a answer) {
	var pauses patience.Pauses
	for ctx.Err() == nil {
		if a = u.call(ctx, u.wish.UserID, method, path, body); !a.unclear() {
			break
		}
		pauses.Pause(ctx)
	}
	return a
}

func (u *user) lie(format string, args ...any) {
	u.ledger.lie(u.wish.UserID, u.wish.Told().ReqID, fmt.Sprintf("cid %q: ", u.wish.CID)+fmt.Sprintf(format, args...))
}

// postCopies posts the wish several times at once; each until it is answered.
func (u *user) postCopies(ctx context.Context) {
	if u.wish.copies > 1 {
		u.ledger.did(Repeats)
	}
	var copies sync.WaitGroup
	for range u.wish.copies {
		copies.Go(func() { u.post(ctx) })
	}
	copies.Wait()
}

func (u *user) post(ctx context.Context) {
	var pauses patience.Pauses
	for ctx.Err() == nil {
		begun := u.ledger.Generation()
		if u.stale() { // another copy was answered before a restore: who knows the end posts nothing more
			u.repeatsAfterRestore(ctx)
			return
		}
		a := u.call(ctx, u.wish.UserID, http.MethodPost, u.wish.path(), u.wish.body())
		switch {
		case a.unclear():
			pauses.Pause(ctx)
		case u.overtaken(begun), u.stale(): // by a restore: it is posted again
		default:
			a.generation = begun
			u.accepted(a)
			return
		}
	}
}

// accepted takes note of an answer to a post: one cid has one req_id for ever, and is
// stored once.
func (u *user) accepted(a answer) {
	fresh := a.Code != string(transfer.DuplicateRequest)
	ok := a.status == http.StatusOK || fresh && (a.status == http.StatusAccepted || a.status == http.StatusUnprocessableEntity)
	if !ok || a.ReqID == "" {
		u.lie("posted: got %s, want it accepted, or refused by a ledger", a)
		return
	}
	var first string
	var stored int
	u.set(func(t *Told) {
		if t.ReqID == "" {
			t.ReqID, t.ReqAt, t.Generation = a.ReqID, time.Now(), a.generation
		}
		if fresh {
			t.Fresh++
		}
		first, stored = t.ReqID, t.Fresh
	})
	if a.ReqID != first {
		u.lie("posted again: got req_id %s, and before %s", a.ReqID, first)
	}
	if stored > 1 {
		u.lie("%d answers said that it was stored just then: want one, and DUPLICATE_REQUEST after it", stored)
	}
	u.heard(a)
}

// postAnother tries the cid with another amount.
func (u *user) postAnother(ctx context.Context) {
	var a answer
	var pauses patience.Pauses
	for a.unclear() {
		if ctx.Err() != nil || u.stale() {
			return // the transfer may be lost, and the other one would be new
		}
		a = u.call(ctx, u.wish.UserID, http.MethodPost, u.wish.path(), u.wish.another())
		pauses.Pause(ctx)
	}
	u.ledger.did(Conflicts)
	if a.status != http.StatusConflict || a.Code != string(transfer.CIDConflict) {
		u.lie("the cid with another amount: got %s, want 409 CID_CONFLICT", a)
	}
}

// postWrong posts what must be refused, whatever state the house is in.
func (u *user) postWrong(ctx context.Context) {
	for code, body := range u.wish.wrong() {
		a := u.insist(ctx, http.MethodPost, u.wish.path(), body)
		if a.unclear() {
			return
		}
		u.ledger.did(Invalid)
		if a.Code != code || a.ReqID != "" {
			u.lie("an invalid request %v: got %s, want %s", body, a, code)
		}
	}
}

// peek asks for the transfer as somebody else.
func (u *user) peek(ctx context.Context) {
	for ctx.Err() == nil {
		a := u.call(ctx, u.wish.UserID+1_000_000, http.MethodGet, "/api/v1/internal_transfer/"+u.wish.Told().ReqID, nil)
		if a.unclear() {
			patience.Pause(ctx, u.wish.pace)
			continue
		}
		u.ledger.did(Peeks)
		if a.status != http.StatusNotFound {
			u.lie("somebody else asked for it: got %s, want 404", a)
		}
		return
	}
}

// ask asks for the state, and says whether it is final.
func (u *user) ask(ctx context.Context) (final bool) {
	begun := u.ledger.Generation()
	a := u.call(ctx, u.wish.UserID, http.MethodGet, "/api/v1/internal_transfer/"+u.wish.Told().ReqID, nil)
	a.generation = begun
	switch {
	case a.unclear(), u.overtaken(begun), u.stale(): // it is judged at the end
		return false
	case a.status != http.StatusOK || a.Asset != u.wish.Asset.Name || a.Amount != u.wish.amount(u.wish.Units):
		u.lie("asked for what was accepted, %s %s: got %s", u.wish.amount(u.wish.Units), u.wish.Asset.Name, a)
		return false
	}
	return u.heard(a)
}

// heard compares what an answer says with what was said before: a final answer is
// the last word, and a question that was put after it was heard gets the same.
func (u *user) heard(a answer) (final bool) {
	end := a.end()
	var before Told
	u.set(func(t *Told) {
		before = *t
		if end != nil && t.End == nil {
			t.End, t.EndAt, t.EndGeneration = end, time.Now(), a.generation
		}
	})
	switch {
	case before.End == nil:
	case end != nil && *end != *before.End:
		u.lie("it was %s, and now it is %s", before.End, end)
	case end == nil && a.begun.After(before.EndAt):
		u.lie("it was %s, and a question put after that got %s", before.End, a)
	}
	return end != nil
}
