package rules

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

func estimates1(e txmanager.Estimate) map[string]txmanager.Estimate {
	return map[string]txmanager.Estimate{"q-1": e}
}

// outline summarises an allocation plan.
func outline(p AllocationPlan) string { return txtest.Outline(p.Allocations, p.Transitions) }

// Nonces are planned in queue order, from the cursor on, up to the room in the window. A window narrower
// than the number of open nonces stops allocation until fewer are open.
func TestQueueIsPreparedInOrderUpToTheWindow(t *testing.T) {
	t.Parallel()
	all := []txmanager.Tx{txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(3, "pay")}
	for _, c := range []struct {
		w    txmanager.SubmitterState
		want string
	}{
		{txtest.Queue(txtest.StateOf(1, 5), all...), "q-1=5"},
		{txtest.Queue(txtest.StateOf(2, 5), all...), "q-1=5, q-2=6"},
		{txtest.Queue(txtest.StateOf(9, 5), all...), "q-1=5, q-2=6, q-3=7"},
		{txtest.Queue(txtest.StateOf(3, 7, txtest.Pending(5), txtest.Pending(6)), all...), "q-1=7"},
		{txtest.Queue(txtest.StateOf(2, 7, txtest.Pending(5), txtest.Pending(6)), all...), ""},
		{txtest.Queue(txtest.StateOf(3, 8, txtest.Pending(5)), all...), ""},
		{txtest.StateOf(3, 5), ""},
		{txtest.Queue(txtest.StateOf(1, 8, txtest.Pending(5), txtest.Pending(6), txtest.Pending(7)), all...), ""},
		{txtest.Queue(txtest.StateOf(1, 8, txtest.Pending(7)), all...), ""},
		{txtest.Queue(txtest.StateOf(1, 8), all...), "q-1=8"},
		{txtest.Queue(txtest.StateOf(2, 8, txtest.Pending(5), txtest.Pending(6), txtest.Pending(7)), all...), ""},
		{txtest.Queue(txtest.StateOf(2, 8, txtest.Pending(7)), all...), "q-1=8"},
	} {
		p := rulesOf(3).PlanAllocations(c.w, txtest.Reader(nil), txtest.ViewOf(c.w, txtest.Block('a', 100)), nil)
		what := fmt.Sprintf("window %d, next %d, %d held", c.w.Window, c.w.NextNonce, len(c.w.Open))
		check.Equal(t, what, outline(p), c.want)
		check.Equal(t, what+": waiting", p.Waiting, false)
		if len(p.Unsigned) != len(p.Allocations) {
			t.Fatalf("got %d to sign for %d allocations", len(p.Unsigned), len(p.Allocations))
		}
		for i, u := range p.Unsigned {
			if a := p.Allocations[i]; u.Nonce != a.Nonce || *a.Tx.Nonce != a.Nonce || u.ChainID != 1337 || u.Gas != a.Tx.Gas.Gas {
				t.Errorf("signed as %+v, allocated as %+v: want the same", u, a)
			}
		}
	}
}

// A payload that can never become a transaction is refused, uses no nonce, and blocks no other
// intent.
func TestUnreadablePayloadIsRejected(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(2, 5), txtest.Queued(1, "junk"), txtest.Queued(2, "pay"), txtest.Queued(3, "junk"), txtest.Queued(4, "pay"))
	p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
	check.Equal(t, "answer", outline(p), "q-2=5, q-4=6, q-1 rejected, q-3 rejected")
	if m := p.Transitions[0]; m.From != txmanager.Queued || m.To.Nonce != nil || m.To.LastError == "" {
		t.Errorf("got %+v, want from QUEUED, without a nonce, with a reason", m)
	}
}

