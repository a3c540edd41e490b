// Package reservation reserves nonces for owners outside of the transaction manager, and records
// what the owners say about them. A deployment without hooks never calls it.
package reservation

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/protect"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// Reserve allocates a nonce for each request, or none at all. It takes released nonces
// first, the lowest first, then those from the cursor on. It waits a while for the lease. It makes
// the same checks as every allocation: the chain's counts, and a balance for one placeholder each.
//
// The error is [txmanager.ErrNotLeader], [txmanager.ErrRetryLater], [txmanager.ErrTooManyNonces], [txmanager.ErrPolicyAllowsNothing],
// [txmanager.ErrHooksForbidden], or the store's refusal by the submitter's policy. Any other error is
// unknown: a commit may have happened.
func Reserve(ctx context.Context, w *session.Service, s txmanager.Submitter, r txmanager.ReserveRequest) error {
	h, err := w.OpenWaiting(ctx, s)
	if err != nil {
		return err
	}
	defer end(ctx, h)
	w.CrashPoint("reserve.taken")
	if h.State.HooksForbidden {
		return txmanager.ErrHooksForbidden
	}
	if uint64(len(r.Requests)) > h.State.Window {
		return fmt.Errorf("%w: %d were asked for, and the window is %d", txmanager.ErrTooManyNonces, len(r.Requests), h.State.Window)
	}
	v, err := quorum.Query(ctx, h, h.AccountQuery())
	if err != nil {
		return fmt.Errorf("query the account of %s: %w", s, err)
	}
	if reason := w.Rules.RefusalReason(h.State.Bounds, txmanager.Call{Gas: gas.PlaceholderGas}); reason != "" {
		return fmt.Errorf("%w: %s", txmanager.ErrPolicyAllowsNothing, reason)
	}
	all, reason := planReservations(h, r, v)
	wr := txmanager.Commit{Reservations: all, LeaseEnd: txmanager.ReleaseAnyway}
	wr.Cursor = rules.EvaluateViolation(h.State, v) // a violation is recorded, whichever call observed it
	if err := protect.IdentifyConsumingTx(ctx, h, wr.Cursor.OpenIncident); err != nil {
		return err
	}
	if _, err := h.Commit(ctx, wr); err != nil {
		return err
	}
	w.CrashPoint("reserve.written")
	if reason != "" {
		return fmt.Errorf("%w: %s", txmanager.ErrRetryLater, reason)
	}
	return nil
}

// planReservations assigns a nonce to each request, or returns the reason why it cannot.
func planReservations(t *session.Session, r txmanager.ReserveRequest, v txmanager.ChainObservation) (all []txmanager.NewReservation, reason string) {
	w := t.State
	if reason = rules.AllocationBlocked(w, v).Reason; reason != "" {
		return nil, reason
	}
	slots := rules.FreeSlots(w, len(r.Requests))
	if len(slots) < len(r.Requests) {
		return nil, fmt.Sprintf("%d nonces are free, and %d were requested: the window is %d", len(slots), len(r.Requests), w.Window)
	}
	unsettled := w.Open
	for _, slot := range slots {
		unsettled = rules.OpenWithout(txmanager.SubmitterState{Open: unsettled}, slot.Reservation)
	}
	balance, bounds := gas.BalanceOf(v, unsettled), w.Bounds
	params := t.Rules.ClampFees(bounds, t.Rules.FirstVersionFees(txmanager.Call{}, gas.PlaceholderGas, v.Account), v.Account)
	if reason = t.Rules.TooExpensiveReason(bounds, txmanager.Call{}, params, v.Account); reason != "" {
		return nil, reason
	}
	for i, slot := range slots {
		if balance.Reserve(params) != nil {
			return nil, "balance: the account cannot pay for the open transactions and a placeholder for each nonce"
		}
		if reason = bounds.FeesUsedUpReason(params.FeeWei()); reason != "" {
			return nil, reason
		}
		bounds = bounds.WithFee(params.FeeWei())
		all = append(all, txmanager.NewReservation{Caller: r.Caller, For: r.For, From: slot.Reservation, Tx: txmanager.Tx{
			ID: r.TxIDs[i], Submitter: w.Submitter(), RequestID: r.Requests[i], State: txmanager.InFlight, Nonce: &slot.First, Gas: &params,
			Reservation: &txmanager.Reservation{State: txmanager.Reserved, Owner: r.Owner},
		}})
	}
	return all, ""
}

// ParseSignedFor parses bytes that were signed for s elsewhere. The error wraps [txmanager.ErrSignedBytes]
// if s did not sign them for its chain, or no node ever accepts them.
func ParseSignedFor(w *session.Service, s txmanager.Submitter, raw []byte) (txmanager.Unsigned, txmanager.Signed, error) {
	chain, err := w.ChainOf(s)
	if err != nil {
		return txmanager.Unsigned{}, txmanager.Signed{}, err
	}
	from, tx, signed, err := chain.ParseSigned(raw)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", txmanager.ErrSignedBytes, err)
	case from != s.Address():
		err = fmt.Errorf("%w: they are signed by %s", txmanager.ErrSignedBytes, from)
	case tx.ChainID != s.ChainID():
		err = fmt.Errorf("%w: they are for chain %d", txmanager.ErrSignedBytes, tx.ChainID)
	}
	return tx, signed, err
}

