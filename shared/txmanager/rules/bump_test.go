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

// bumpRules are rules with a gas bump each minute, up to 1,000 wei per gas.
func bumpRules() Rules {
	r := rulesOf(3)
	r.Bump = &gas.BumpLimits{Multiplier: 1125, MinInterval: time.Minute, MaxAttempts: 3, FeeCapWei: big.NewInt(1000)}
	return r
}

// waiting is pending(n), due for a bump: its last version was signed a minute ago.
func waiting(n uint64) txmanager.Tx {
	tx := txtest.Pending(n)
	tx.NextCheckAt, tx.Gas = txtest.Ago(time.Second), &txmanager.GasParams{Gas: 21_000, FeeCapWei: big.NewInt(100), TipCapWei: big.NewInt(8), ValueWei: big.NewInt(1)}
	return tx
}

// Which transactions are replaced, and when.
func TestWhatIsBumpedAndWhen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*Rules, *txmanager.Tx)
		want   bool
	}{
		{"an interval after its first broadcast", func(*Rules, *txmanager.Tx) {}, true},
		{"a little before", func(_ *Rules, x *txmanager.Tx) { x.FirstSubmitAt = txtest.Ago(time.Minute - time.Millisecond) }, false},
		{"sent again since: that changes nothing", func(_ *Rules, x *txmanager.Tx) { x.LastSubmitAt = txtest.Ago(0) }, true},
		{"a later version", func(_ *Rules, x *txmanager.Tx) { x.NextBumpAt = txtest.In(time.Second) }, false},
		{"a later version, an interval ago", func(_ *Rules, x *txmanager.Tx) { x.NextBumpAt = txtest.Ago(0) }, true},
		{"no node has said that it holds it", func(_ *Rules, x *txmanager.Tx) { x.State, x.Sub = txmanager.Submitted, "" }, true},
		{"switched off", func(r *Rules, _ *txmanager.Tx) { r.Bump = nil }, false},
		{"included", func(_ *Rules, x *txmanager.Tx) { x.Sub = txmanager.Included }, false},
		{"stuck", func(_ *Rules, x *txmanager.Tx) { x.State, x.Sub = txmanager.Stuck, "" }, false},
		{"in PROTECT", func(_ *Rules, x *txmanager.Tx) { x.State, x.Sub = txmanager.Protect, "" }, false},
		{"an order on it", func(_ *Rules, x *txmanager.Tx) { x.RequestedAction = txmanager.ActionRebroadcast }, false},
		{"one attempt left", func(_ *Rules, x *txmanager.Tx) { *x = txtest.WithVersions(*x, 3) }, true},
		{"none left", func(_ *Rules, x *txmanager.Tx) { *x = txtest.WithVersions(*x, 4) }, false},
		{"a handler made it", func(_ *Rules, x *txmanager.Tx) { x.Handler = "wage" }, false},
		{"a reservation's owner signed it", func(_ *Rules, x *txmanager.Tx) { x.Reservation = &txmanager.Reservation{State: txmanager.Used} }, false},
		{"a handler's placeholder", func(_ *Rules, x *txmanager.Tx) { x.Handler = "wage"; x.Placeholders = x.Versions }, true},
	} {
		r, tx := bumpRules(), waiting(5)
		c.change(&r, &tx)
		check.Equal(t, c.name+": due", r.IsBumpDue(tx, txtest.Now), c.want)
	}
}

// signs is the result of PlanSignatures for w: the new versions and the transitions.
func (r Rules) signs(w txmanager.SubmitterState, v txmanager.ChainObservation, calls map[string]txmanager.Call) ([]SigningJob, []txmanager.Transition) {
	return r.PlanSignatures(w, txtest.Reader(calls), v, HandlerResult{})
}

// dear is an observation whose base fee is above the offers of waiting transactions.
func dear(w txmanager.SubmitterState) txmanager.ChainObservation {
	v := txtest.ViewOf(w, txtest.Block('a', 100))
	v.Account.BaseFeeWei = big.NewInt(200)
	return v
}