// H27: a reverting estimate rejects an intent only with no open transaction, on a node that does
// not lag. Otherwise the intent is deferred, and later ones pass it.
func TestH27RevertingEstimateRejectsOnlyWhereNothingCanChangeIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		finalHead uint64
		unsettled []txmanager.Tx
		before    []txmanager.Tx // in the queue
		want      string
		waiting   bool
	}{
		{"nothing unsettled, past the last final block", 99, nil, nil, "q-2=5, q-1 rejected", false},
		{"nothing unsettled, at the last final block", 100, nil, nil, "q-2=5, q-1 rejected", false},
		{"nothing was ever final", 0, nil, nil, "q-2=5, q-1 rejected", false},
		{"the node is behind", 101, nil, nil, "q-1 waits", true},
		{"one in flight", 99, []txmanager.Tx{txtest.Pending(4)}, nil, "q-2=5, q-1 aside until 4", false},
		{"one in flight, and the node is behind", 101, []txmanager.Tx{txtest.Pending(4)}, nil, "q-2=5, q-1 aside until 4", false},
		{"one prepared just now", 99, nil, []txmanager.Tx{txtest.Queued(0, "pay")}, "q-0=5, q-2=6, q-1 aside until 5", false},
		{"both", 99, []txmanager.Tx{txtest.Pending(4)}, []txmanager.Tx{txtest.Queued(0, "pay")}, "q-0=5, q-2=6, q-1 aside until 5", false},
	} {
		w := txtest.Queue(txtest.StateOf(5, 5, c.unsettled...), append(c.before, txtest.Queued(1, "call"), txtest.Queued(2, "pay"))...)
		w.FinalHead = c.finalHead
		p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), estimates1(txtest.Reverts()))
		if got := outline(p); got != c.want || p.Waiting != c.waiting {
			t.Errorf("%s: got %q, waiting %v; want %q, %v", c.name, got, p.Waiting, c.want, c.waiting)
		}
	}
}

// H27: a call with its own gas needs no estimate, and ignores one.
func TestH27GivenGasSkipsTheEstimate(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(1, 5), txtest.Queued(1, "pay"))
	p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), estimates1(txtest.Reverts()))
	check.Equal(t, "plan", outline(p), "q-1=5")
	check.Equal(t, "gas", p.Unsigned[0].Gas, 21_000)
}

// An unknown estimate blocks the queue: later intents must not pass.
func TestUnknownEstimateWaitsAndBlocks(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	for _, estimates := range []map[string]txmanager.Estimate{nil, estimates1(txmanager.Estimate{}), estimates1(txmanager.Estimate{Reason: "the node is busy"})} {
		w := txtest.Queue(txtest.StateOf(5, 5), txtest.Queued(0, "pay"), txtest.Queued(1, "call"), txtest.Queued(2, "pay"))
		p := r.PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), estimates)
		if got, want := outline(p), "q-0=5, q-1 waits"; got != want || !p.Waiting {
			t.Fatalf("%v: got %q, waiting %v; want %q, true", estimates, got, p.Waiting, want)
		}
		to := p.Transitions[0].To
		if to.State != txmanager.Queued || to.LastError == "" || !to.NextCheckAt.Equal(txtest.Now.Add(r.BlockTime)) || to.Nonce != nil {
			t.Errorf("got %+v, want QUEUED with a reason, after a block", to)
		}
	}
}

