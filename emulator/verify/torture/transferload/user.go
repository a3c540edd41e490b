package transferload

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// user follows one transfer from the first post to its end.
type user struct {
	client.Follower[*Script, End]
	env     *stack.Stack
	timeout retry.Timeout // of calls to the store
}

func newUser(s *stack.Stack, l *Ledger, script *Script) *user {
	u := &user{env: s}
	u.Follower = client.Follower[*Script, End]{
		Habits: script.Habits, Acts: client.Acts{Repeats: Repeats, Again: Again, Conflicts: Conflicts}, Kind: u, Request: script, Ledger: &l.Record,
	}
	u.Client = u.clientOf(script.UserID)
	return u
}

func (u *user) clientOf(userID int64) client.Client {
	return client.Client{Generation: u.Ledger.Generation, Call: func(ctx context.Context, method, path string, body any) (int, []byte, error) {
		return u.env.CallAsUser(ctx, userID, method, path, body)
	}}
}

// run posts the transfer until the answer is clear, carries out the habits, and polls until
// the transfer is terminal.
func (u *user) run(ctx context.Context) {
	u.Follow(ctx, func(ctx context.Context) {
		if u.Invalid {
			u.postWrong(ctx)
		}
		if u.Request.abandoned {
			u.abandon(ctx)
		} else {
			u.PostCopies(ctx)
		}
	}, u.askAsOtherUser)
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

// Contradict records a contradiction in the answers about the transfer.
func (u *user) Contradict(format string, args ...any) {
	s := u.Request
	u.Ledger.Contradict(UserName(s.UserID), s.Answers().ID, fmt.Sprintf("cid %q: ", s.CID)+fmt.Sprintf(format, args...))
}

// Submit posts the transfer once.
func (u *user) Submit(ctx context.Context) client.Answer {
	return u.Ask(ctx, http.MethodPost, u.Request.urlPath(), u.Request.body())
}

// isAccepted reports whether an answer to a post says that the transfer is stored, and whether it was stored just then.
func isAccepted(a client.Answer) (fresh, ok bool) {
	fresh = a.Code != string(transfer.DuplicateRequest)
	ok = a.Status == http.StatusOK || fresh && (a.Status == http.StatusAccepted || a.Status == http.StatusUnprocessableEntity)
	return fresh, ok && a.ReqID != ""
}

// RecordAcceptance records a clear answer to a post.
func (u *user) RecordAcceptance(_ context.Context, a client.Answer) {
	fresh, ok := isAccepted(a)
	if !ok {
		u.Contradict("posted: got %s, want it accepted, or refused by a ledger", a)
		return
	}
	u.RecordID(a.ReqID, fresh, a)
	u.RecordState(terminalState(a), a)
}

// RecordRepeat records the answer to a cid that was posted again after a restore. A transfer
// accepted before the backup must keep its req_id.
func (u *user) RecordRepeat(ctx context.Context, a client.Answer) (clear bool) {
	fresh, ok := isAccepted(a)
	before := u.Request.Answers()
	switch {
	case !ok:
		u.Contradict("repeated after a restore: got %s, want it accepted, or refused by a ledger", a)
		u.Request.Change(func(t *Answers) { t.Generation = a.Generation })
		return true
	case before.ID == "", before.Generation == a.Generation: // no database before the restore gave an id
		u.RecordAcceptance(ctx, a)
		return true
	case a.ReqID != before.ID && !u.Ledger.MayBeLost(before.Generation, before.IDAt):
		u.Contradict("accepted before the backup, and repeated after the restore: got req_id %s, and before %s", a.ReqID, before.ID)
	}
	u.Request.Change(func(t *Answers) {
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
	u.RecordState(terminalState(a), a)
	return true
}

// SubmitConflicting posts the same cid with another amount.
func (u *user) SubmitConflicting(ctx context.Context) client.Answer {
	return u.Ask(ctx, http.MethodPost, u.Request.urlPath(), u.Request.conflictingRequest())
}

// CheckConflict checks the answer to another amount.
func (u *user) CheckConflict(a client.Answer) {
	if a.Status != http.StatusConflict || a.Code != string(transfer.CIDConflict) {
		u.Contradict("the cid with another amount: got %s, want 409 CID_CONFLICT", a)
	}
}

// postWrong posts invalid requests, which must be refused in every state.
func (u *user) postWrong(ctx context.Context) {
	for code, body := range u.Request.invalidRequests() {
		a := u.Insist(ctx, http.MethodPost, u.Request.urlPath(), body)
		if a.IsUnclear() {
			return
		}
		u.Ledger.Count(Invalid)
		if a.Code != code || a.ReqID != "" {
			u.Contradict("an invalid request %v: got %s, want %s", body, a, code)
		}
	}
}

// askAsOtherUser asks for the transfer as another user, which must be refused.
func (u *user) askAsOtherUser(ctx context.Context) {
	if !u.Request.peek {
		return
	}
	other := u.clientOf(u.Request.UserID + 1_000_000)
	a := other.Insist(ctx, http.MethodGet, "/api/v1/internal_transfer/"+u.Request.Answers().ID, nil)
	if a.IsUnclear() {
		return
	}
	u.Ledger.Count(Peeks)
	if a.Status != http.StatusNotFound {
		u.Contradict("another user asked for it: got %s, want 404", a)
	}
}

// Poll asks for the state and reports whether it is terminal.
func (u *user) Poll(ctx context.Context) (final bool) {
	a, ok := u.AskCurrent(ctx, "/api/v1/internal_transfer/"+u.Request.Answers().ID)
	if !ok {
		return false
	}
	asset, amount := u.Request.Asset.Name, u.Request.amount(u.Request.Units)
	if a.Status != http.StatusOK || a.Asset != asset || a.Amount != amount {
		u.Contradict("asked for what was accepted, %s %s: got %s", amount, asset, a)
		return false
	}
	return u.RecordState(terminalState(a), a)
}

// abandon acts like a process of another build that dies: it stores the transfer and moves
// it at most to the state where its source has answered. The deployment must finish it.
func (u *user) abandon(ctx context.Context) {
	amount, _ := transfer.ParseAmount(u.Request.amount(u.Request.Units))
	r := transfer.Request{
		ReqID: ulid.Make().String(), CID: u.Request.CID, UserID: u.Request.UserID, From: u.Request.From, To: u.Request.To, Asset: u.Request.Asset.Name, Amount: amount,
	}
	begun := u.Ledger.Generation()
	var created transfer.Created
	create := func() bool {
		once, done := u.timeout.Context(ctx)
		defer done()
		var err error
		created, err = u.env.Transfers.Create(once, r, transfer.Terms{SafetyFactor: 10})
		return err == nil
	}
	if isStored := retry.Until(ctx, create, func(ok bool) bool { return ok }); !isStored {
		return
	}
	u.Request.Change(func(t *Answers) { t.ID, t.Fresh, t.IDAt, t.Generation = r.ReqID, 1, time.Now(), begun })
	u.Ledger.Count(Abandoned)
	once, done := u.timeout.Context(ctx)
	defer done()
	if u.Request.steps == 0 || !u.move(once, r.ReqID, transfer.Init, transfer.SourcePending) || u.Request.steps == 1 {
		return
	}
	var source transfer.Ledger = u.env.Funding
	if u.Request.From == transfer.Spot {
		source = u.env.Core.Ledger()
	}
	if u.Replaced(begun) {
		return // the copy has no record that allows the withdrawal
	}
	if source.Withdraw(once, created.Transfer.Call()).Verdict == transfer.Success {
		u.move(once, r.ReqID, transfer.SourcePending, transfer.SourceDone)
	}
}

func (u *user) move(ctx context.Context, reqID string, path ...transfer.State) bool {
	m, err := u.env.Transfers.Move(ctx, transfer.Transition{ReqID: reqID, Path: path})
	return err == nil && m.Done
}
