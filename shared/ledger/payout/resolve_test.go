package payout_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A create after the tombstone gets its txId and is not queued: it can never run. A create before
// it is cancelled in the queue.
func TestTombstoneStopsALaterCreate(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	refused(t, h.ledger.Resolve(t.Context(), transfer.Deposit, x.Call()), payout.Cancelled)
	stone := h.txID(x)
	late, err := h.db.Store.Create(t.Context(), h.intentOf(x), 100)
	if err != nil || late.New || late.Queued || late.TxID != stone {
		t.Errorf("create behind the tombstone: got %+v, %v; want %s, known and not queued", late, err, stone)
	}
	refused(t, h.ledger.Resolve(t.Context(), transfer.Deposit, x.Call()), payout.Cancelled)
	check.Equal(t, "decisions on record", value[int](h, `select count(*) from tx_decision where tx_id = $1 and action = 'CANCEL' and by = 'transfer'`, stone), 1)
	h.drive(x.ReqID, transfer.RolledBack)
	h.neverPaid(x)
}

// A create and a cancel at once leave one FAILED row, and both callers get it.
func TestCreateAndCancelAtOnceLeaveOneFailedRow(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	for range 40 {
		x := h.due(coin)
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() {
			<-start
			if o := h.ledger.Deposit(t.Context(), x.Call()); o.Verdict == transfer.Success {
				t.Errorf("deposit beside a cancel: got %+v, want it refused or unknown", o)
			}
		})
		both.Go(func() {
			<-start
			refused(t, h.ledger.Resolve(t.Context(), transfer.Deposit, x.Call()), payout.Cancelled)
		})
		close(start)
		both.Wait()
		h.wantManaged(x, "FAILED/CANCELLED")
		h.drive(x.ReqID, transfer.RolledBack)
	}
	h.has(coin, "10")
}

// Giving up at each state of the transaction. Before it has a nonce the payout ends at once.
// Afterwards the mined transaction decides, and a final one stays.
func TestResolveEndsThePayoutInEveryState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		to   func(h *env, x transfer.Transfer) // starting with the post
		then string                            // after the cancel, before the worker runs
		ends string
		want transfer.State
	}{
		{"QUEUED", func(*env, transfer.Transfer) {}, "FAILED/CANCELLED", "FAILED/CANCELLED", transfer.RolledBack},
		{"IN_FLIGHT", func(h *env, x transfer.Transfer) {
			elsewhere := &elsewhere{Signer: h.worker.SignerNamed("local"), silent: true}
			h.worker.SignerNamed = func(string) txmanager.Signer { return elsewhere }
			h.await("it has a nonce", func() bool {
				_ = h.worker.ServeSubmitter(h.t.Context(), h.payer, txmanager.KindAdvance) // the signer does not answer, so Serve fails
				return h.managed(x.ReqID) == "IN_FLIGHT"
			})
			elsewhere.silent = false
		}, "IN_FLIGHT", "FAILED/PLACEHOLDER", transfer.RolledBack},
		{"TRACKING/PENDING", func(h *env, x transfer.Transfer) { h.serveUntil(x.ReqID, "TRACKING/PENDING") },
			"TRACKING/PENDING", "FAILED/PLACEHOLDER", transfer.RolledBack},
		{"SUBMITTED", func(h *env, x transfer.Transfer) {
			h.serveUntil(x.ReqID, "TRACKING/PENDING")
			h.run(`update managed_tx set state = 'SUBMITTED', sub_state = null, next_resubmit_at = clock_timestamp() + interval '1 hour' where request_id = $1`, x.ReqID)
		}, "SUBMITTED", "FAILED/PLACEHOLDER", transfer.RolledBack},
		{"TRACKING/INCLUDED", func(h *env, x transfer.Transfer) {
			h.serveUntil(x.ReqID, "TRACKING/PENDING")
			h.mine(1)
			h.serveUntil(x.ReqID, "TRACKING/INCLUDED")
		}, "TRACKING/INCLUDED", "CONFIRMED", transfer.Committed},
		{"STUCK", func(h *env, x transfer.Transfer) {
			h.serveUntil(x.ReqID, "TRACKING/PENDING")
			h.run(`update managed_tx set first_submit_at = clock_timestamp() - interval '2 hours', next_check_at = clock_timestamp() where request_id = $1`, x.ReqID)
			h.serveUntil(x.ReqID, "STUCK")
		}, "STUCK", "FAILED/PLACEHOLDER", transfer.RolledBack},
		{"CONFIRMED", func(h *env, x transfer.Transfer) { h.mineUntil(x.ReqID, "CONFIRMED") }, "CONFIRMED", "CONFIRMED", transfer.Committed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, x := newDue(t)
			h.drive(x.ReqID, transfer.TargetPending)
			c.to(h, x)
			h.wantManaged(x, c.name)
			h.giveUp(x.ReqID)
			check.Equal(t, "after the cancel", h.managed(x.ReqID), c.then)
			if c.then != c.ends {
				h.mineUntil(x.ReqID, c.ends)
			}
			h.drive(x.ReqID, c.want)
			paid, left := onePayment, "8.5"
			if c.want == transfer.RolledBack {
				paid, left = "0", "10"
			}
			h.has(coin, left)
			h.wantPaid(paid)
		})
	}
}

