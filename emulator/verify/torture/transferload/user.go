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
		Owner: UserName(script.UserID), Name: fmt.Sprintf("cid %q", script.CID),
		Posts: client.Posts{
			Path: script.urlPath(), Body: script.body(), Wrong: script.wrongRequests(),
			Conflicting: script.conflictingRequest(), ConflictCode: string(transfer.CIDConflict),
		},
	}
	u.Client = u.clientOf(script.UserID)
	return u
}

func (u *user) clientOf(userID int64) client.Client {
	return client.Client{Generation: u.Ledger.Generation, Call: func(ctx context.Context, method, path string, body any) (int, []byte, error) {
		return u.env.CallAsUser(ctx, userID, method, path, body)
	}}
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

func (u *user) RecordPost(_ context.Context, a client.Answer, restored bool) (clear bool) {
	fresh := a.Code != string(transfer.DuplicateRequest) // stored just then
	accepted := a.Status == http.StatusOK || fresh && (a.Status == http.StatusAccepted || a.Status == http.StatusUnprocessableEntity)
	if !accepted || a.ReqID == "" {
		u.Contradict("posted (after a restore: %t): got %s, want it accepted, or refused by a ledger", restored, a)
		return true
	}
	u.RecordID(a.ReqID, fresh, a)
	u.RecordState(terminalState(a), a)
	return true
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
