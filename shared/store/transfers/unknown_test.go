package transfers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// inARow is the number of consecutive calls or writes with an unknown result.
const inARow = 100

// unknowns are all answers of a ledger that decide nothing.
var unknowns = map[string]transfer.Outcome{
	"an error":               {Err: errLost},
	"a time-out":             {Err: context.DeadlineExceeded},
	"nothing at all":         {},
	"a reason alone":         {Reason: transfer.AccountDisabled},
	"a verdict of no name":   {Verdict: 99, Reason: transfer.AccountDisabled},
	"refused for no reason":  {Verdict: transfer.Refused},
	"refused for no code":    {Verdict: transfer.Refused, Reason: "sorry"},
	"refused, after a space": {Verdict: transfer.Refused, Reason: " ACCOUNT_DISABLED"},
}

// asking is a state that waits for an answer, the effects until then, and the state after the final
// answer.
type asking struct {
	state, end transfer.State
	before     string            // effects
	arrived    string            // effects, once the call has arrived
	after      string            // effects
	never      []transfer.Reason // codes that never refuse the operation
}

var askings = []asking{
	{transfer.SourcePending, transfer.Committed, "withdraw 0 deposit 0 refund 0", "withdraw 1 deposit 0 refund 0", "withdraw 1 deposit 1 refund 0",
		[]transfer.Reason{transfer.Expired, transfer.Cancelled}},
	{transfer.TargetPending, transfer.Committed, "withdraw 1 deposit 0 refund 0", "withdraw 1 deposit 1 refund 0", "withdraw 1 deposit 1 refund 0", nil},
	{transfer.Compensating, transfer.RolledBack, "withdraw 1 deposit 0 refund 0", "withdraw 1 deposit 0 refund 1", "withdraw 1 deposit 0 refund 1",
		[]transfer.Reason{transfer.AccountFrozen, transfer.ResolvedByOperator}},
}

// requestOf returns a request of that type.
func requestOf(kind transfer.Type) transfer.Request {
	r := request("")
	switch kind {
	case transfer.SpotToFunding:
		r.From, r.To = transfer.Spot, transfer.Funding
	case transfer.FundingToChain:
		r = payout()
	}
	return r
}

// Unknown is never failure: after a hundred unknown answers of any kind, in each waiting state of each
// type, the transfer is still there. It is not FAILED, not refunded, and has no effect but that of the call
// whose answers were lost. Then it ends as usual.
func TestHundredUnknownAnswersEndNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []transfer.Type{transfer.FundingToSpot, transfer.SpotToFunding, transfer.FundingToChain} {
		for _, s := range askings {
			t.Run(fmt.Sprintf("type %d in %s", kind, s.state), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.offer(t, payable)
				for what, says := range unknowns {
					r.says = says
					r.hundredUnknowns(t, kind, s, what, r.drop, s.before)
				}
				for _, reason := range s.never {
					r.says = transfer.Outcome{Verdict: transfer.Refused, Reason: reason}
					r.hundredUnknowns(t, kind, s, "refused with "+string(reason), r.drop, s.before)
				}
				r.hundredUnknowns(t, kind, s, "arrived, and the answers are lost", r.lose, s.arrived)
			})
		}
	}
}

// hundredUnknowns brings a transfer to the state by ordinary transitions. A hundred answers to the call that it waits for are unknown
// then: those that the ledger counts in unknown. It has the effects meanwhile.
func (r rig) hundredUnknowns(t *testing.T, kind transfer.Type, s asking, what string, unknown map[transfer.Op]int, effects string) {
	t.Helper()
	clear(r.moved)
	if s.state == transfer.Compensating {
		r.refuse[transfer.Deposit] = transfer.AccountDisabled
	}
	op := s.state.AwaitedOp()
	unknown[op] = inARow
	x, err := r.Submit(t.Context(), requestOf(kind), terms)
	if err != nil || x.Type != kind || x.State != s.state || r.effects() != effects {
		t.Fatalf("%s: got %+v, %v, %s; want type %d in %s, %s", what, x, err, r.effects(), kind, s.state, effects)
	}
	path := r.states(t, x.ReqID)
	for n := 2; n <= inARow; n++ {
		if now := r.drive(t, x.ReqID, s.state); now.Failures != n || now.NextAttemptAt == nil {
			t.Fatalf("%s, %d in a row: got %+v, want them counted and the next attempt planned", what, n, now)
		}
	}
	if got := r.effects(); got != effects || r.states(t, x.ReqID) != path || unknown[op] != 0 {
		t.Errorf("%s: got %s, states %s, %d left; want %s, %s, none", what, got, r.states(t, x.ReqID), unknown[op], effects, path)
	}
	r.drive(t, x.ReqID, s.end)
	check.Equal(t, fmt.Sprintf("%s, at the end", what), r.effects(), s.after)
}