// elsewhere is a signer in another process that can stop answering.
type elsewhere struct {
	txmanager.Signer
	silent bool
}

func (*elsewhere) InProcess(txmanager.Submitter) bool { return false }

func (s *elsewhere) Sign(ctx context.Context, of txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	if s.silent {
		return txmanager.Signed{}, errors.New("no answer")
	}
	return s.Signer.Sign(ctx, of, tx)
}

// Only a FAILED transaction refuses, and each FAILED one does.
func TestOnlyFailedTransactionsRefuse(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	for sub, want := range map[string]transfer.Reason{"REJECTED": payout.Rejected, "CANCELLED": payout.Cancelled, "DISPLACED": payout.Displaced} {
		x := h.due(coin)
		h.wantUnknown(x, payout.ErrPending)
		h.run(`update managed_tx set state = 'FAILED', sub_state = $2 where request_id = $1`, x.ReqID, sub)
		refused(t, h.ledger.Deposit(t.Context(), x.Call()), want)
		h.drive(x.ReqID, transfer.RolledBack)
	}
}

// Nothing is posted for a call that differs from the row, a payout that does not wait, a key of
// another caller's transaction, or a payer that others can use.
func TestMismatchedCallsPostNothing(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	for _, change := range []func(*transfer.Call){
		func(c *transfer.Call) { c.UserID++ }, func(c *transfer.Call) { c.AssetID++ }, func(c *transfer.Call) { c.Units++ },
	} {
		c := x.Call()
		change(&c)
		unknown(t, h.ledger.Deposit(t.Context(), c), payout.ErrOtherFields)
		unknown(t, h.ledger.Resolve(t.Context(), transfer.Deposit, c), payout.ErrOtherFields)
	}
	unknown(t, h.ledger.Deposit(t.Context(), transfer.Call{ReqID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}), transfer.ErrNotFound)
	unknown(t, h.ledger.Withdraw(t.Context(), x.Call()), payout.ErrNoLedger)
	unknown(t, h.ledger.Refund(t.Context(), x.Call()), payout.ErrNoLedger)
	unknown(t, h.ledger.Resolve(t.Context(), transfer.Refund, x.Call()), payout.ErrNoLedger)

	early := h.stored(coin) // in INIT: nothing was withdrawn
	h.wantUnknown(early, payout.ErrNotDue)
	unknown(t, h.ledger.Resolve(t.Context(), transfer.Deposit, early.Call()), payout.ErrNotDue)

	open := h.pays(accounts[1], store.PayoutCaller)
	h.unguarded()
	h.asset(coin, "", open)
	shared := h.due(coin)
	check.OK(t)(h.db.DB.Exec(t.Context(), `update submitter set callers = '{*,mallory}' where submitter = $1`, open))
	h.wantUnknown(shared, payout.ErrNotPayer)
	unknown(t, h.ledger.Resolve(t.Context(), transfer.Deposit, shared.Call()), payout.ErrNotPayer)
	theirs := h.intentOf(shared)
	theirs.Caller = "mallory"
	check.OK(t)(h.db.Store.Create(t.Context(), theirs, 100))
	h.wantUnknown(shared, payout.ErrForeignRequest)
	check.Equal(t, "transactions", value[int](h, `select count(*) from managed_tx where caller <> 'mallory'`), 0)
	check.Equal(t, "critical lines", h.log.severe("CRITICAL", waits), 3)
}