// The next version is the same call at the same nonce, and the budget is charged its extra cost.
func TestABumpIsTheSameAtAHigherFee(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6, waiting(5))
	jobs, moves := bumpRules().signs(w, dear(w), nil)
	if len(jobs) != 1 || len(moves) != 0 {
		t.Fatalf("got %d versions, moves %+v; want one, none", len(jobs), moves)
	}
	job := jobs[0]
	if job.Kind != txmanager.VersionBump || job.Unsigned.Nonce != 5 || *job.Unsigned.To != (eip155.Address([20]byte{19: 0xb0})) || job.Unsigned.FeeCapWei.Int64() != 402 || job.Unsigned.TipCapWei.Int64() != 9 {
		t.Errorf("got %s %+v, want a BUMP of the same call at nonce 5, for twice the base fee and a tip, and a tip of 9", job.Kind, job.Unsigned)
	}
	check.Equal(t, "more than before", job.ExtraWei.Int64(), 21_000*(402-100))
	signed := WithVersion(job.Tx, job.Kind, txmanager.Signed{Hash: txtest.VersionHash(5, 2), Raw: []byte{2}}, txtest.Now)
	next := bumpRules().WithBumpedVersion(signed, job)
	if !next.FirstSubmitAt.Equal(*txtest.Ago(time.Minute)) || !next.NextBumpAt.Equal(txtest.Now.Add(time.Minute)) || next.SubmitAttempts != 1 {
		t.Errorf("got first sent %v, next bump %v, %d attempts; want its life to go on, a bump after a minute, one attempt", next.FirstSubmitAt, next.NextBumpAt, next.SubmitAttempts)
	}
}

// Where a bound blocks a bump, the transaction waits as without one, is due again after an
// interval, and has the reason.
func TestBoundsOfABump(t *testing.T) {
	t.Parallel()
	const extra = 21_000 * 302
	room := int64(21_000*402+1) + 21_000*402*9/8 // of the next version, and a placeholder over it
	for _, c := range []struct {
		name   string
		change func(*situation)
		calls  map[string]txmanager.Call
		want   string // the maximum fee of the next version, or why there is none; "": it is not due
	}{
		{"nothing in the way", nil, nil, "402"},
		{"the fee cap", func(s *situation) { s.r.Bump.FeeCapWei = big.NewInt(109) }, nil, "at least 110 wei per gas, a tenth more than the last version, and only 109"},
		{"lowered to the deployment's ceiling", func(s *situation) { s.r.MaxFeePerGasWei = big.NewInt(150) }, nil, "150"},
		{"the deployment's ceiling", func(s *situation) { s.r.MaxFeePerGasWei = big.NewInt(109) }, nil, "fees.maxFeePerGas"},
		{"just enough of the budget", func(s *situation) { s.r.Bump.BudgetWei, s.w.BumpBudgetUsedWei = big.NewInt(extra+7), big.NewInt(7) }, nil, "402"},
		{"a wei too little", func(s *situation) { s.r.Bump.BudgetWei, s.w.BumpBudgetUsedWei = big.NewInt(extra+6), big.NewInt(7) }, nil, "budget"},
		{"nothing spent, a wei too little", func(s *situation) { s.r.Bump.BudgetWei = big.NewInt(extra - 1) }, nil, "budget"},
		{"the account has just enough", func(s *situation) { s.v.Account.BalanceWei = big.NewInt(room) }, nil, "402"},
		{"a wei too little in the account", func(s *situation) { s.v.Account.BalanceWei = big.NewInt(room - 1) }, nil, "cannot pay"},
		{"its caller allows no more", nil, map[string]txmanager.Call{"pay": {To: new(eip155.Address([20]byte{})), Gas: 21_000, FeeCapWei: big.NewInt(105)}}, ""},
		{"its caller allows a little more", nil, map[string]txmanager.Call{"pay": {To: new(eip155.Address([20]byte{})), Gas: 21_000, FeeCapWei: big.NewInt(110)}}, "110"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := txtest.StateOf(1, 6, waiting(5))
			s := situation{bumpRules(), w, dear(w)}
			if c.change != nil {
				c.change(&s)
			}
			jobs, moves := s.r.signs(s.w, s.v, c.calls)
			if len(jobs) == 1 {
				check.Equal(t, "maximum fee of the next version", jobs[0].Unsigned.FeeCapWei.String(), c.want)
				return
			}
			to := moves[0].To
			if to.State != txmanager.Tracking || !to.NextBumpAt.Equal(txtest.Now.Add(time.Minute)) || !strings.Contains(to.LastError, c.want) || (c.want == "") != (to.LastError == "") {
				t.Errorf("got %s, next bump %v, %q; want TRACKING, after a minute, %q", to.State, to.NextBumpAt, to.LastError, c.want)
			}
			if s.r.IsBumpDue(to, txtest.Now) || !s.r.IsBumpDue(to, txtest.Now.Add(time.Minute)) {
				t.Errorf("due now: %v, after a minute: %v; want the other way round", s.r.IsBumpDue(to, txtest.Now), s.r.IsBumpDue(to, txtest.Now.Add(time.Minute)))
			}
		})
	}
}

