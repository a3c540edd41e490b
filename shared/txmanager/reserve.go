package txmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// ReserveRequest is the input of [Worker.ReserveNonces]: one nonce for each transaction, which
// represents the reservation.
type ReserveRequest struct {
	Owner    string // only the owner may mark them
	For      time.Duration
	Caller   string
	TxIDs    []string // new UUIDs
	Requests []string // one requestId for each transaction
}

// NewReservation binds a nonce to a transaction that represents a reservation.
type NewReservation struct {
	Tx     Tx // as it is to become: id, request, nonce, a placeholder's gas, the reservation's owner
	Caller string
	For    time.Duration
	From   string // the transaction of the reservation that releases the nonce; "": the cursor advances
}

// ReservationMark is the owner's one statement about a reservation.
type ReservationMark struct {
	TxID   string
	Owner  string
	To     ReservationState // [Used] or [Recyclable]
	Signed *Signed          // for Used: the bytes to send
	Call   Call             // for Used: what the bytes do
	Gas    *GasParams       // for Used: what they may cost
	Reason string           // for Recyclable
}

// ErrNotOwner reports a mark that is not accepted from this owner. The reservation is another
// owner's, expired, or marked differently; an action was requested for its transaction; or the
// database was restored. Nothing was changed.
var ErrNotOwner = errors.New("the reservation is not this owner's, or not any more")

// ErrSignedBytes reports signed bytes that do not fit the reserved nonce. Nothing was changed.
var ErrSignedBytes = errors.New("the bytes are not what the nonce was reserved for")

// ErrPolicyAllowsNothing reports a submitter whose policy allows no transaction to pay any fee.
// Nothing was changed.
var ErrPolicyAllowsNothing = errors.New("the submitter's policy allows no transaction to pay a fee")

// ErrHooksForbidden reports a submitter whose list of callers does not contain the hooks. Nothing
// was changed.
var ErrHooksForbidden = errors.New("the submitter's callers do not name \"hooks\"")

// ErrTooManyNonces reports a request for more nonces than the submitter's window has. A retry
// never helps. Nothing was changed.
var ErrTooManyNonces = errors.New("more nonces at once than the window has")

// ReserveNonces allocates a nonce for each request, or none at all. It takes released nonces
// first, the lowest first, then those from the cursor on. It waits a while for the lease. It makes
// the same checks as every allocation: the chain's counts, and a balance for one placeholder each.
//
// The error is [ErrNotLeader], [ErrNotNow], [ErrTooManyNonces], [ErrPolicyAllowsNothing],
// [ErrHooksForbidden], or the store's refusal by the submitter's policy. Any other error is
// unknown: a commit may have happened.
func (w *Service) reserveNonces(ctx context.Context, s Submitter, r ReserveRequest) error {
	h, err := w.beginSingleCommit(ctx, s)
	if err != nil {
		return err
	}
	defer h.end(ctx)
	w.reached("reserve.taken")
	if h.state.HooksForbidden {
		return ErrHooksForbidden
	}
	if uint64(len(r.Requests)) > h.state.Window {
		return fmt.Errorf("%w: %d were asked for, and the window is %d", ErrTooManyNonces, len(r.Requests), h.state.Window)
	}
	v, err := h.queryAgreed(ctx, h.accountQuery())
	if err != nil {
		return fmt.Errorf("query the account of %s: %w", s, err)
	}
	if reason := w.Rules.RefusalReason(h.state.Bounds, Call{Gas: placeholderGas}); reason != "" {
		return fmt.Errorf("%w: %s", ErrPolicyAllowsNothing, reason)
	}
	all, reason := h.planReservations(r, v)
	wr := Commit{Reservations: all, Cursor: evaluateViolation(h.state, v)} // a violation is recorded, whichever call observed it
	if err := h.identifyConsumingTx(ctx, wr.Cursor.OpenIncident); err != nil {
		return err
	}
	if _, err := h.commitAndRelease(ctx, wr); err != nil {
		return err
	}
	w.reached("reserve.written")
	if reason != "" {
		return fmt.Errorf("%w: %s", ErrNotNow, reason)
	}
	return nil
}