// cut is a book whose next writes get no answer, whether they happened or not.
type cut struct {
	transfer.Store
	mu      sync.Mutex
	write   string // begin, move or postpone: only these are cut; "": any
	left    int    // the writes that are still to be cut
	happens bool
	blind   bool // the read after each of them fails too
	silent  bool // the next read fails
	between func()
}

var errCut = errors.New("connection reset by peer")

func (c *cut) cut(write string, do func() (transfer.TransitionResult, error)) (transfer.TransitionResult, error) {
	c.mu.Lock()
	mine := c.left > 0 && (c.write == "" || c.write == write)
	if mine {
		c.left--
		c.silent = c.blind
	}
	c.mu.Unlock()
	if !mine {
		return do()
	}
	if c.happens {
		if m, err := do(); err != nil || !m.Done {
			return m, fmt.Errorf("the write that should happen did not: %w", err)
		}
	}
	if c.between != nil {
		c.between()
	}
	return transfer.TransitionResult{}, errCut
}

func (c *cut) Load(ctx context.Context, reqID string) (transfer.Transfer, error) {
	c.mu.Lock()
	silent := c.silent
	c.silent = false
	c.mu.Unlock()
	if silent {
		return transfer.Transfer{}, errCut
	}
	return c.Store.Load(ctx, reqID)
}

func (c *cut) Start(ctx context.Context, reqID string, timeout time.Duration) (transfer.TransitionResult, error) {
	return c.cut("begin", func() (transfer.TransitionResult, error) { return c.Store.Start(ctx, reqID, timeout) })
}

func (c *cut) Move(ctx context.Context, m transfer.Transition) (transfer.TransitionResult, error) {
	return c.cut("move", func() (transfer.TransitionResult, error) { return c.Store.Move(ctx, m) })
}

func (c *cut) Postpone(ctx context.Context, p transfer.Postponement) (transfer.TransitionResult, error) {
	return c.cut("postpone", func() (transfer.TransitionResult, error) { return c.Store.Postpone(ctx, p) })
}

// H15: a compare-and-set without an answer is read back before a call depends on it. Whether it
// happened or not, the result is right and each effect happens once.
func TestH15UnansweredCompareAndSetIsReadBack(t *testing.T) {
	t.Parallel()
	for _, write := range []string{"begin", "move"} {
		for _, happens := range []bool{true, false} {
			b := newBench(t)
			book := &cut{Store: b.Store, write: write, left: 1, happens: happens}
			r := rigOf(t, b, book)
			x := r.created(t, request(""))
			r.drive(t, x.ReqID, transfer.Committed)
			if got, want := r.effects(), "withdraw 1 deposit 1 refund 0"; got != want || r.states(t, x.ReqID) != "0 10 20 30 40" {
				t.Errorf("%s cut, happened %t: got %s, states %s; want %s and the ordinary states", write, happens, got, r.states(t, x.ReqID), want)
			}
		}
	}
}

// H15, the original case: the compare-and-set out of INIT did not happen, the worker assumes that it
// did, and the user cancels. The source must not have been called.
func TestH15CancelledBehindALostCAS(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	book := &cut{Store: b.Store, write: "begin", left: 1}
	r := rigOf(t, b, book)
	x := r.created(t, request(""))
	book.between = func() {
		check.Err(t, "cancel", nil)(r.Coordinator.Cancel(t.Context(), transfer.RequestedAction{ReqID: x.ReqID, By: "op", Reason: "asked"}))
	}
	got := r.drive(t, x.ReqID, transfer.Failed)
	if got.Reason != transfer.Cancelled || r.asked != 0 {
		t.Errorf("got %s, %d calls; want CANCELLED, none", got.Reason, r.asked)
	}
}

// If a transfer can be neither written nor read back, the drive fails and calls no ledger.
func TestH15UnreadableTransferCallsNothing(t *testing.T) {
	t.Parallel()
	for _, happens := range []bool{true, false} {
		b := newBench(t)
		book := &cut{Store: b.Store, write: "begin", left: 1, happens: happens, blind: true}
		r := rigOf(t, b, book)
		x := r.created(t, request(""))
		if got, err := r.Drive(t.Context(), x.ReqID); !errors.Is(err, errCut) || r.asked != 0 {
			t.Errorf("happened %t: got %s, %v, %d calls; want the cut, none", happens, got.State, err, r.asked)
		}
	}
}