// With nonce.placeholder=ask no transaction is replaced without a decision: it becomes STUCK with
// the reason.
func TestABumpAsksWhereAnOperatorMustDecide(t *testing.T) {
	t.Parallel()
	r, w := bumpRules(), txtest.StateOf(2, 7, waiting(5), waiting(6))
	r.AskBeforePlaceholder = true
	jobs, moves := r.signs(w, dear(w), nil)
	if len(jobs) != 0 || len(moves) != 1 || moves[0].To.State != txmanager.Stuck || !strings.Contains(moves[0].To.LastError, "nonce.placeholder=ask") {
		t.Errorf("got %d versions, moves %+v; want none, and the lowest STUCK with the reason", len(jobs), moves)
	}
}

// In a window the lowest nonce is bumped, and above it those that blocks would not accept. A
// transaction that only waits for lower nonces keeps its price. All share one available balance
// and one budget.
func TestABumpOfAWindow(t *testing.T) {
	t.Parallel()
	well := waiting(7)
	well.Gas = &txmanager.GasParams{Gas: 21_000, FeeCapWei: big.NewInt(900), TipCapWei: big.NewInt(9), ValueWei: new(big.Int)}
	w := txtest.StateOf(9, 9, waiting(5), waiting(6), well, waiting(8))
	jobs, _ := bumpRules().signs(w, dear(w), nil)
	var got []uint64
	for _, j := range jobs {
		got = append(got, *j.Tx.Nonce)
	}
	check.Same(t, "replaced", got, []uint64{5, 6, 8})
	r := bumpRules()
	r.Bump.BudgetWei = big.NewInt(2 * 21_000 * 302)
	jobs, moves := r.signs(w, dear(w), nil)
	if last := moves[len(moves)-1].To; len(jobs) != 2 || *last.Nonce != 8 || !strings.Contains(last.LastError, "budget") {
		t.Errorf("with a budget for two: got %d, and %d %q; want 2, and 8 held by the budget", len(jobs), *last.Nonce, last.LastError)
	}
	below := waiting(5)
	below.State, below.Sub = txmanager.Submitted, ""
	below.NextBumpAt = txtest.In(time.Hour)
	w = txtest.StateOf(9, 7, below, waiting(6))
	if jobs, _ := bumpRules().signs(w, dear(w), nil); len(jobs) != 0 {
		t.Errorf("above what no node holds: got %d versions, want none", len(jobs))
	}
}

// A waiting placeholder is replaced by a placeholder, under the placeholder's cap.
func TestAPlaceholderIsOutbidByAPlaceholder(t *testing.T) {
	t.Parallel()
	tx := waiting(5)
	tx.Placeholders, tx.Gas.ValueWei = tx.Versions, new(big.Int)
	w := txtest.StateOf(1, 6, tx)
	r := bumpRules()
	r.Bump.FeeCapWei, r.PlaceholderFeeCapWei = big.NewInt(1), big.NewInt(1000)
	jobs, _ := r.signs(w, dear(w), nil)
	if len(jobs) != 1 || jobs[0].Kind != txmanager.VersionPlaceholder || *jobs[0].Unsigned.To != txtest.Alice.Address() || jobs[0].Unsigned.Value.Sign() != 0 || len(jobs[0].Unsigned.Data) != 0 {
		t.Fatalf("got %+v, want a placeholder", jobs)
	}
	r.PlaceholderFeeCapWei = big.NewInt(109)
	if jobs, _ := r.signs(w, dear(w), nil); len(jobs) != 0 {
		t.Errorf("above nonce.placeholderMaxFeePerGas: got %d versions, want none", len(jobs))
	}
}