// A refusal by the payer's policy does not refund the payout. The payout is tried again and made
// once the policy has room. If it never can have room, a critical line is logged. Repeated attempts
// count once.
func TestPolicyRefusalKeepsThePayoutPending(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	wei := value[string](h, `select payout_payload ->> 'value' from transfers_tb where req_id = $1`, x.ReqID)
	limit := func(p store.Policy) {
		t.Helper()
		check.OK(t)(h.db.Store.PutPolicy(t.Context(), store.PolicyChange{Submitter: h.payer, Policy: p, By: "olga", Reason: "a test"}))
	}
	for i, p := range []store.Policy{{MaxValue: new("1")}, {Targets: []string{store.TargetDeploy}}, {MaxValuePerDay: new("1")}} {
		limit(p)
		h.drive(x.ReqID, transfer.TargetPending)
		check.Equal(t, fmt.Sprintf("critical lines after %+v", p), h.log.severe("CRITICAL", waits), min(i+1, 2))
	}
	h.wantManaged(x, "")
	limit(store.Policy{MaxValuePerDay: &wei})
	h.drive(x.ReqID, transfer.TargetPending)
	h.drive(x.ReqID, transfer.TargetPending)
	check.Equal(t, "counted wei", value[string](h, `select sum(added_wei)::text from submitter_use`), wei)
	h.mineUntil(x.ReqID, "CONFIRMED")
	h.drive(x.ReqID, transfer.Committed)
}

// A request that a release recorded as lost is neither paid again nor refunded: a transaction that
// this database does not know has paid it.
func TestRecordedLossIsNeitherPaidAgainNorRefunded(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.protect()
	h.run(`update protect_incident set closed_at = clock_timestamp(), closed_by = 'ann', mode = 'resync', reason = 'restored',
		released = jsonb_build_object('count', 1, 'requests', jsonb_build_object('0', $1::text))`, x.ReqID)
	h.wantUnknown(x, payout.ErrForeignRequest)
	unknown(t, h.ledger.Resolve(t.Context(), transfer.Deposit, x.Call()), payout.ErrForeignRequest)
	h.wantManaged(x, "")
	h.drive(h.due(coin).ReqID, transfer.TargetPending)
	h.drive(x.ReqID, transfer.TargetPending)
}

// In a restored database nothing is posted, and none of its rows refunds.
func TestRestoredDatabasePostsAndRefundsNothing(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	x, failed := h.due(coin), h.due(coin)
	refused(t, h.ledger.Resolve(t.Context(), transfer.Deposit, failed.Call()), payout.Cancelled)
	h.restore()
	for _, c := range []transfer.Call{x.Call(), failed.Call()} {
		unknown(t, h.ledger.Deposit(t.Context(), c), payout.ErrInDoubt)
		unknown(t, h.ledger.Resolve(t.Context(), transfer.Deposit, c), payout.ErrInDoubt)
	}
	h.wantManaged(x, "")
}

// The poster may have died before it enqueued a task. Asking again enqueues one.
func TestDepositOfAQueuedPayoutEnqueuesATask(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.manager.set(func(m *manager) { m.fail = errors.New("the answer was lost") })
	h.drive(x.ReqID, transfer.TargetPending)
	check.Equal(t, "tasks while the answer is lost", h.tasks.Load(), 0)
	h.drive(x.ReqID, transfer.TargetPending)
	check.Equal(t, "tasks", h.tasks.Load(), 1)
}

// H31: a payout that waits for its chain is logged as information up to twice the expected
// finality, and as critical afterwards.
func TestH31WaitingPayoutTurnsCriticalAfterItsLimit(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	limit := transfer.DefaultRules().PayoutLimit
	for _, c := range []struct {
		ago      time.Duration
		critical int
	}{{2 * time.Minute, 0}, {limit - time.Minute, 0}, {limit + time.Minute, 1}} {
		h.run(`update transfers_tb set state_at = clock_timestamp() - $2::interval where req_id = $1`, x.ReqID, c.ago)
		h.drive(x.ReqID, transfer.TargetPending)
		check.Equal(t, "critical lines after "+c.ago.String(), h.log.severe("CRITICAL", "funds in flight"), c.critical)
	}
	for _, c := range []struct {
		mode          txmanager.Finality
		confirmations uint64
		want          time.Duration
	}{{txmanager.ByConfirmations, 20, 528 * time.Second}, {txmanager.ByFinalized, 20, 2304 * time.Second}, {txmanager.ByConfirmations, 1, time.Minute}} {
		if got := payout.Limit(c.mode, c.confirmations, 12*time.Second, time.Minute); got < c.want || got > c.want+20*time.Second {
			t.Errorf("limit by %s, %d: got %s, want %s", c.mode, c.confirmations, got, c.want)
		}
	}
}

