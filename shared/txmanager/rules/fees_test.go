package rules

import (
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// On a chain without EIP-1559 a version has one price: the node's advice, at most what its caller
// and the deployment allow. If that is too low, it waits with a reason.
func TestOnePriceOfGas(t *testing.T) {
	t.Parallel()
	a := txmanager.Account{BaseFeeWei: new(big.Int), GasPriceWei: big.NewInt(100)}
	for _, c := range []struct {
		name         string
		cap, ceiling int64 // 0: none
		want         int64
		reason       string
	}{
		{"the node's advice", 0, 0, 100, ""},
		{"its caller allows more", 300, 0, 100, ""},
		{"its caller allows less", 99, 0, 99, "fee: maxFeePerGas is below the node's gas price"},
		{"the ceiling is above", 0, 101, 100, ""},
		{"the ceiling is below", 0, 99, 99, "fee: the node's gas price is above fees.maxFeePerGas"},
	} {
		var call txmanager.Call
		r := rulesOf(3)
		if c.cap > 0 {
			call.FeeCapWei = big.NewInt(c.cap)
		}
		if c.ceiling > 0 {
			r.MaxFeePerGasWei = big.NewInt(c.ceiling)
		}
		g := r.FirstVersionFees(call, 21_000, a)
		if !g.Legacy || g.FeeCapWei.Int64() != c.want || g.TipCapWei.Int64() != c.want {
			t.Errorf("%s: got %+v, want one price of %d", c.name, g, c.want)
		}
		check.Equal(t, c.name, gas.TooExpensiveReason(call, g, a), c.reason)
	}
}

// An intent that waits for a lower price or a higher balance has no nonce. Once it has both it
// continues.
func TestLegacyQueueWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(1, 5), txtest.Queued(1, "pay"))
	v := txtest.ViewOf(w, txtest.Block('a', 100))
	v.Account.GasPriceWei, v.Account.TipWei = big.NewInt(100), nil
	r := rulesOf(3)
	r.MaxFeePerGasWei = big.NewInt(99)
	check.Equal(t, "above the ceiling", outline(r.PlanAllocations(w, txtest.Reader(nil), v, nil)), "q-1 waits")
	r.MaxFeePerGasWei = big.NewInt(100)
	v.Account.BalanceWei = big.NewInt(21_000*100 + 1 + 21_000*100*9/8 - 1)
	check.Equal(t, "a wei short", outline(r.PlanAllocations(w, txtest.Reader(nil), v, nil)), "q-1 waits")
	v.Account.BalanceWei.Add(v.Account.BalanceWei, big.NewInt(1))
	p := r.PlanAllocations(w, txtest.Reader(nil), v, nil)
	if got := outline(p); got != "q-1=5" || !p.Unsigned[0].Legacy || p.Unsigned[0].FeeCapWei.Int64() != 100 {
		t.Errorf("funded: got %q, %+v; want nonce 5, of legacy form, at 100", got, p.Unsigned)
	}
}

// The state after a commit has the changed rows and the new allocations, without terminal
// transactions.
func TestStateAfterACommit(t *testing.T) {
	t.Parallel()
	load := func() txmanager.SubmitterState {
		return txtest.Queue(txtest.StateOf(4, 7, txtest.Pending(5), txtest.Bare(6)), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(3, "pay"), txtest.Queued(4, "pay"))
	}
	w := load()
	final, rejected, aside, first := endedByReceipt(txtest.Pending(5), txmanager.Receipt{Succeeded: true}), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(3, "pay")
	rejected.State, rejected.Sub = txmanager.Failed, txmanager.Rejected
	aside.DeferredUntilNonce = new(uint64(6))
	first.State, first.Nonce = txmanager.Submitted, new(uint64(7))
	signed := WithVersion(txtest.Bare(6), txmanager.VersionOriginal, txmanager.Signed{Hash: txtest.VersionHash(6, 1)}, txtest.Now)
	after := AfterCommit(w, txmanager.Commit{
		Transitions: []txmanager.Transition{{From: txmanager.Tracking, To: final}, {From: txmanager.Queued, To: rejected}, {From: txmanager.Queued, To: aside}},
		Versions:    []txmanager.Version{{Tx: signed}},
		Allocations: []txmanager.Allocation{{Tx: first, Nonce: 7}},
		Cursor:      txmanager.CursorChange{FinalHead: 100},
	})
	txtest.Same(t, "unsettled", after.Open, []txmanager.Tx{signed, first})
	txtest.Same(t, "queue", after.Queue, []txmanager.Tx{txtest.Queued(4, "pay")})
	if after.NextNonce != 8 || after.FinalHead != 100 || after.Protected || after.LowestOpenNonce() != 6 {
		t.Errorf("got next %d, final head %d, protected %v, lowest %d; want 8, 100, false, 6", after.NextNonce, after.FinalHead, after.Protected, after.LowestOpenNonce())
	}
	txtest.Same(t, "the work before, afterwards", w, load())
}

func TestStateAfterACommitKeepsProtectAndFinalHead(t *testing.T) {
	t.Parallel()
	w := txmanager.SubmitterState{FinalHead: 100}
	if after := AfterCommit(w, txmanager.Commit{Cursor: txmanager.CursorChange{FinalHead: 90}}); after.FinalHead != 100 || after.Protected {
		t.Errorf("got final head %d, protected %v; want 100, false", after.FinalHead, after.Protected)
	}
	if after := AfterCommit(w, txmanager.Commit{Cursor: txmanager.CursorChange{OpenIncident: &txmanager.Violation{}}}); !after.Protected || !AfterCommit(after, txmanager.Commit{}).Protected {
		t.Error("PROTECT was opened and is not kept")
	}
}