// No transaction is replaced while a receipt may exist, nor in PROTECT.
func TestNoBumpBesideAReceipt(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6, waiting(5))
	v := dear(w)
	for name, v := range map[string]txmanager.ChainObservation{
		"found":   txtest.Finding(dear(w), txtest.ReceiptOf(w.Open[0], txtest.Block('a', 100))),
		"unknown": {Head: v.Head, Account: v.Account, Receipts: map[txmanager.Hash]txmanager.ReceiptAnswer{}},
	} {
		if jobs, moves := bumpRules().signs(w, v, nil); len(jobs)+len(moves) != 0 {
			t.Errorf("receipt %s: got %d versions, %d moves; want none", name, len(jobs), len(moves))
		}
	}
	w.Protected = true
	if jobs, moves := bumpRules().signs(w, v, nil); len(jobs)+len(moves) != 0 {
		t.Errorf("in PROTECT: got %d versions, %d moves; want none", len(jobs), len(moves))
	}
}

// "Replacement underpriced" makes a higher bump due at once, and is no error. Where no bump is
// possible, it is an ordinary answer, and never a success.
func TestUnderpricedRaisesTheNextBump(t *testing.T) {
	t.Parallel()
	r, tx := bumpRules(), txtest.WithVersions(txtest.Submitted(5), 2)
	tx.NextBumpAt = txtest.In(time.Minute)
	got := r.AfterBroadcast(tx, txmanager.SendResult{Class: txmanager.SendUnderpriced, Text: "replacement transaction underpriced"}, txtest.Block('a', 100), txtest.Now)
	if got.State != txmanager.Submitted || got.LastError != "" || !r.IsBumpDue(got, txtest.Now) {
		t.Errorf("got %s, %q, due %v; want SUBMITTED, no error, a bid due at once", got.State, got.LastError, r.IsBumpDue(got, txtest.Now))
	}
	check.Equal(t, "due: an advance now", r.PlanNextWork(txtest.StateOf(1, 6, got)).AdvanceNow, true)
	got = r.AfterBroadcast(txtest.WithVersions(tx, 4), txmanager.SendResult{Class: txmanager.SendUnderpriced}, txtest.Block('a', 100), txtest.Now)
	if got.State != txmanager.Submitted || !strings.Contains(got.LastError, "replacement_underpriced") || r.IsBumpDue(got, txtest.Now) {
		t.Errorf("no attempt left: got %s, %q; want SUBMITTED with the reason", got.State, got.LastError)
	}
}

