package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// caller follows one intent from the first post to its final state.
type caller struct {
	env     *stack.Stack
	ledger  *Ledger
	intent  *Intent
	account string // as which it calls

	submit  func(context.Context) answer // posts the intent once; nil: by HTTP
	timeout retry.Timeout
}

// run posts the intent until the answer is clear, carries out its script, and polls until
// the state is final.
func (c *caller) run(ctx context.Context) {
	defer c.set(func(t *Answers) { t.Done = true })
	if c.intent.invalid {
		c.postWrong(ctx)
		c.postForbidden(ctx)
	}
	c.postCopies(ctx)
	if c.intent.Answers().TxID == "" {
		c.set(func(t *Answers) { t.Refused = ctx.Err() == nil })
		return
	}
	var others sync.WaitGroup
	if c.intent.conflict {
		others.Go(func() { c.postAnother(ctx) })
	}
	if c.intent.cancelAfter > 0 {
		others.Go(func() { c.cancel(ctx) })
	}
	c.poll(ctx)
	if c.intent.again && ctx.Err() == nil && !c.isStale() {
		c.ledger.Count(Again)
		c.post(ctx)
	}
	others.Wait()
	c.ask(ctx) // once more: a final answer must not change
}

// poll asks until the intent is final, at growing intervals. With wide windows a thousand
// callers wait at once, and frequent polling alone would saturate the machine.
func (c *caller) poll(ctx context.Context) {
	for pauses := (retry.Backoff{Next: c.intent.pace}); ctx.Err() == nil && !c.isFinished(ctx); {
		pauses.Pause(ctx)
	}
}

func (c *caller) set(change func(*Answers)) {
	c.intent.mu.Lock()
	defer c.intent.mu.Unlock()
	change(&c.intent.answers)
}

// answer is the result of one request. Status 0: no answer came.
type answer struct {
	status  int
	text    []byte
	begun   time.Time
	code    string // of a problem
	body    struct{ TxID, Outcome string }
	reached End

	generation int // of the database at the time of the request
}

// isUnclear reports whether the caller cannot know the effect of the request.
func (a answer) isUnclear() bool { return a.status == 0 || a.status >= 500 }

func (a answer) isClear() bool { return !a.isUnclear() }

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.text) }

// call makes one request as the account.
func (c *caller) call(ctx context.Context, method, path string, body any) (a answer) {
	ctx, done := c.timeout.Context(ctx)
	defer done()
	a.begun, a.generation = time.Now(), c.ledger.Generation()
	status, text, err := c.env.Call(ctx, c.account, method, path, body)
	if err != nil {
		return a
	}
	a.status, a.text = status, text
	var all struct {
		TxID, Outcome, Code string
		State               txmanager.State
		SubState            *txmanager.SubState
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return answer{begun: a.begun, generation: a.generation} // the answer was cut off
	}
	a.code, a.body.TxID, a.body.Outcome, a.reached.State = all.Code, all.TxID, all.Outcome, all.State
	if all.SubState != nil {
		a.reached.Sub = *all.SubState
	}
	return a
}

// insist repeats the request until the answer is clear.
func (c *caller) insist(ctx context.Context, method, path string, body any) answer {
	return retry.Until(ctx, func() answer { return c.call(ctx, method, path, body) }, answer.isClear)
}

// postCopies posts the intent several times at once, each copy until it is answered.
func (c *caller) postCopies(ctx context.Context) {
	if c.intent.copies > 1 {
		c.ledger.Count(Repeats)
	}
	var copies sync.WaitGroup
	for range c.intent.copies {
		copies.Go(func() { c.post(ctx) })
	}
	copies.Wait()
}

func (c *caller) post(ctx context.Context) {
	known, begun := c.intent.Answers().TxID != "", c.ledger.Generation()
	a := c.submitUntilClear(ctx)
	switch {
	case a.isUnclear():
	case c.databaseReplacedSince(begun), begun > 0 && c.isStale():
		c.repeatAfterRestore(ctx)
	case begun > 0 && a.code == "REQUEST_RECORDED":
		c.recordStoredRequest(ctx, begun)
	case a.status == http.StatusAccepted, a.status == http.StatusOK:
		c.recordAcceptance(a)
	case a.code == "SUBMITTER_PROTECTED" && !known:
	default:
		c.ledger.contradict(c.intent, fmt.Sprintf("posted (accepted before: %t): got %s", known, a))
	}
}

// submitUntilClear posts the intent until the answer is clear.
func (c *caller) submitUntilClear(ctx context.Context) answer {
	if c.submit == nil {
		return c.insist(ctx, http.MethodPost, "/api/v1/tx", c.intent.Body())
	}
	return retry.Until(ctx, func() answer { return c.submit(ctx) }, answer.isClear)
}

// recordAcceptance records a txId. A requestId must keep its first txId, and must be stored
// only once.
func (c *caller) recordAcceptance(a answer) {
	var first string
	var fresh int
	c.set(func(t *Answers) {
		if t.TxID == "" {
			t.TxID, t.TxAt, t.Generation = a.body.TxID, time.Now(), a.generation
		}
		if a.status == http.StatusAccepted {
			t.Fresh++
		}
		first, fresh = t.TxID, t.Fresh
	})
	if a.body.TxID != first || first == "" {
		c.ledger.contradict(c.intent, fmt.Sprintf("posted again: got txId %q, and before %q", a.body.TxID, first))
	}
	if fresh > 1 {
		c.ledger.contradict(c.intent, fmt.Sprintf("202 was answered %d times: want it once, and 200 after it", fresh))
	}
}