// A worker whose request has ended records the answer.
func TestAnswerIsRecordedAfterTheCallerLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	x := r.created(t, request(""))
	ctx, cancel := context.WithCancel(t.Context())
	r.before = func(op transfer.Op) {
		if op == transfer.Withdraw {
			cancel()
		}
	}
	check.OK(t)(r.Drive(ctx, x.ReqID))
	if got, want := r.states(t, x.ReqID), "0 10 20 30"; got[:len(want)] != want {
		t.Errorf("states: got %s, want at least %s", got, want)
	}
}

// In each open state a hundred lost writes in a row leave the transfer in it, and each effect happens
// at most once.
func TestHundredLostWritesEndNothing(t *testing.T) {
	t.Parallel()
	for _, s := range transfer.States() {
		if s.Terminal() {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			book := &cut{Store: b.Store, blind: true}
			r := rigOf(t, b, book)
			x := r.at(t, s)
			if s != transfer.Init && s != transfer.SourcePending { // as the source did then
				r.Withdraw(t.Context(), x.Call())
			}
			path := r.states(t, x.ReqID)
			book.left = inARow
			for n := range inARow {
				if got, err := r.Drive(t.Context(), x.ReqID); !errors.Is(err, errCut) || got.State != s {
					t.Fatalf("write %d lost: got %s, %v; want the error, in %s", n+1, got.State, err, s)
				}
			}
			calls := map[transfer.Op]int{transfer.Withdraw: r.moved["withdraw"], transfer.Deposit: r.moved["deposit"], transfer.Refund: r.moved["refund"]}
			if got := r.states(t, x.ReqID); got != path || calls[transfer.Withdraw] > 1 || calls[transfer.Deposit] > 1 || calls[transfer.Refund] > 1 ||
				s != transfer.Compensating && calls[transfer.Refund] != 0 {
				t.Errorf("got states %s, %s; want %s, each effect once at most and nothing given back", got, r.effects(), path)
			}
			end, effects := transfer.Committed, "withdraw 1 deposit 1 refund 0"
			if s == transfer.Compensating {
				end, effects = transfer.RolledBack, "withdraw 1 deposit 0 refund 1"
			}
			r.drive(t, x.ReqID, end)
			check.Equal(t, "at the end", r.effects(), effects)
		})
	}
}

var errForgotten = errors.New("forgotten")

// forgetful is a vault that has forgotten each refund. It accepts an operator's statement with a line:
// a refund that was not applied is applied then.
type forgetful struct{ *vault }

func (f forgetful) Refund(context.Context, transfer.Call) transfer.Outcome {
	return transfer.Outcome{Err: errForgotten}
}

func (f forgetful) Forgot(lastUnknown string) bool {
	return lastUnknown == "refund: "+errForgotten.Error()
}

func (f forgetful) Objection(transfer.Outcome) error { return nil }

func (f forgetful) Record(ctx context.Context, _ transfer.Op, c transfer.Call, w transfer.OperatorStatement) transfer.Outcome {
	if w.Applied {
		return transfer.Outcome{Verdict: transfer.Success}
	}
	return f.vault.Refund(ctx, c)
}

// A line alone does not prove that a refund was not applied: the line of its withdrawal does not show
// it. A refund that the journals have is not repeated.
func TestALineDoesNotProveThatARefundWasNotApplied(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		made    bool // the journals have the refund
		word    transfer.OperatorStatement
		err     error
		refunds int
	}{
		"made, and said not to be":   {true, transfer.OperatorStatement{Line: 5}, transfer.ErrEvidence, 0},
		"not made, and said so":      {false, transfer.OperatorStatement{Line: 5}, nil, 1},
		"made, and said so":          {true, transfer.OperatorStatement{Applied: true, Line: 6}, nil, 0},
		"made, without line, denied": {true, transfer.OperatorStatement{}, transfer.ErrEvidence, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			row := r.at(t, transfer.Compensating)
			r.vault.stored["withdraw "+row.ReqID] = transfer.Outcome{Verdict: transfer.Success}
			r = r.over(t, r.Store, forgetful{r.vault})
			r.Proof = func(context.Context, transfer.Transfer, transfer.Op) (bool, error) { return x.made, nil }
			check.Equal(t, "unknown", r.drive(t, row.ReqID, transfer.Compensating).LastUnknown, "refund: forgotten")
			order := transfer.RequestedAction{ReqID: row.ReqID, By: "ann", Reason: "r", Word: &x.word}
			got, err := r.Coordinator.Resolve(t.Context(), order, transfer.Refund)
			if !errors.Is(err, x.err) || (x.err == nil) != (got.State == transfer.RolledBack) {
				t.Errorf("resolve: got %s, %v; want %v", got.State, err, x.err)
			}
			check.Equal(t, "refunds that were made", r.vault.moved["refund"], x.refunds)
		})
	}
}
