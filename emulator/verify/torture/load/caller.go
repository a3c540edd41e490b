package load

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// caller follows one intent from the first post to its final state.
type caller struct {
	client.Client
	ledger *Ledger
	intent *Intent
}

func newCaller(s *stack.Stack, l *Ledger, in *Intent, account string) *caller {
	return &caller{ledger: l, intent: in, Client: client.Client{Generation: l.Generation, Call: func(ctx context.Context, method, path string, body any) (int, []byte, error) {
		return s.Call(ctx, account, method, path, body)
	}}}
}

// run posts the intent until the answer is clear, carries out its script, and polls until
// the state is final.
func (c *caller) run(ctx context.Context) {
	defer c.intent.Change(func(t *Answers) { t.Done = true })
	if c.intent.invalid {
		c.postWrong(ctx)
		c.postForbidden(ctx)
	}
	if c.intent.copies > 1 {
		c.ledger.Count(Repeats)
	}
	client.Concurrently(c.intent.copies, func() { c.post(ctx) })
	if c.intent.Answers().ID == "" {
		c.intent.Change(func(t *Answers) { t.Refused = ctx.Err() == nil })
		return
	}
	var others sync.WaitGroup
	if c.intent.conflict {
		others.Go(func() { c.postAnother(ctx) })
	}
	if c.intent.cancelAfter > 0 {
		others.Go(func() { c.cancel(ctx) })
	}
	retry.Poll(ctx, c.intent.pace, func() bool { return c.isFinished(ctx) })
	if c.intent.again && ctx.Err() == nil && !c.isStale() {
		c.ledger.Count(Again)
		c.post(ctx)
	}
	others.Wait()
	c.ask(ctx) // once more: a final answer must not change
}

func reached(a client.Answer) End {
	return End{State: txmanager.State(a.State), Sub: txmanager.SubState(a.SubState)}
}

func (c *caller) post(ctx context.Context) {
	known, begun := c.intent.Answers().ID != "", c.Generation()
	a := c.submitUntilClear(ctx)
	switch {
	case a.IsUnclear():
	case c.Replaced(begun), begun > 0 && c.isStale():
		c.repeatAfterRestore(ctx)
	case begun > 0 && a.Code == "REQUEST_RECORDED":
		c.recordStoredRequest(ctx, begun)
	case a.Status == http.StatusAccepted, a.Status == http.StatusOK:
		c.recordAcceptance(a)
	case a.Code == "SUBMITTER_PROTECTED" && !known:
	default:
		c.ledger.contradict(c.intent, fmt.Sprintf("posted (accepted before: %t): got %s", known, a))
	}
}

// submitUntilClear posts the intent until the answer is clear.
func (c *caller) submitUntilClear(ctx context.Context) client.Answer {
	return retry.Until(ctx, func() client.Answer { return c.submit(ctx) }, client.Answer.IsClear)
}

func (c *caller) submit(ctx context.Context) client.Answer {
	if c.intent.submit != nil {
		return c.intent.submit(ctx)
	}
	return c.Ask(ctx, http.MethodPost, "/api/v1/tx", c.intent.Body())
}

// recordAcceptance records a txId. A requestId must keep its first txId, and must be stored
// only once.
func (c *caller) recordAcceptance(a client.Answer) {
	var first string
	var fresh int
	c.intent.Change(func(t *Answers) {
		if t.ID == "" {
			t.ID, t.IDAt, t.Generation = a.TxID, time.Now(), a.Generation
		}
		if a.Status == http.StatusAccepted {
			t.Fresh++
		}
		first, fresh = t.ID, t.Fresh
	})
	if a.TxID != first || first == "" {
		c.ledger.contradict(c.intent, fmt.Sprintf("posted again: got txId %q, and before %q", a.TxID, first))
	}
	if fresh > 1 {
		c.ledger.contradict(c.intent, fmt.Sprintf("202 was answered %d times: want it once, and 200 after it", fresh))
	}
}

// postAnother posts the same requestId with another payload. It stops at a restore: the request may
// be lost then, and the other payload would be new.
func (c *caller) postAnother(ctx context.Context) {
	begun := c.ledger.Generation()
	if c.isStale() {
		return
	}
	post := func() client.Answer {
		if c.Replaced(begun) { // during the pause before a repeat
			return client.Answer{}
		}
		return c.Ask(ctx, http.MethodPost, "/api/v1/tx", c.intent.conflictingRequest())
	}
	a := retry.Until(ctx, post, func(a client.Answer) bool { return a.IsClear() || c.Replaced(begun) })
	if a.IsUnclear() || c.Replaced(begun) {
		return
	}
	c.ledger.Count(Conflicts)
	c.checkConflict(a)
}