// H31: a payout that has not begun within transfer.initTimeout never begins.
func TestH31PayoutInInitExpires(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	x := h.stored(coin)
	check.OK(t)(h.db.DB.Exec(t.Context(), `alter table transfers_tb disable trigger guard_transfer_binding`))
	h.run(`update transfers_tb set created_at = clock_timestamp() - interval '16 minutes' where req_id = $1`, x.ReqID)
	if got := h.drive(x.ReqID, transfer.Failed); got.Reason != transfer.Expired || h.managed(x.ReqID) != "" {
		t.Errorf("got %s, transaction %q; want EXPIRED, none", got.Reason, h.managed(x.ReqID))
	}
	h.has(coin, "10")
}

// Only the coordinator can make, cancel or replace a payout.
func TestOnlyTheCoordinatorPays(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	theirs := h.intentOf(x)
	theirs.Caller = "mallory"
	if _, err := h.db.Store.Create(t.Context(), theirs, 100); !errors.Is(err, store.ErrUnknownSubmitter) || h.managed(x.ReqID) != "" {
		t.Errorf("create by another: got %v, %q; want it unknown, nothing stored", err, h.managed(x.ReqID))
	}
	h.drive(x.ReqID, transfer.TargetPending)
	id := h.txID(x)
	order := func(action txmanager.Action, want error) {
		t.Helper()
		before := value[string](h, `select coalesce(requested_action, '') || state from managed_tx where tx_id = $1`, id)
		_, err := h.db.Store.RecordDecision(t.Context(), store.Decision{TxID: id, By: store.Viewer{Caller: "ann", Operator: true}, Action: action, Reason: "r"})
		after := value[string](h, `select coalesce(requested_action, '') || state from managed_tx where tx_id = $1`, id)
		if !errors.Is(err, want) || want != nil && before != after {
			t.Errorf("%s by an operator: got %v, %s from %s; want %v", action, err, after, before, want)
		}
	}
	order(txmanager.ActionCancel, store.ErrCoordinators) // it is queued, where a cancel would take effect at once
	h.serveUntil(x.ReqID, "TRACKING/PENDING")
	order(txmanager.ActionCancel, store.ErrCoordinators)
	order(txmanager.ActionPlaceholder, store.ErrCoordinators)
	order(txmanager.ActionWait, nil)
	order(txmanager.ActionReplace, nil)
	order(txmanager.ActionRebroadcast, nil)

	// The coordinator's cancel replaces the operator's requested action.
	h.giveUp(x.ReqID)
	order(txmanager.ActionRebroadcast, store.ErrCoordinators)
	order(txmanager.ActionReplace, store.ErrCoordinators)
	order(txmanager.ActionPlaceholder, nil)
	h.mineUntil(x.ReqID, "FAILED/PLACEHOLDER")
	h.drive(x.ReqID, transfer.RolledBack)
	h.has(coin, "10")
}

// H8: a payout was queued when the backup was made and paid afterwards. No cancel refunds it:
// neither an operator's, nor the coordinator's once the database is accepted.
func TestH08APayoutThatMayHaveRunIsNotGivenBack(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.drive(x.ReqID, transfer.TargetPending)
	h.outside(0, address, onePayment)
	h.restore()
	d := store.Decision{By: store.Viewer{Caller: "ann", Operator: true}, Action: txmanager.ActionCancel, Reason: "it ran: it must not run again"}
	d.TxID = h.txID(x)
	check.Err(t, "cancel by an operator", store.ErrCoordinators)(h.db.Store.RecordDecision(t.Context(), d))
	h.accept("reconciling")
	for range 2 {
		if got := h.giveUp(x.ReqID); got.State != transfer.TargetPending || h.managed(x.ReqID) != "QUEUED" {
			t.Errorf("given up in PROTECT: got %s, %s; want it pending, QUEUED", got.State, h.managed(x.ReqID))
		}
		h.drive(x.ReqID, transfer.TargetPending)
	}
	h.has(coin, "8.5")
}