// planReservations assigns a nonce to each request, or returns the reason why it cannot.
func (t *singleCommitSession) planReservations(r ReserveRequest, v ChainObservation) (all []NewReservation, reason string) {
	w := t.state
	if reason = allocationBlockedReason(w, w.Open, v); reason != "" {
		return nil, reason
	}
	if seen := findViolation(w, v); seen != nil {
		return nil, seen.Description
	}
	slots := w.freeSlots(len(r.Requests))
	if len(slots) < len(r.Requests) {
		return nil, fmt.Sprintf("%d nonces are free, and %d were requested: the window is %d", len(slots), len(r.Requests), w.Window)
	}
	unsettled := w.Open
	for _, slot := range slots {
		unsettled = SubmitterState{Open: unsettled}.openWithout(slot.reservation)
	}
	balance, bounds := newAvailableBalance(v, unsettled), w.Bounds
	params := t.Rules.clampFees(bounds, t.Rules.firstVersionFees(Call{}, placeholderGas, v.Account), v.Account)
	if reason = t.Rules.tooExpensiveReason(bounds, Call{}, params, v.Account); reason != "" {
		return nil, reason
	}
	for i, slot := range slots {
		if balance.reserve(params) != nil {
			return nil, "balance: the account cannot pay for what is in flight and a placeholder for each nonce"
		}
		if reason = bounds.feesUsedUpReason(params.feeWei()); reason != "" {
			return nil, reason
		}
		bounds = bounds.withFee(params.feeWei())
		all = append(all, NewReservation{Caller: r.Caller, For: r.For, From: slot.reservation, Tx: Tx{
			ID: r.TxIDs[i], Submitter: w.submitterOf(), RequestID: r.Requests[i], State: InFlight, Nonce: &slot.first, Gas: &params,
			Reservation: &Reservation{State: Reserved, Owner: r.Owner},
		}})
	}
	return all, ""
}

// ParseSignedFor parses bytes that were signed for s elsewhere. The error wraps [ErrSignedBytes]
// if s did not sign them for its chain, or no node ever accepts them.
func (w *Service) parseSignedFor(s Submitter, raw []byte) (Unsigned, Signed, error) {
	chain, err := w.ChainOf(s)
	if err != nil {
		return Unsigned{}, Signed{}, err
	}
	from, tx, signed, err := chain.ParseSigned(raw)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrSignedBytes, err)
	case from != s.Address():
		err = fmt.Errorf("%w: they are signed by %s", ErrSignedBytes, from)
	case tx.ChainID != s.ChainID():
		err = fmt.Errorf("%w: they are for chain %d", ErrSignedBytes, tx.ChainID)
	}
	return tx, signed, err
}

// MarkReservation records an owner's mark under the lease, for which it waits a while. Bytes
// marked [Used] are stored; the next lease session sends them.
//
// The error is [ErrNotLeader], [ErrNotOwner], [ErrNotNow], [ErrSignedBytes] or the store's refusal
// by the submitter's policy. ErrNotNow: the account cannot pay for the bytes and a placeholder, or
// no block would accept them now. ErrSignedBytes: the bytes pay nothing, or too much. Any other
// error is unknown.
func (w *Service) markReservation(ctx context.Context, s Submitter, m ReservationMark) error {
	h, err := w.beginSingleCommit(ctx, s)
	if err != nil {
		return err
	}
	defer h.end(ctx)
	w.reached("mark.taken")
	if m.To == Used {
		if err := h.checkSignedBytes(ctx, m); err != nil {
			return err
		}
	}
	done, err := h.commitAndRelease(ctx, Commit{Mark: &m})
	if err != nil {
		return err
	}
	w.reached("mark.written")
	if !done.Marked {
		return cmp.Or(done.Refused, ErrNotOwner)
	}
	return nil
}