// checkConflict checks the answer to another payload. A request that only a release has
// recorded answers every post with REQUEST_RECORDED.
func (c *caller) checkConflict(a client.Answer) {
	recorded := a.Code == "REQUEST_RECORDED" && c.intent.Answers().Recorded
	if a.Status != http.StatusConflict || a.Code != "REQUEST_ID_CONFLICT" && !recorded {
		c.ledger.contradict(c.intent, fmt.Sprintf("the requestId with another payload: got %s, want 409 REQUEST_ID_CONFLICT", a))
	}
}

// postWrong posts invalid requests, which must be refused in every state.
func (c *caller) postWrong(ctx context.Context) {
	for _, body := range c.intent.invalidRequests() {
		a := c.Insist(ctx, http.MethodPost, "/api/v1/tx", body)
		if a.IsUnclear() {
			return
		}
		c.ledger.Count(Invalid)
		if a.Status != http.StatusBadRequest && a.Code != "UNKNOWN_SUBMITTER" {
			c.ledger.contradict(c.intent, fmt.Sprintf("an invalid request %v: got %s, want 400, or UNKNOWN_SUBMITTER", body, a))
		}
	}
}

// postForbidden posts requests that the submitter's policy must refuse in every state.
func (c *caller) postForbidden(ctx context.Context) {
	for _, body := range c.intent.forbiddenRequests() {
		a := c.Insist(ctx, http.MethodPost, "/api/v1/tx", body)
		switch {
		case a.IsUnclear():
			return
		case a.Code == "SUBMITTER_PROTECTED":
		case a.Code == "POLICY_REFUSED":
			c.ledger.Count(Barred)
		default:
			c.ledger.contradict(c.intent, fmt.Sprintf("a request that the policy forbids %v: got %s, want POLICY_REFUSED", body, a))
		}
	}
}

// ask asks for the state and reports whether it is final.
func (c *caller) ask(ctx context.Context) (final bool) {
	begun := c.ledger.Generation()
	a := c.Ask(ctx, http.MethodGet, "/api/v1/tx/"+c.intent.Answers().ID, nil)
	switch {
	case a.IsUnclear(), c.Replaced(begun), c.isStale(): // checked at the end of the run
		return false
	case a.Status != http.StatusOK:
		c.ledger.contradict(c.intent, fmt.Sprintf("asked for what was accepted: got %s", a))
		return false
	case begun > 0 && a.SubState == "HELD": // held: posting the request again releases it
		c.post(ctx)
		return false
	}
	return c.recordAnswer(a)
}

// recordAnswer compares an answer with earlier ones and reports whether its state is final.
func (c *caller) recordAnswer(a client.Answer) (final bool) {
	var end *End
	if now := reached(a); now.State.Terminal() {
		end = &now
	}
	if contradiction := c.intent.RecordEnd(end, a); contradiction != "" {
		c.ledger.contradict(c.intent, contradiction)
	}
	return end != nil
}

// cancel asks for a cancel until the answer is definite.
func (c *caller) cancel(ctx context.Context) {
	retry.Pause(ctx, c.intent.cancelAfter)
	c.ledger.Count(Cancels)
	for ctx.Err() == nil {
		begun := c.ledger.Generation()
		if c.isStale() {
			return // the request may be lost: do not cancel it
		}
		a := c.Insist(ctx, http.MethodPost, "/api/v1/tx/"+c.intent.Answers().ID+"/cancel", nil)
		if a.IsUnclear() || c.Replaced(begun) {
			return
		}
		if c.recordCancelAnswer(a) {
			return
		}
		retry.Pause(ctx, c.intent.pace)
	}
}

// recordCancelAnswer reports whether the answer was definite.
func (c *caller) recordCancelAnswer(a client.Answer) (definite bool) {
	definite = a.Status == http.StatusOK && (a.Outcome == "CANCELLED" || a.Outcome == "EXECUTED")
	pending := a.Status == http.StatusAccepted && a.Outcome == "PENDING"
	if !definite && !pending {
		c.ledger.contradict(c.intent, fmt.Sprintf("cancelled: got %s, want CANCELLED, EXECUTED or PENDING", a))
		return true
	}
	if final := c.recordAnswer(a); final != definite {
		c.ledger.contradict(c.intent, fmt.Sprintf("cancelled: got %s, which is definite: %t, and final: %t", a, definite, final))
	}
	if definite {
		c.intent.Change(func(t *Answers) { t.Outcome = a.Outcome })
	}
	return definite
}
