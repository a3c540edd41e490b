package rules

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// While a bound blocks a gas bump, rebroadcasts of the same bytes keep its reason, whatever nodes
// answer. The reason is removed when the bound allows the bump, or a receipt arrives.
func TestTheReasonOfABlockedBumpStays(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		const reason = "gas bump: the submitter's budget of 24 hours is used up"
		r, head := bumpRules(), txtest.Block('a', 100)
		for _, class := range []txmanager.SendClass{txmanager.SendAccepted, txmanager.SendAlreadyKnown, txmanager.SendUnderpriced} {
			tx := txtest.WithVersions(txtest.Submitted(5), 2)
			tx.Explain(txmanager.WaitGasBump, reason)
			tx.NextBumpAt, tx.SubmitAttempts = txtest.In(time.Minute), 1
			got := r.AfterBroadcast(tx, txmanager.SendResult{Class: class}, head, txtest.Now)
			if got.LastError != reason || got.Cause != txmanager.WaitGasBump || !got.NextBumpAt.Equal(txtest.Now.Add(time.Minute)) {
				t.Errorf("%s: got %q, next bid %v; want the reason as it was, in a minute", class, got.LastError, got.NextBumpAt)
			}
			if got.NextResubmitAt == nil || !got.NextResubmitAt.After(txtest.Now) || !got.NextCheckAt.After(txtest.Now) {
				t.Errorf("%s: got sent again %v, looked at %v; want both later", class, got.NextResubmitAt, got.NextCheckAt)
			}
			got = rulesOf(3).AfterBroadcast(tx, txmanager.SendResult{Class: class}, head, txtest.Now)
			check.Equal(t, class.String()+", switched off meanwhile: the reason stays", got.LastError == reason, false)
			got = r.AfterBroadcast(txtest.WithVersions(tx, 4), txmanager.SendResult{Class: class}, head, txtest.Now)
			check.Equal(t, class.String()+", with no bid left: the reason stays", got.LastError == reason, false)
		}
		held := waiting(5)
		held.Explain(txmanager.WaitGasBump, reason)
		w := txtest.StateOf(1, 6, held)
		calls := map[string]txmanager.Call{"pay": {To: new(eip155.Address([20]byte{})), Gas: 21_000, FeeCapWei: big.NewInt(105)}}
		if _, moves := r.signs(w, dear(w), calls); len(moves) != 1 || moves[0].To.LastError != "" || moves[0].To.Cause != "" {
			t.Errorf("no bid is wanted any more: got %+v, want a move without a reason", moves)
		}
	})
}

// With nonce.placeholder=ask, an operator is asked only about a bump that would be made: not where
// a bound or its caller forbids it, nor where it would not help.
func TestOperatorIsAskedOnlyAboutAPossibleBump(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		r := bumpRules()
		r.AskBeforePlaceholder = true
		w := txtest.StateOf(1, 6, waiting(5))
		calls := map[string]txmanager.Call{"pay": {To: new(eip155.Address([20]byte{})), Gas: 21_000, FeeCapWei: big.NewInt(105)}}
		if _, moves := r.signs(w, dear(w), calls); len(moves) != 1 || moves[0].To.State != txmanager.Tracking || moves[0].To.LastError != "" {
			t.Errorf("its caller allows no more: got %+v, want it to wait as it is", moves)
		}
		r.Bump.BudgetWei = big.NewInt(1)
		if _, moves := r.signs(w, dear(w), nil); len(moves) != 1 || moves[0].To.State != txmanager.Tracking || !strings.Contains(moves[0].To.LastError, "budget") {
			t.Errorf("beyond the budget: got %+v, want it held with the reason", moves)
		}
		r.Bump.BudgetWei = nil
		if _, moves := r.signs(w, dear(w), nil); len(moves) != 1 || moves[0].To.State != txmanager.Stuck {
			t.Errorf("a bid within all bounds: got %+v, want it STUCK", moves)
		}
	})
}