// postAnother posts the same requestId with another payload.
func (c *caller) postAnother(ctx context.Context) {
	begun := c.ledger.Generation()
	if c.isStale() {
		return // the request may be lost, and the other payload would then be new
	}
	a := c.insist(ctx, http.MethodPost, "/api/v1/tx", c.intent.conflictingRequest())
	if a.isUnclear() || c.databaseReplacedSince(begun) {
		return
	}
	c.ledger.Count(Conflicts)
	c.checkConflict(a)
}

// checkConflict checks the answer to another payload. A request that only a release has
// recorded answers every post with REQUEST_RECORDED.
func (c *caller) checkConflict(a answer) {
	recorded := a.code == "REQUEST_RECORDED" && c.intent.Answers().Recorded
	if a.status != http.StatusConflict || a.code != "REQUEST_ID_CONFLICT" && !recorded {
		c.ledger.contradict(c.intent, fmt.Sprintf("the requestId with another payload: got %s, want 409 REQUEST_ID_CONFLICT", a))
	}
}

// postWrong posts invalid requests, which must be refused in every state.
func (c *caller) postWrong(ctx context.Context) {
	for _, body := range c.intent.invalidRequests() {
		a := c.insist(ctx, http.MethodPost, "/api/v1/tx", body)
		if a.isUnclear() {
			return
		}
		c.ledger.Count(Invalid)
		if a.status != http.StatusBadRequest && a.code != "UNKNOWN_SUBMITTER" {
			c.ledger.contradict(c.intent, fmt.Sprintf("an invalid request %v: got %s, want 400, or UNKNOWN_SUBMITTER", body, a))
		}
	}
}

// postForbidden posts requests that the submitter's policy must refuse in every state.
func (c *caller) postForbidden(ctx context.Context) {
	for _, body := range c.intent.forbiddenRequests() {
		a := c.insist(ctx, http.MethodPost, "/api/v1/tx", body)
		switch {
		case a.isUnclear():
			return
		case a.code == "SUBMITTER_PROTECTED":
		case a.code == "POLICY_REFUSED":
			c.ledger.Count(Barred)
		default:
			c.ledger.contradict(c.intent, fmt.Sprintf("a request that the policy forbids %v: got %s, want POLICY_REFUSED", body, a))
		}
	}
}

// ask asks for the state and reports whether it is final.
func (c *caller) ask(ctx context.Context) (final bool) {
	begun := c.ledger.Generation()
	a := c.call(ctx, http.MethodGet, "/api/v1/tx/"+c.intent.Answers().TxID, nil)
	switch {
	case a.isUnclear(), c.databaseReplacedSince(begun), c.isStale(): // checked at the end of the run
		return false
	case a.status != http.StatusOK:
		c.ledger.contradict(c.intent, fmt.Sprintf("asked for what was accepted: got %s", a))
		return false
	case begun > 0 && a.reached.Sub == "HELD": // held: posting the request again releases it
		c.post(ctx)
		return false
	}
	return c.recordAnswer(a)
}

// recordAnswer compares an answer with earlier ones and reports whether its state is final.
// A final answer must never change. A request that began after it must get the same.
func (c *caller) recordAnswer(a answer) (final bool) {
	var before Answers
	c.set(func(t *Answers) {
		before = *t
		if a.reached.State.Terminal() && t.End == nil {
			t.End, t.EndAt = &a.reached, time.Now()
			t.Generation = a.generation
		}
	})
	final = a.reached.State.Terminal()
	switch {
	case before.End == nil:
	case final && a.reached != *before.End:
		c.ledger.contradict(c.intent, fmt.Sprintf("it was %s, and now it is %s", before.End, a.reached))
	case !final && a.begun.After(before.EndAt):
		c.ledger.contradict(c.intent, fmt.Sprintf("it was %s, and a question put after that got %s", before.End, a.reached))
	}
	return final
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
		a := c.insist(ctx, http.MethodPost, "/api/v1/tx/"+c.intent.Answers().TxID+"/cancel", nil)
		if a.isUnclear() || c.databaseReplacedSince(begun) {
			return
		}
		if c.recordCancelAnswer(a) {
			return
		}
		retry.Pause(ctx, c.intent.pace)
	}
}

// recordCancelAnswer reports whether the answer was definite.
func (c *caller) recordCancelAnswer(a answer) (definite bool) {
	definite = a.status == http.StatusOK && (a.body.Outcome == "CANCELLED" || a.body.Outcome == "EXECUTED")
	pending := a.status == http.StatusAccepted && a.body.Outcome == "PENDING"
	if !definite && !pending {
		c.ledger.contradict(c.intent, fmt.Sprintf("cancelled: got %s, want CANCELLED, EXECUTED or PENDING", a))
		return true
	}
	if final := c.recordAnswer(a); final != definite {
		c.ledger.contradict(c.intent, fmt.Sprintf("cancelled: got %s, which is definite: %t, and final: %t", a, definite, final))
	}
	if definite {
		c.set(func(t *Answers) { t.Outcome = a.body.Outcome })
	}
	return definite
}
