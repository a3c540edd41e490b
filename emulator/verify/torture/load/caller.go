package load

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// caller follows one intent from the first post to its final state.
type caller struct {
	client.Follower[*Intent, End]
}

func newCaller(s *stack.Stack, l *Ledger, in *Intent, account string) *caller {
	c := &caller{client.Follower[*Intent, End]{
		Client: client.NewClient(s, account, l.Generation), Habits: in.Habits, Request: in, Ledger: l,
		Acts:  client.Acts{Repeats: Repeats, Again: Again, Conflicts: Conflicts},
		Owner: string(in.Submitter), Name: fmt.Sprintf("request %q", in.RequestID),
		Posts: client.Posts{
			Path: "/api/v1/tx", Body: in.Body(), Submit: in.submit, Wrong: in.wrongRequests(),
			Conflicting: in.conflictingRequest(), ConflictCode: "REQUEST_ID_CONFLICT",
		},
	}}
	c.Kind = c
	return c
}

func reached(a client.Answer) End {
	return End{State: txmanager.State(a.State), Sub: txmanager.SubState(a.SubState)}
}

// RecordPost records a clear answer to a post. After a restore the database gives a txId, or answers that the chain has
// the request. In PROTECT it says neither.
func (c *caller) RecordPost(ctx context.Context, a client.Answer, restored bool) (clear bool) {
	before := c.Request.Answers()
	known := before.ID != "" && before.IDAt.Before(a.Begun)
	switch {
	case a.Generation > 0 && a.Code == "REQUEST_RECORDED":
		return c.recordStoredRequest(ctx, a.Generation)
	case a.Status == http.StatusAccepted, a.Status == http.StatusOK:
		c.RecordID(a.TxID, a.Status == http.StatusAccepted, a)
	case a.Code == "SUBMITTER_PROTECTED" && restored:
		return false
	case a.Code == "SUBMITTER_PROTECTED" && !known:
	default:
		c.Contradict("posted (accepted before: %t): got %s", known, a)
	}
	return true
}

func (c *caller) Poll(ctx context.Context) (final bool) {
	a, ok := c.AskCurrent(ctx, "/api/v1/tx/"+c.Request.Answers().ID)
	switch {
	case !ok:
		return false
	case a.Status != http.StatusOK:
		c.Contradict("asked for what was accepted: got %s", a)
		return false
	case a.Generation > 0 && a.SubState == "HELD": // held: posting the request again releases it
		c.Post(ctx)
		return false
	}
	return c.recordAnswer(a)
}

// recordAnswer compares an answer with earlier ones and reports whether its state is final.
func (c *caller) recordAnswer(a client.Answer) (final bool) {
	now := reached(a)
	if !now.State.Terminal() {
		return c.RecordState(nil, a)
	}
	return c.RecordState(&now, a)
}

// cancel asks for a cancel until the answer is definite.
func (c *caller) cancel(ctx context.Context) {
	if c.Request.cancelAfter == 0 {
		return
	}
	retry.Pause(ctx, c.Request.cancelAfter)
	c.Ledger.Count(Cancels)
	retry.Await(ctx, c.Pace, func() (ended bool) {
		begun := c.Ledger.Generation()
		if c.IsStale() {
			return true // the request may be lost: do not cancel it
		}
		a := c.Insist(ctx, http.MethodPost, "/api/v1/tx/"+c.Request.Answers().ID+"/cancel", nil)
		return a.IsUnclear() || c.Replaced(begun) || c.recordCancelAnswer(a)
	})
}

// recordCancelAnswer reports whether the answer was definite.
func (c *caller) recordCancelAnswer(a client.Answer) (definite bool) {
	definite = a.Status == http.StatusOK && (a.Outcome == "CANCELLED" || a.Outcome == "EXECUTED")
	pending := a.Status == http.StatusAccepted && a.Outcome == "PENDING"
	if !definite && !pending {
		c.Contradict("cancelled: got %s, want CANCELLED, EXECUTED or PENDING", a)
		return true
	}
	if final := c.recordAnswer(a); final != definite {
		c.Contradict("cancelled: got %s, which is definite: %t, and final: %t", a, definite, final)
	}
	if definite {
		c.Request.Change(func(t *Answers) { t.Outcome = a.Outcome })
	}
	return definite
}