// After a reorg or a decision the same bytes are sent again at once. The next gas bump comes one
// interval later, however old the previous version is.
func TestRestartedTransactionIsSentBeforeItIsReplaced(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		r := bumpRules()
		old := []txmanager.Header{txtest.Block('a', 100)}
		tx := txtest.Included(5, old...)
		tx.NextBumpAt = txtest.Ago(time.Minute)
		w := txtest.StateOf(1, 6, tx)
		q := txtest.Asking(w)
		q.FromBlock, q.ToBlock = 100, 103
		j := r.Evaluate(w, q, txtest.ViewOf(w, txtest.Blocks('b', 100, 102)...))
		if got := j.ClaimedIDs(); len(got) != 1 || r.IsBumpDue(j.After[0], txtest.Now) || !r.IsBumpDue(j.After[0], txtest.Now.Add(time.Minute)) {
			t.Errorf("after a reorg: got %v sent again, a bid due %v; want it sent, and a bid after an interval", got, r.IsBumpDue(j.After[0], txtest.Now))
		}
		tx = txtest.Stuck(5)
		tx.NextBumpAt, tx.RequestedAction, tx.Raw = txtest.Ago(time.Hour), txmanager.ActionRebroadcast, []byte{1}
		w = txtest.StateOf(1, 6, tx)
		j = r.Evaluate(w, txtest.Asking(w), txtest.ViewOf(w, txtest.Block('a', 100)))
		if got := j.ClaimedIDs(); len(got) != 1 || r.IsBumpDue(j.After[0], txtest.Now) {
			t.Errorf("by a decision: got %v sent again, a bid due %v; want it sent, none due", got, r.IsBumpDue(j.After[0], txtest.Now))
		}
	})
}

// A transaction above the lowest nonce that no node holds is bumped too, even if blocks would
// accept its price. It does not only wait for lower nonces.
func TestAWindowOutbidsWhatNoNodeHolds(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		refused := txtest.WithVersions(txtest.Submitted(6), 2)
		refused.Gas, refused.Payload = &txmanager.GasParams{Gas: 21_000, FeeCapWei: big.NewInt(900), TipCapWei: big.NewInt(9), ValueWei: new(big.Int)}, []byte("pay")
		below := waiting(5)
		below.NextBumpAt = txtest.In(time.Hour)
		w := txtest.StateOf(9, 7, below, refused)
		r := bumpRules()
		r.Bump.FeeCapWei = big.NewInt(2000)
		w.Open[1] = r.AfterBroadcast(w.Open[1], txmanager.SendResult{Class: txmanager.SendUnderpriced}, txtest.Block('a', 100), txtest.Now)
		jobs, moves := r.signs(w, dear(w), nil)
		if len(jobs) != 1 || *jobs[0].Tx.Nonce != 6 {
			t.Errorf("got %d versions, moves %+v; want one of nonce 6", len(jobs), moves)
		}
	})
}

// No gas bump exceeds the deployment's fee limit, whatever the gas bump's own cap is.
func TestABidIsUnderTheCeiling(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		r, w := bumpRules(), txtest.StateOf(1, 6, waiting(5))
		r.MaxFeePerGasWei = big.NewInt(150)
		jobs, _ := r.signs(w, dear(w), nil)
		if len(jobs) != 1 || jobs[0].Unsigned.FeeCapWei.Int64() != 150 {
			t.Fatalf("got %+v, want a bid at the ceiling of 150", jobs)
		}
		r.MaxFeePerGasWei = big.NewInt(109)
		jobs, moves := r.signs(w, dear(w), nil)
		if len(jobs) != 0 || len(moves) != 1 || !strings.Contains(moves[0].To.LastError, "fees.maxFeePerGas") {
			t.Errorf("below what nodes demand: got %d versions, %+v; want it held, by fees.maxFeePerGas", len(jobs), moves)
		}
	})
}

// If a node cannot say whether a receipt exists, the same bytes are still rebroadcast: only the
// bump waits.
func TestWithoutAnAnswerTheSameIsSentAgain(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		r, tx := bumpRules(), waiting(5)
		tx.NextResubmitAt = txtest.Ago(time.Second)
		w := txtest.StateOf(1, 6, tx)
		v := dear(w)
		v.Receipts[tx.Versions[0]] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerUnknown}
		check.Equal(t, "sent again as it is", len(r.Evaluate(w, txtest.Asking(w), v).ClaimedIDs()), 1)
		jobs, _ := r.signs(w, v, nil)
		check.Equal(t, "versions", len(jobs), 0)
		delete(v.Receipts, tx.Versions[0]) // the query did not cover it
		check.Equal(t, "not asked: sent again, and no bid in its place", len(r.Evaluate(w, txtest.Asking(w), v).ClaimedIDs()), 0)
	})
}

