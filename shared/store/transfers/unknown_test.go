package transfers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// inARow is the number of consecutive calls or writes with an unknown result.
const inARow = 100

// odd is a ledger that gives so many unknown answers to op: the call did not arrive.
type odd struct {
	*vault
	op   transfer.Op
	says transfer.Outcome
	left int
}

func (o *odd) answer(op transfer.Op, do func() transfer.Outcome) transfer.Outcome {
	if op != o.op || o.left == 0 {
		return do()
	}
	o.left--
	return o.says
}

func (o *odd) Withdraw(ctx context.Context, c transfer.Call) transfer.Outcome {
	return o.answer(transfer.Withdraw, func() transfer.Outcome { return o.vault.Withdraw(ctx, c) })
}

func (o *odd) Deposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	return o.answer(transfer.Deposit, func() transfer.Outcome { return o.vault.Deposit(ctx, c) })
}

func (o *odd) Refund(ctx context.Context, c transfer.Call) transfer.Outcome {
	return o.answer(transfer.Refund, func() transfer.Outcome { return o.vault.Refund(ctx, c) })
}

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
	after      string            // effects
	never      []transfer.Reason // codes that never refuse the operation
}

var askings = []asking{
	{transfer.SourcePending, transfer.Committed, "withdraw 0 deposit 0 refund 0", "withdraw 1 deposit 1 refund 0", []transfer.Reason{transfer.Expired, transfer.Cancelled}},
	{transfer.TargetPending, transfer.Committed, "withdraw 1 deposit 0 refund 0", "withdraw 1 deposit 1 refund 0", nil},
	{transfer.Compensating, transfer.RolledBack, "withdraw 1 deposit 0 refund 0", "withdraw 1 deposit 0 refund 1", []transfer.Reason{transfer.AccountFrozen, transfer.ResolvedByOperator}},
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

// waits brings a transfer to the state by ordinary transitions. From then on each ledger is odd.
func (r rig) waits(t *testing.T, kind transfer.Type, s asking, o *odd, says transfer.Outcome) transfer.Transfer {
	t.Helper()
	if s.state == transfer.Compensating {
		r.refuse[transfer.Deposit] = transfer.AccountDisabled
	}
	o.op, o.says, o.left = s.state.AwaitedOp(), says, inARow
	got, err := r.Submit(t.Context(), requestOf(kind), terms)
	if err != nil || got.Type != kind || got.State != s.state || r.effects() != s.before {
		t.Fatalf("submit: got %+v, %v, %s; want type %d in %s, %s", got, err, r.effects(), kind, s.state, s.before)
	}
	return got.Transfer
}

// oddRig is a rig with odd ledgers.
func oddRig(t *testing.T) (rig, *odd) {
	t.Helper()
	r := newRig(t)
	r.offer(t, payable)
	o := &odd{vault: r.vault}
	return r.over(t, r.Store, o, transfer.DefaultRules()), o
}

// Unknown is never failure: after a hundred unknown answers of any kind, in each waiting state of each
// type, the transfer is still there. It is not FAILED, not refunded, and has no effect. Then it ends as
// usual.
func TestHundredUnknownAnswersEndNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []transfer.Type{transfer.FundingToSpot, transfer.SpotToFunding, transfer.FundingToChain} {
		for _, s := range askings {
			t.Run(fmt.Sprintf("type %d in %s", kind, s.state), func(t *testing.T) {
				t.Parallel()
				r, o := oddRig(t)
				for what, says := range unknowns {
					r.hundredUnknowns(t, kind, s, o, what, says)
				}
				for _, reason := range s.never {
					r.hundredUnknowns(t, kind, s, o, "refused with "+string(reason), transfer.Outcome{Verdict: transfer.Refused, Reason: reason})
				}
			})
		}
	}
}