// A bump replaces a rebroadcast. An advance is enqueued for it, which alone may sign; no poll
// comes in vain.
func TestABumpComesInPlaceOfAResend(t *testing.T) {
	t.Parallel()
	r, tx := bumpRules(), waiting(5)
	tx.NextResubmitAt = txtest.Ago(time.Second)
	if r.IsRebroadcastDue(tx, txtest.Now) || !rulesOf(3).IsRebroadcastDue(tx, txtest.Now) {
		t.Errorf("due to be sent again: got %v with a bump due, %v without; want false, true", r.IsRebroadcastDue(tx, txtest.Now), rulesOf(3).IsRebroadcastDue(tx, txtest.Now))
	}
	soon, later := txtest.In(10*time.Second), txtest.In(20*time.Second)
	for _, c := range []struct {
		name                  string
		check, bump, resubmit *time.Time
		change                func(*txmanager.SubmitterState)
		want                  NextWork
	}{
		{"due now", txtest.Ago(time.Second), txtest.Ago(time.Second), txtest.Ago(time.Second), nil, NextWork{AdvanceNow: true, Kind: txmanager.KindAdvance, At: *txtest.Ago(time.Second)}},
		{"due with the next check", soon, txtest.Ago(time.Second), txtest.Ago(time.Second), nil, NextWork{Kind: txmanager.KindAdvance, At: *soon}},
		{"due after it", soon, later, txtest.In(time.Hour), nil, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
		{"due at about the time of it", soon, txtest.In(11 * time.Second), txtest.In(time.Hour), nil, NextWork{Kind: txmanager.KindAdvance, At: *soon}},
		{"sent again before", later, later, soon, nil, NextWork{Kind: txmanager.KindResubmit, At: *soon}},
		{"in PROTECT", soon, txtest.Ago(time.Second), txtest.Ago(time.Second), func(w *txmanager.SubmitterState) { w.Protected = true }, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
	} {
		x := waiting(5)
		x.NextCheckAt, x.NextBumpAt, x.NextResubmitAt = c.check, c.bump, c.resubmit
		w := txtest.StateOf(1, 6, x)
		if c.change != nil {
			c.change(&w)
		}
		check.Equal(t, c.name, r.PlanNextWork(w), c.want)
	}
	w := txtest.StateOf(1, 6, tx)
	w.Open[0].NextCheckAt = txtest.In(time.Hour)
	if q, ok := r.NextQuery(w, txmanager.KindAdvance, txtest.Reader(nil)); !ok || len(q.Receipts) != 1 {
		t.Errorf("an advance asks %+v, %v; want the receipt before it replaces", q, ok)
	}
}

// If gas bumps are on, a first version offers no more than blocks require, however much its caller
// allows: the rest is left for later bumps.
func TestFirstVersionLeavesRoomForBumps(t *testing.T) {
	t.Parallel()
	a := txmanager.Account{BaseFeeWei: big.NewInt(100), TipWei: big.NewInt(3)}
	call := txmanager.Call{FeeCapWei: big.NewInt(5000)}
	check.Equal(t, "on", bumpRules().FirstVersionFees(call, 21_000, a).FeeCapWei.Int64(), 203)
	check.Equal(t, "off", rulesOf(3).FirstVersionFees(call, 21_000, a).FeeCapWei.Int64(), 5000)
}

// offers is a policy that proposes one fee in both fields.
type offers int64

func (o offers) Propose(gas.BumpRequest) (gas.ProposedFees, bool) {
	return gas.ProposedFees{FeeWei: big.NewInt(int64(o)), TipWei: big.NewInt(int64(o))}, true
}

// A deployer's policy is held to the bounds of the default: caps, budget and what nodes require.
func TestADeployersPolicyIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		offer    offers
		budget   *big.Int
		fee, tip int64  // signed
		want     string // the reason why nothing is
	}{
		{"within all bounds", 500, nil, 500, 500, ""},
		{"above the cap", 1_000_000, nil, 1000, 1000, ""},
		{"below a tenth more", 109, nil, 0, 0, "gas bump: its policy proposed a fee of 109"},
		{"above the budget", 500, big.NewInt(21_000*400 - 1), 0, 0, "gas bump: the submitter's budget"},
	} {
		r, w := bumpRules(), txtest.StateOf(1, 6, waiting(5))
		r.Bump.Policy, r.Bump.BudgetWei = c.offer, c.budget
		jobs, moves := r.signs(w, dear(w), nil)
		switch {
		case c.want != "" && (len(jobs) > 0 || len(moves) != 1 || !strings.HasPrefix(moves[0].To.LastError, c.want)):
			t.Errorf("%s: got %d versions, moves %+v; want none, and %q", c.name, len(jobs), moves, c.want)
		case c.want == "" && (len(jobs) != 1 || jobs[0].Unsigned.FeeCapWei.Int64() != c.fee || jobs[0].Unsigned.TipCapWei.Int64() != c.tip):
			t.Errorf("%s: got %+v, moves %+v; want a version for %d and a tip of %d", c.name, jobs, moves, c.fee, c.tip)
		}
	}
}

// While a bound blocks a gas bump, rebroadcasts of the same bytes keep its reason, whatever nodes
// answer. The reason is removed when the bound allows the bump, or a receipt arrives.
func TestTheReasonOfABlockedBumpStays(t *testing.T) {
	t.Parallel()
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
}

// With nonce.placeholder=ask, an operator is asked only about a bump that would be made: not where
// a bound or its caller forbids it, nor where it would not help.
func TestOperatorIsAskedOnlyAboutAPossibleBump(t *testing.T) {
	t.Parallel()
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
}