// H26: the account must be able to pay the worst cost of all open nonces and of this one, and a
// placeholder for each. With one wei less the intent waits.
func TestH26BalanceCoversEveryOpenNonceAndAPlaceholderForEach(t *testing.T) {
	t.Parallel()
	const feeCap = 1000
	one := int64(21_000*feeCap + 5 + 21_000*feeCap*9/8) // the call, its value, its placeholder
	call := map[string]txmanager.Call{"pay": {To: new(eip155.Address([20]byte{})), Value: big.NewInt(5), Gas: 21_000, FeeCapWei: big.NewInt(feeCap), TipCapWei: big.NewInt(1)}}
	holding := func(n uint64, s txmanager.State, sub txmanager.SubState) txmanager.Tx {
		tx := txtest.Held(n, s, sub)
		tx.Gas = txtest.Params(21_000, feeCap, 5)
		return tx
	}
	mined := holding(3, txmanager.Tracking, txmanager.Included)
	mined.Receipt = new(txtest.ReceiptOf(mined, txtest.Block('a', 90)))
	for _, c := range []struct {
		name      string
		unsettled []txmanager.Tx
		balance   int64
		want      string
	}{
		{"enough for one", nil, one, "q-1=5, q-2 waits"},
		{"a wei short of one", nil, one - 1, "q-1 waits"},
		{"enough for two", nil, 2 * one, "q-1=5, q-2=6"},
		{"a wei short of two", nil, 2*one - 1, "q-1=5, q-2 waits"},
		{"nothing at all", nil, 0, "q-1 waits"},
		{"one held", []txmanager.Tx{holding(4, txmanager.Tracking, txmanager.Pending)}, 2 * one, "q-1=5, q-2 waits"},
		{"one held, a wei short", []txmanager.Tx{holding(4, txmanager.Tracking, txmanager.Pending)}, 2*one - 1, "q-1 waits"},
		{"one held eats it all", []txmanager.Tx{holding(4, txmanager.Tracking, txmanager.Pending)}, 0, "q-1 waits"},
		{"a stuck one counts too", []txmanager.Tx{holding(4, txmanager.Stuck, "")}, 2*one - 1, "q-1 waits"},
		{"one without bytes counts too", []txmanager.Tx{{State: txmanager.InFlight, Nonce: new(uint64(4)), Gas: txtest.Params(21_000, feeCap, 5)}}, 2*one - 1, "q-1 waits"},
		{"what is mined is paid", []txmanager.Tx{mined}, one, "q-1=5, q-2 waits"},
	} {
		w := txtest.Queue(txtest.StateOf(5, 5, c.unsettled...), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(3, "junk"))
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Account.BalanceWei = big.NewInt(c.balance)
		p := rulesOf(3).PlanAllocations(w, txtest.Reader(call), v, nil)
		check.Equal(t, c.name, strings.TrimSuffix(outline(p), ", q-3 rejected"), c.want)
		check.Equal(t, c.name+": the view's balance, afterwards", v.Account.BalanceWei.Int64(), c.balance)
	}
}

// An unsigned transaction is the call, with the nonce and fees that were bound.
func TestUnsignedIsTheCallAsBound(t *testing.T) {
	t.Parallel()
	to := eip155.Address([20]byte{19: 7})
	tx := txtest.Bare(5)
	tx.Gas = txtest.Params(30_000, 200, 9)
	want := txmanager.Unsigned{ChainID: 1337, Nonce: 5, To: &to, Value: big.NewInt(9), Data: []byte{1, 2}, Gas: 30_000, FeeCapWei: big.NewInt(200), TipCapWei: big.NewInt(1)}
	txtest.Same(t, "unsigned", buildUnsigned(tx, txmanager.Call{To: &to, Value: big.NewInt(9), Data: []byte{1, 2}}), want)
	check.Equal(t, "receiver of a deployment", buildUnsigned(tx, txmanager.Call{}).To, nil)
}