// checkSignedBytes returns why the bytes cannot be accepted, now or ever. It returns nil for bytes
// that the chain knows already. Stored bytes are never signed again at another fee, because only
// the owner knows what they do.
func (t *singleCommitSession) checkSignedBytes(ctx context.Context, m ReservationMark) error {
	q := t.accountQuery()
	q.Known, q.Receipts = []Hash{m.Signed.Hash}, []Hash{m.Signed.Hash}
	v, err := t.query(ctx, q)
	if err != nil {
		return fmt.Errorf("query the account of %s: %w", t.state.submitterOf(), err)
	}
	if isKnownToChain(Tx{Versions: q.Known}, v) {
		return nil
	}
	if reason := t.Rules.signedFeesReason(t.state.Bounds, *m.Gas, v.Account); reason != "" {
		return fmt.Errorf("%w: %s", ErrSignedBytes, reason)
	}
	for _, use := range t.state.feeUses(Commit{Mark: &m}) {
		if reason := t.state.Bounds.feesUsedUpReason(use.AddedWei); reason != "" {
			return fmt.Errorf("%w: %s", ErrNotNow, reason)
		}
	}
	return t.Rules.checkPayable(*m.Gas, newAvailableBalance(v, t.state.openWithout(m.TxID)), v.Account)
}

// checkPayable refuses bytes that no block accepts, that exceed fees.maxFeePerGas, or that the
// available balance cannot pay for.
func (r Limits) checkPayable(g GasParams, p availableBalance, a Account) error {
	switch most := r.FeeCapWei; {
	case most != nil && g.FeeCapWei.Cmp(most) > 0:
		return fmt.Errorf("%w: they pay up to %s wei per gas, above fees.maxFeePerGas %s", ErrSignedBytes, g.FeeCapWei, most)
	case g.TipCapWei.Sign() == 0:
		return fmt.Errorf("%w: they pay no tip, and nodes hold no transaction that pays nothing", ErrSignedBytes)
	}
	if reason := tooExpensiveReason(Call{FeeCapWei: g.FeeCapWei}, g, a); reason != "" {
		return fmt.Errorf("%w: %s", ErrNotNow, reason)
	}
	if p.reserve(g) != nil {
		return fmt.Errorf("%w: balance: the account cannot pay for these bytes, what is in flight and a placeholder for each", ErrNotNow)
	}
	return nil
}

// singleCommitSession is a lease session for one commit, which also releases the lease.
type singleCommitSession struct {
	*leaseSession
	written bool
}

// beginSingleCommit acquires the lease for a singleCommitSession.
func (w *Service) beginSingleCommit(ctx context.Context, s Submitter) (*singleCommitSession, error) {
	chain, err := w.ChainOf(s)
	if err != nil {
		return nil, err
	}
	taken, err := w.acquireWaiting(ctx, s)
	if err != nil {
		return nil, err
	}
	return &singleCommitSession{leaseSession: &leaseSession{Service: w, chain: withPayloadCache(chain), kind: KindAdvance, state: taken.State, began: time.Now()}}, nil
}

// commitAndRelease releases the lease in the same transaction, even if the rerun flag is set. The
// advance that follows does everything that is due.
func (h *singleCommitSession) commitAndRelease(ctx context.Context, wr Commit) (CommitResult, error) {
	wr.Lease, wr.LeaseEnd, wr.Fees = h.state.Lease, ReleaseAnyway, h.state.feeUses(wr)
	began := time.Now()
	done, err := h.Store.Commit(ctx, wr)
	if err != nil {
		return done, fmt.Errorf("write for %s: %w", h.state.submitterOf(), err)
	}
	h.noteCommit(ctx, began, wr, done)
	h.written, h.state.Lease.Token = true, done.Token
	return done, nil
}

// end releases the lease unless a commit did so, and enqueues an advance. If it cannot enqueue, it
// only logs that: the sweep finds the due work, and the commit is still reported as done.
func (h *singleCommitSession) end(ctx context.Context) {
	if !h.written {
		h.releaseAfterFailure(ctx)
		h.state.Lease.Token++
	}
	if err := h.Tasks.EnqueueAdvance(context.WithoutCancel(ctx), h.state.submitterOf(), h.state.Lease.Token); err != nil {
		h.Log.WarnContext(ctx, "no advance task after a hook: the sweep finds what is due", append(h.logAttrs(), "error", err.Error())...)
	}
}