// After a reorg or a decision the same bytes are sent again at once. The next gas bump comes one
// interval later, however old the previous version is.
func TestRestartedTransactionIsSentBeforeItIsReplaced(t *testing.T) {
	t.Parallel()
	r := bumpRules()
	old := []txmanager.Header{txtest.Block('a', 100)}
	tx := txtest.Included(5, old...)
	tx.NextBumpAt = txtest.Ago(time.Minute)
	w := txtest.StateOf(1, 6, tx)
	q := txtest.Asking(w)
	q.FromBlock, q.ToBlock = 100, 103
	j := r.Evaluate(w, q, txtest.ViewOf(w, txtest.Blocks('b', 100, 102)...))
	if got := j.Rebroadcasts; len(got) != 1 || r.IsBumpDue(j.After[0], txtest.Now) || !r.IsBumpDue(j.After[0], txtest.Now.Add(time.Minute)) {
		t.Errorf("after a reorg: got %v sent again, a bid due %v; want it sent, and a bid after an interval", got, r.IsBumpDue(j.After[0], txtest.Now))
	}
	tx = txtest.Stuck(5)
	tx.NextBumpAt, tx.RequestedAction, tx.Raw = txtest.Ago(time.Hour), txmanager.ActionRebroadcast, []byte{1}
	w = txtest.StateOf(1, 6, tx)
	j = r.Evaluate(w, txtest.Asking(w), txtest.ViewOf(w, txtest.Block('a', 100)))
	if got := j.Rebroadcasts; len(got) != 1 || r.IsBumpDue(j.After[0], txtest.Now) {
		t.Errorf("by a decision: got %v sent again, a bid due %v; want it sent, none due", got, r.IsBumpDue(j.After[0], txtest.Now))
	}
}

// A transaction above the lowest nonce that no node holds is bumped too, even if blocks would
// accept its price. It does not only wait for lower nonces.
func TestAWindowOutbidsWhatNoNodeHolds(t *testing.T) {
	t.Parallel()
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
}

// If a node cannot say whether a receipt exists, the same bytes are still rebroadcast: only the
// bump waits.
func TestWithoutAnAnswerTheSameIsSentAgain(t *testing.T) {
	t.Parallel()
	r, tx := bumpRules(), waiting(5)
	tx.NextResubmitAt = txtest.Ago(time.Second)
	w := txtest.StateOf(1, 6, tx)
	v := dear(w)
	v.Receipts[tx.Versions[0]] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerUnknown}
	check.Equal(t, "sent again as it is", len(r.Evaluate(w, txtest.Asking(w), v).Rebroadcasts), 1)
	jobs, _ := r.signs(w, v, nil)
	check.Equal(t, "versions", len(jobs), 0)
	delete(v.Receipts, tx.Versions[0]) // the query did not cover it
	check.Equal(t, "not asked: sent again, and no bid in its place", len(r.Evaluate(w, txtest.Asking(w), v).Rebroadcasts), 0)
}

// If a broadcast and a gas bump are both due at a late check, the bump is made in place of the
// broadcast. If a bound blocks the bump, the broadcast is made.
func TestDueBumpReplacesADueBroadcast(t *testing.T) {
	t.Parallel()
	r, tx := bumpRules(), waiting(5)
	tx.NextResubmitAt, tx.NextBumpAt, tx.NextCheckAt = txtest.Ago(2*time.Second), txtest.Ago(time.Second), txtest.In(10*time.Second)
	check.Equal(t, "no other function may sign", r.PlanNextWork(txtest.StateOf(1, 6, tx)), (NextWork{Kind: txmanager.KindAdvance, At: *txtest.In(10 * time.Second)}))
	tx.Explain(txmanager.WaitGasBump, gas.BumpBlockedPrefix+"the submitter's budget of 24 hours is used up")
	w := txtest.StateOf(1, 6, tx)
	check.Equal(t, "held", r.PlanNextWork(w), (NextWork{Kind: txmanager.KindResubmit, At: *txtest.Ago(2 * time.Second)}))
	j := r.Evaluate(w, txtest.Asking(w), dear(w))
	check.Equal(t, "held: sent again", len(j.Rebroadcasts), 1)
	w.Open = j.After
	jobs, _ := r.signs(w, dear(w), nil)
	check.Equal(t, "held no more: versions, in place of the broadcast", len(jobs), 1)
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
	t.Parallel()
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
	jobs, _ := r.PlanSignatures(w, txtest.Reader(nil), v, HandlerResult{})
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
}