// Reasons why no nonce is allocated now, in words that an operator understands, and with the cause of the wait
// unless the submitter's own state is the cause.
func TestWhatForbidsAllocation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*situation)
		held   []txmanager.Tx
		want   string // part of the reason; "": allowed
		cause  txmanager.WaitCause
	}{
		{"nothing held", nil, nil, "", ""},
		{"two acknowledged", nil, []txmanager.Tx{txtest.Pending(4), txtest.Pending(5)}, "", ""},
		{"one included", nil, []txmanager.Tx{txtest.Included(5, txtest.Block('a', 99))}, "", ""},
		{"in PROTECT", func(s *situation) { s.w.Protected = true }, nil, "PROTECT", ""},
		{"suspended", func(s *situation) { s.w.Suspended = true }, nil, "suspended", ""},
		{"the account has code", func(s *situation) { s.v.Account.HasCode = true }, nil, "code", txmanager.WaitAccountCode},
		{"latest count ahead", func(s *situation) { s.v.Account.LatestCount = 7 }, nil, "ahead", txmanager.WaitSuspected},
		{"pending count ahead", func(s *situation) { s.v.Account.PendingCount = 7 }, nil, "ahead", txmanager.WaitSuspected},
		{"the node lags", func(s *situation) { s.v.Account.LatestCount = 5 }, nil, "lags", txmanager.WaitNodes},
		{"the node lags below what is held", func(s *situation) { s.v.Account.LatestCount = 3 }, []txmanager.Tx{txtest.Pending(4), txtest.Pending(5)}, "lags", txmanager.WaitNodes},
		{"a consumed nonce whose bytes the node does not know", func(s *situation) {
			s.v.Account.LatestCount = 6
			s.v.Known = map[txmanager.Hash]txmanager.Answer{s.w.Open[0].Versions[0]: txmanager.AnswerNotFound}
		}, []txmanager.Tx{txtest.Pending(5)}, "consumed", txmanager.WaitSuspected},
		{"the nodes differ", func(s *situation) { s.v.Disputes.Counts = true }, nil, "agree", txmanager.WaitNodesDiffer},
		{"a stuck one below", nil, []txmanager.Tx{txtest.Pending(4), txtest.Stuck(5)}, "STUCK", txmanager.WaitPredecessor},
		{"an unacknowledged one below", nil, []txmanager.Tx{txtest.Submitted(4), txtest.Pending(5)}, "SUBMITTED", txmanager.WaitPredecessor},
		{"one without bytes below", nil, []txmanager.Tx{txtest.Bare(5)}, "IN_FLIGHT", txmanager.WaitPredecessor},
		{"one in PROTECT below", nil, []txmanager.Tx{txtest.Held(5, txmanager.Protect, "")}, "PROTECT", txmanager.WaitPredecessor},
	} {
		w := txtest.StateOf(5, 6, c.held...)
		s := situation{w: w, v: txtest.ViewOf(w, txtest.Block('a', 100))}
		if c.change != nil {
			c.change(&s)
		}
		got := AllocationBlocked(s.w, s.v)
		if (got.Reason == "") != (c.want == "") || !strings.Contains(got.Reason, c.want) || got.Cause != c.cause {
			t.Errorf("%s: got %+v, want %q in the reason, and cause %q", c.name, got, c.want, c.cause)
		}
	}
}

// No first version pays more than the deployment's fee limit, whatever the node advises or the
// caller allows. While blocks require more, the intent waits.
func TestFeesStayUnderTheCeiling(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	r.MaxFeePerGasWei = big.NewInt(15)
	for _, c := range []struct {
		name    string
		base    int64
		tip     int64
		want    string
		fee     int64
		waiting bool
	}{
		{"the advice is above it", 10, 10_000, "q-1=5", 15, false},
		{"the base fee is above it", 16, 1, "q-1 waits", 0, true},
	} {
		w := txtest.Queue(txtest.StateOf(1, 5), txtest.Queued(1, "pay"))
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Account.BaseFeeWei, v.Account.TipWei = big.NewInt(c.base), big.NewInt(c.tip)
		p := r.PlanAllocations(w, txtest.Reader(nil), v, nil)
		if got := outline(p); got != c.want || p.Waiting != c.waiting {
			t.Errorf("%s: got %q, waiting %v; want %q, %v", c.name, got, p.Waiting, c.want, c.waiting)
		}
		if len(p.Unsigned) > 0 && (p.Unsigned[0].FeeCapWei.Int64() != c.fee || p.Unsigned[0].TipCapWei.Int64() > c.fee) {
			t.Errorf("%s: got %s and a tip of %s, want at most %d", c.name, p.Unsigned[0].FeeCapWei, p.Unsigned[0].TipCapWei, c.fee)
		}
	}
}