func (r rig) hundredUnknowns(t *testing.T, kind transfer.Type, s asking, o *odd, what string, says transfer.Outcome) {
	t.Helper()
	clear(r.moved)
	x := r.waits(t, kind, s, o, says)
	path := r.states(t, x.ReqID)
	for n := 2; n <= inARow; n++ {
		if now := r.drive(t, x.ReqID, s.state); now.Failures != n || now.NextAttemptAt == nil {
			t.Fatalf("%s, %d in a row: got %+v, want them counted and the next attempt planned", what, n, now)
		}
	}
	if got := r.effects(); got != s.before || r.states(t, x.ReqID) != path || o.left != 0 {
		t.Errorf("%s: got %s, states %s, %d left to say; want %s, %s, none", what, got, r.states(t, x.ReqID), o.left, s.before, path)
	}
	r.drive(t, x.ReqID, s.end)
	check.Equal(t, fmt.Sprintf("%s, at the end", what), r.effects(), s.after)
}

// The same if each call has arrived and only its answers are lost.
func TestHundredLostAnswersEndNothing(t *testing.T) {
	t.Parallel()
	for _, s := range askings {
		t.Run(s.state.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if s.state == transfer.Compensating {
				r.refuse[transfer.Deposit] = transfer.AccountDisabled
			}
			op := s.state.AwaitedOp()
			r.lose[op] = inARow
			x := check.Value(r.Submit(t.Context(), request(""), terms))(t)
			once := r.effects()
			path := r.states(t, x.ReqID)
			for n := 2; n <= inARow; n++ {
				r.drive(t, x.ReqID, s.state)
			}
			if got := r.effects(); got != once || r.moved[string(op)] != 1 || r.states(t, x.ReqID) != path || r.lose[op] != 0 {
				t.Errorf("got %s, states %s, %d still to lose; want %s, %s, none", got, r.states(t, x.ReqID), r.lose[op], once, path)
			}
			r.drive(t, x.ReqID, s.end)
			check.Equal(t, "at the end", r.effects(), s.after)
		})
	}
}

// mute is a book whose writes are lost or unanswered so many times, and which cannot be read back after
// that.
type mute struct {
	transfer.Store
	left   int
	silent bool // since a write was lost, until the next drive
}

var errMute = errors.New("no answer")

func (m *mute) lost(do func() (transfer.TransitionResult, error)) (transfer.TransitionResult, error) {
	if m.left == 0 {
		return do()
	}
	m.left--
	m.silent = true
	return transfer.TransitionResult{}, errMute
}

func (m *mute) Load(ctx context.Context, reqID string) (transfer.Transfer, error) {
	if m.silent {
		m.silent = false
		return transfer.Transfer{}, errMute
	}
	return m.Store.Load(ctx, reqID)
}

func (m *mute) Start(ctx context.Context, reqID string, timeout time.Duration) (transfer.TransitionResult, error) {
	return m.lost(func() (transfer.TransitionResult, error) { return m.Store.Start(ctx, reqID, timeout) })
}

func (m *mute) Move(ctx context.Context, move transfer.Transition) (transfer.TransitionResult, error) {
	return m.lost(func() (transfer.TransitionResult, error) { return m.Store.Move(ctx, move) })
}

func (m *mute) Postpone(ctx context.Context, p transfer.Postponement) (transfer.TransitionResult, error) {
	return m.lost(func() (transfer.TransitionResult, error) { return m.Store.Postpone(ctx, p) })
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
			book := &mute{Store: b.Store}
			r := rigOf(t, b, book, transfer.DefaultRules())
			x := r.at(t, s)
			if s != transfer.Init && s != transfer.SourcePending { // as the source did then
				r.Withdraw(t.Context(), x.Call())
			}
			path := r.states(t, x.ReqID)
			book.left = inARow
			for n := range inARow {
				if got, err := r.Drive(t.Context(), x.ReqID); !errors.Is(err, errMute) || got.State != s {
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
			r = r.over(t, r.Store, forgetful{r.vault}, transfer.DefaultRules())
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