// A wrong MAC is the recorded reason of a placeholder, also if the row's handler failed.
func TestForgedComesBeforeAFailedHandler(t *testing.T) {
	t.Parallel()
	x := txtest.OfHandler(5)
	x.Forged, x.SubmitAttempts = "the intent's MAC is missing or wrong", 3
	w := txtest.StateOf(5, 6, x)
	_, moves := rulesOf(3).PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), HandlerResult{TxID: x.ID, Failed: "handler h: asked 3 times without an answer"})
	if len(moves) != 1 || moves[0].Decision == nil || moves[0].Decision.By != DecidedByMAC {
		t.Errorf("got %+v, want a placeholder decided by the MAC", moves)
	}
}

// A handler that failed for one nonce puts no placeholder on the nonce below it.
func TestAFailedHandlerConcernsItsOwnNonce(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(5, 7, txtest.Pending(5), txtest.OfHandler(6))
	_, moves := rulesOf(3).PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), HandlerResult{TxID: "tx-6", Failed: "asked 3 times without an answer"})
	if len(moves) != 1 || moves[0].To.ID != "tx-6" {
		t.Errorf("got %+v, want one move, of tx-6", moves)
	}
}

// Page 6, 5.22, as changed: both fees rise by an eighth and are lowered to the cap, but not below
// a tenth more. A cap of 500 gwei allows replacing 450 gwei, and does not allow replacing 460.
func TestOneRuleForEachReplacement(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		last int64
		want string // of the reason
	}{
		{450_000_000_000, ""},
		{460_000_000_000, "a replacement must offer at least 506000000000 wei per gas, a tenth more than the last version, and only 500000000000 is allowed"},
	} {
		tx := waiting(5)
		tx.Gas = txtest.Params(21_000, c.last, 1)
		w := txtest.StateOf(1, 6, tx)
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Account.BalanceWei = new(big.Int).Lsh(big.NewInt(1), 100)
		v.SelfTransfer = txmanager.Estimate{Outcome: txmanager.Done, Gas: 21_000}
		for name, got := range map[string]func() (SigningJob, txmanager.Wait){
			"a placeholder": func() (SigningJob, txmanager.Wait) {
				r := rulesOf(3)
				r.PlaceholderFeeCapWei = big.NewInt(500_000_000_000)
				return r.placeholderVersion(tx, v)
			},
			"an operator's replacement": func() (SigningJob, txmanager.Wait) {
				r := rulesOf(3)
				r.PlaceholderFeeCapWei = big.NewInt(562_500_000_000) // 8/9 of it are 500
				return r.replacementVersion(txmanager.Bounds{}, tx, txtest.Reader(nil), v)
			},
			"a gas bump": func() (SigningJob, txmanager.Wait) {
				r := bumpRules()
				r.MaxFeePerGasWei, r.Bump.BudgetWei, r.Bump.FeeCapWei = nil, nil, big.NewInt(500_000_000_000)
				next, reason, _ := r.NewBumpPlanner(w, txtest.Reader(nil), v).Next(tx)
				return SigningJob{Unsigned: txmanager.Unsigned{FeeCapWei: next.Params.FeeCapWei}}, txmanager.WaitFor(txmanager.WaitGasBump, reason)
			},
		} {
			job, why := got()
			reason := why.Reason
			switch signed := reason == ""; {
			case signed != (c.want == ""), !signed && reason[:min(len(reason), len(c.want))] != c.want:
				t.Errorf("%s over %d: got %q, want %q", name, c.last, reason, c.want)
			case signed && job.Unsigned.FeeCapWei.Int64() != 500_000_000_000:
				t.Errorf("%s over %d: got %s wei per gas, want the cap", name, c.last, job.Unsigned.FeeCapWei)
			}
		}
	}
}