// If a broadcast and a gas bump are both due at a late check, the bump is made in place of the
// broadcast. If a bound blocks the bump, the broadcast is made.
func TestDueBumpReplacesADueBroadcast(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		r, tx := bumpRules(), waiting(5)
		tx.NextResubmitAt, tx.NextBumpAt, tx.NextCheckAt = txtest.Ago(2*time.Second), txtest.Ago(time.Second), txtest.In(10*time.Second)
		check.Equal(t, "no other function may sign", r.PlanNextWork(txtest.StateOf(1, 6, tx)), (NextWork{Kind: txmanager.KindAdvance, At: *txtest.In(10 * time.Second)}))
		tx.Explain(txmanager.WaitGasBump, gas.BumpBlockedPrefix+"the submitter's budget of 24 hours is used up")
		w := txtest.StateOf(1, 6, tx)
		check.Equal(t, "held", r.PlanNextWork(w), (NextWork{Kind: txmanager.KindResubmit, At: *txtest.Ago(2 * time.Second)}))
		j := r.Evaluate(w, txtest.Asking(w), dear(w))
		check.Equal(t, "held: sent again", len(j.ClaimedIDs()), 1)
		w.Open = j.After
		jobs, _ := r.signs(w, dear(w), nil)
		check.Equal(t, "held no more: versions, in place of the broadcast", len(jobs), 1)
	})
}

// greedy proposes more than any limit.
type greedy struct{}

func (greedy) Propose(gas.BumpRequest) (gas.ProposedFees, bool) {
	huge := new(big.Int).Lsh(big.NewInt(1), 100)
	return gas.ProposedFees{FeeWei: huge, TipWei: huge}, true
}

// The tip that a deployer's policy proposes for a placeholder is limited as other tips are, and can
// still outbid the version before.
func TestACustomPolicysTipOfAPlaceholderIsLimited(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		gwei := big.NewInt(gas.WeiPerGwei)
		x := txtest.Pending(5)
		x.Placeholders, x.FirstSubmitAt, x.NextCheckAt = x.Versions, txtest.Ago(time.Hour), txtest.Ago(time.Second)
		x.Gas = &txmanager.GasParams{Gas: 21000, FeeCapWei: new(big.Int).Mul(gwei, big.NewInt(20)), TipCapWei: gwei, ValueWei: new(big.Int)}
		r := rulesOf(3)
		r.StuckAfter, r.TipMultiple, r.PlaceholderFeeCapWei = 24*time.Hour, 10, new(big.Int).Mul(gwei, big.NewInt(650))
		r.Bump = &gas.BumpLimits{Policy: greedy{}, MinInterval: time.Minute, MaxAttempts: 5}
		w := txtest.StateOf(5, 6, x)
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Account.BalanceWei = new(big.Int).Mul(gwei, big.NewInt(1e12))
		jobs, _ := r.PlanSignatures(w, txtest.Reader(nil), v, nil)
		if len(jobs) != 1 {
			t.Fatalf("got %d jobs, want a gas bump of the placeholder", len(jobs))
		}
		limit := new(big.Int).Mul(v.Account.TipWei, big.NewInt(10))
		if outbids := new(big.Int).Div(new(big.Int).Mul(gwei, big.NewInt(9)), big.NewInt(8)); limit.Cmp(outbids) < 0 {
			limit = outbids
		}
		if got := jobs[0].Tx.Gas.TipCapWei; got.Cmp(limit) > 0 {
			t.Errorf("tip: got %s wei, want at most %s", got, limit)
		}
	})
}

// A wrong MAC is the recorded reason of a placeholder, also if the row's handler failed.
func TestForgedComesBeforeAFailedHandler(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		x := txtest.OfHandler(5)
		x.Forged, x.SubmitAttempts = "the intent's MAC is missing or wrong", 3
		w := txtest.StateOf(5, 6, x)
		_, moves := rulesOf(3).PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), map[string]HandlerResult{x.ID: {Failed: "handler h: asked 3 times without an answer"}})
		if len(moves) != 1 || moves[0].Decision == nil || moves[0].Decision.By != DecidedByMAC {
			t.Errorf("got %+v, want a placeholder decided by the MAC", moves)
		}
	})
}