// H12: a FAILED payout is in doubt while the payer is in PROTECT, because a reorg deeper than
// finality may have paid it. It is refunded once an operator has released the payer.
func TestH12AFailureIsInDoubtInProtect(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	x, y := h.due(coin), h.due(coin)
	h.drive(x.ReqID, transfer.TargetPending)
	h.serveUntil(x.ReqID, "TRACKING/PENDING")
	h.giveUp(x.ReqID)
	h.mineUntil(x.ReqID, "FAILED/PLACEHOLDER")
	h.drive(y.ReqID, transfer.TargetPending)
	h.run(`update managed_tx set state = 'FAILED', sub_state = 'REJECTED' where request_id = $1`, y.ReqID)
	h.protect()
	for _, failed := range []transfer.Transfer{x, y} {
		h.wantUnknown(failed, payout.ErrInDoubt)
		unknown(t, h.ledger.Resolve(t.Context(), transfer.Deposit, failed.Call()), payout.ErrInDoubt)
		h.drive(failed.ReqID, transfer.TargetPending)
	}
	h.has(coin, "7")
	h.release()
	h.drive(x.ReqID, transfer.RolledBack)
	h.drive(y.ReqID, transfer.RolledBack)
	h.has(coin, "10")
}

// The recipient can be a contract that burns all its gas. The payer does not pay for that.
func TestPayoutThatBurnsGasIsRefunded(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	known := check.Value(h.Asset(t.Context(), coin.Name))(t)
	// The contract writes so far into its memory that this costs 13 million gas, and the node no time.
	burns := check.Value(contracts.Deploy(t.Context(), h.chain, accounts[2], common.FromHex("6001622774005200")))(t)
	r := h.request(coin)
	r.Payout = check.Value(payout.Prepare(families, *known, 150_000_000, burns.String(), maxGas))(t)
	x := check.Value(h.coordinator.Submit(t.Context(), r, terms))(t)
	before := h.wei(h.payer.Address())
	h.mineUntil(x.ReqID, "FAILED/REJECTED")
	check.Equal(t, "reason", h.drive(x.ReqID, transfer.RolledBack).Reason, payout.Rejected)
	h.has(coin, "10")
	if after := h.wei(h.payer.Address()); after.Cmp(before) != 0 {
		t.Errorf("the payer has %s, and had %s", after, before)
	}
}

// Payouts are off if a reorg can revert their finality: nothing is posted or given up, and accepted
// payouts wait.
func TestRevertibleFinalityTurnsPayoutsOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode          txmanager.Finality
		confirmations uint64
		ok            bool
	}{
		{txmanager.ByConfirmations, 1, true}, {txmanager.ByFinalized, 0, true}, {txmanager.ByConfirmations, 0, false}, {txmanager.BySafe, 20, false}, {"", 20, false},
	} {
		l := payout.New(payout.Options{Families: families, Finality: c.mode, Confirmations: c.confirmations})
		check.Equal(t, fmt.Sprintf("payouts by %s, %d", c.mode, c.confirmations), l.Off() == nil, c.ok)
		if c.ok {
			continue
		}
		for _, got := range []transfer.Outcome{l.Deposit(t.Context(), transfer.Call{}), l.Resolve(t.Context(), transfer.Deposit, transfer.Call{})} {
			if got.Verdict != transfer.Unknown || !errors.Is(got.Err, l.Off()) {
				t.Errorf("%s, %d: got %+v, want unknown, since payouts are off", c.mode, c.confirmations, got)
			}
		}
	}
}

// Crash points are reached in their order.
func TestCrashPointsAreReachedInOrder(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	var passed []string
	h.ledger.At = func(point string) { passed = append(passed, point) }
	x := h.due(coin)
	h.ledger.Deposit(t.Context(), x.Call())
	h.ledger.Resolve(t.Context(), transfer.Deposit, x.Call())
	check.Equal(t, "passed", fmt.Sprint(passed), fmt.Sprint(crash.Of("payout.")))
}
