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

// cut is a book whose writes get no answer, whether they happened or not.
type cut struct {
	transfer.Store
	mu      sync.Mutex
	write   string // begin, move or postpone: the next one is cut
	happens bool
	blind   bool // the read after it fails too
	between func()
}

var errCut = errors.New("connection reset by peer")

func (c *cut) cut(write string, do func() (transfer.TransitionResult, error)) (transfer.TransitionResult, error) {
	c.mu.Lock()
	mine := c.write == write
	if mine {
		c.write = ""
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
	blind := c.blind && c.write == ""
	c.mu.Unlock()
	if blind {
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
			book := &cut{Store: b.Store, write: write, happens: happens}
			r := rigOf(t, b, book, transfer.DefaultRules())
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
	book := &cut{Store: b.Store, write: "begin"}
	r := rigOf(t, b, book, transfer.DefaultRules())
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
		book := &cut{Store: b.Store, write: "begin", happens: happens, blind: true}
		r := rigOf(t, b, book, transfer.DefaultRules())
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