// Mark records an owner's mark under the lease, for which it waits a while. Bytes
// marked [txmanager.Used] are stored; the next lease session sends them.
//
// The error is [txmanager.ErrNotLeader], [txmanager.ErrNotOwner], [txmanager.ErrRetryLater], [txmanager.ErrSignedBytes] or the store's refusal
// by the submitter's policy. ErrRetryLater: the account cannot pay for the bytes and a placeholder, or
// no block would accept them now. ErrSignedBytes: the bytes pay nothing, or too much. Any other
// error is unknown.
func Mark(ctx context.Context, w *session.Service, s txmanager.Submitter, m txmanager.ReservationMark) error {
	h, err := w.OpenWaiting(ctx, s)
	if err != nil {
		return err
	}
	defer end(ctx, h)
	w.CrashPoint("mark.taken")
	if m.To == txmanager.Used {
		if err := checkSignedBytes(ctx, h, m); err != nil {
			return err
		}
	}
	done, err := h.Commit(ctx, txmanager.Commit{Mark: &m, LeaseEnd: txmanager.ReleaseAnyway})
	if err != nil {
		return err
	}
	w.CrashPoint("mark.written")
	if !done.Marked {
		return cmp.Or(done.Refused, txmanager.ErrNotOwner)
	}
	return nil
}

// checkSignedBytes returns why the bytes cannot be accepted, now or ever. It returns nil for bytes
// that the chain knows already. Stored bytes are never signed again at another fee, because only
// the owner knows what they do.
func checkSignedBytes(ctx context.Context, t *session.Session, m txmanager.ReservationMark) error {
	q := t.AccountQuery()
	q.Known, q.Receipts = []txmanager.Hash{m.Signed.Hash}, []txmanager.Hash{m.Signed.Hash}
	v, err := t.Query(ctx, q)
	if err != nil {
		return fmt.Errorf("query the account of %s: %w", t.State.Submitter(), err)
	}
	if rules.IsKnownToChain(txmanager.Tx{Versions: q.Known}, v) {
		return nil
	}
	if reason := t.Rules.SignedFeesReason(t.State.Bounds, *m.Gas, v.Account); reason != "" {
		return fmt.Errorf("%w: %s", txmanager.ErrSignedBytes, reason)
	}
	for _, use := range gas.FeeUses(t.State, txmanager.Commit{Mark: &m}) {
		if reason := t.State.Bounds.FeesUsedUpReason(use.AddedWei); reason != "" {
			return fmt.Errorf("%w: %s", txmanager.ErrRetryLater, reason)
		}
	}
	return checkPayable(t.Rules.Limits, *m.Gas, gas.BalanceOf(v, rules.OpenWithout(t.State, m.TxID)), v.Account)
}

// checkPayable refuses bytes that no block accepts, that exceed fees.maxFeePerGas, or that the
// available balance cannot pay for.
func checkPayable(r gas.Limits, g txmanager.GasParams, p gas.Balance, a txmanager.Account) error {
	switch limit := r.MaxFeePerGasWei; {
	case limit != nil && g.FeeCapWei.Cmp(limit) > 0:
		return fmt.Errorf("%w: they pay up to %s wei per gas, above fees.maxFeePerGas %s", txmanager.ErrSignedBytes, g.FeeCapWei, limit)
	case g.TipCapWei.Sign() == 0:
		return fmt.Errorf("%w: they pay no tip, and nodes hold no transaction that pays nothing", txmanager.ErrSignedBytes)
	}
	if reason := gas.TooExpensiveReason(txmanager.Call{FeeCapWei: g.FeeCapWei}, g, a); reason != "" {
		return fmt.Errorf("%w: %s", txmanager.ErrRetryLater, reason)
	}
	if p.Reserve(g) != nil {
		return fmt.Errorf("%w: balance: the account cannot pay for these bytes, the open transactions and a placeholder for each", txmanager.ErrRetryLater)
	}
	return nil
}

// end releases the lease unless the commit did so, which releases it even if the rerun flag is set. It then
// enqueues an advance, which does everything that is due. If it cannot enqueue, it only logs that: the
// sweep finds the due work, and the commit is still reported as done.
func end(ctx context.Context, h *session.Session) {
	if !h.Released {
		h.ReleaseAfterFailure(ctx)
		h.State.Lease.Token++
	}
	if err := h.Tasks.EnqueueAdvance(context.WithoutCancel(ctx), h.State.Submitter(), h.State.Lease.Token); err != nil {
		h.Log.WarnContext(ctx, "no advance task after a hook: the sweep finds what is due", append(h.LogAttrs(), "error", err.Error())...)
	}
}
