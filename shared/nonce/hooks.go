package nonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Reserve is what [Worker.Reserve] is asked for: one nonce for each transaction,
// which stands for the reservation and is named by its request.
type Reserve struct {
	Owner    string // alone may mark them
	For      time.Duration
	Caller   string
	TxIDs    []string // new UUIDs
	Requests []string // one each, as an intent has one
}

// Booking binds a nonce to a transaction that stands for a reservation.
type Booking struct {
	Tx     Tx // to be: id, request, nonce, the gas of a placeholder, the reservation's owner
	Caller string
	For    time.Duration
	From   string // the transaction of the reservation that gives the nonce up; "": the cursor moves
}

// Mark is what the owner of a reservation says of it, once.
type Mark struct {
	TxID   string
	Owner  string
	To     ReservationState // [Used] or [Recyclable]
	Signed *Signed          // for Used: what is to be sent
	Call   Call             // for Used: what that does
	Gas    *GasParams       // for Used: what that may cost
	Reason string           // for Recyclable
}

// ErrNotOwner reports a mark by somebody who is not the reservation's owner, or not any
// more: its time is over, it was marked otherwise, somebody has decided about its
// transaction, or the database is a restored one. Nothing was changed.
var ErrNotOwner = errors.New("the reservation is not this owner's, or not any more")

// ErrBytes reports signed bytes that are not what a nonce was reserved for. Nothing was
// changed.
var ErrBytes = errors.New("the bytes are not what the nonce was reserved for")

// ErrBounds reports a submitter whose policy lets no transaction pay a fee at all. Nothing
// was changed.
var ErrBounds = errors.New("the submitter's policy lets nothing pass")

// ErrNoHooks reports a submitter whose callers do not name the hooks. Nothing was changed.
var ErrNoHooks = errors.New("the submitter's callers do not name \"hooks\"")

// ErrTooMany reports more reservations at once than the submitter's window has nonces:
// trying again never helps. Nothing was changed.
var ErrTooMany = errors.New("more nonces at once than the window has")

// Reserve allocates a nonce for each request at once, or none: those that were given
// back first, the lowest first, then those from the cursor on. It takes the lease,
// waiting for it for a while, and asks the chain what every allocation asks: its
// counts, and that the account can pay for a placeholder each.
//
// The error is [ErrNotLeader], [ErrNotNow], [ErrTooMany], [ErrBounds], [ErrNoHooks] or the book's refusal by the
// submitter's policy; any other is unknown: a commit may have happened.
func (w *Worker) Reserve(ctx context.Context, s Submitter, r Reserve) error {
	h, err := w.hook(ctx, s)
	if err != nil {
		return err
	}
	defer h.leave(ctx)
	w.pass("reserve.taken")
	if h.work.NoHooks {
		return ErrNoHooks
	}
	if uint64(len(r.Requests)) > h.work.Window {
		return fmt.Errorf("%w: %d were asked for, and the window is %d", ErrTooMany, len(r.Requests), h.work.Window)
	}
	v, err := h.lookAgreed(ctx, h.accountOnly())
	if err != nil {
		return fmt.Errorf("look at the account of %s: %w", s, err)
	}
	if reason := w.Rules.Refuse(h.work.Bounds, Call{Gas: placeholderGas}); reason != "" {
		return fmt.Errorf("%w: %s", ErrBounds, reason)
	}
	all, reason := h.bookings(r, v)
	wr := Write{Reserve: all, Cursor: suspect(h.work, v)} // foreign use that is seen is seen, whoever looked
	if err := h.identify(ctx, wr.Cursor.Protect); err != nil {
		return err
	}
	if _, err := h.write(ctx, wr); err != nil {
		return err
	}
	w.pass("reserve.written")
	if reason != "" {
		return fmt.Errorf("%w: %s", ErrNotNow, reason)
	}
	return nil
}

// bookings finds a nonce for each request, or says why there is none.
func (t *tenure) bookings(r Reserve, v View) (all []Booking, reason string) {
	w := t.work
	if reason = mayAllocate(w, w.Unsettled, v); reason != "" {
		return nil, reason
	}
	if seen := amiss(w, v); seen != nil {
		return nil, seen.What
	}
	seats := w.seats(len(r.Requests))
	if len(seats) < len(r.Requests) {
		return nil, fmt.Sprintf("%d nonces can be had, of %d asked for: the window is %d", len(seats), len(r.Requests), w.Window)
	}
	unsettled := w.Unsettled
	for _, seat := range seats {
		unsettled = Work{Unsettled: unsettled}.without(seat.from)
	}
	purse, bounds := newPurse(v, unsettled), w.Bounds
	params := t.Rules.within(bounds, t.Rules.offer(Call{}, placeholderGas, v.Account), v.Account)
	if reason = t.Rules.tooDear(bounds, Call{}, params, v.Account); reason != "" {
		return nil, reason
	}
	for i, seat := range seats {
		if purse.take(params) != nil {
			return nil, "balance: the account cannot pay for what is in flight and a placeholder for each nonce"
		}
		if reason = bounds.usedUp(params.feeWei()); reason != "" {
			return nil, reason
		}
		bounds = bounds.used(params.feeWei())
		all = append(all, Booking{Caller: r.Caller, For: r.For, From: seat.from, Tx: Tx{
			ID: r.TxIDs[i], Submitter: w.submitter(), RequestID: r.Requests[i], State: InFlight, Nonce: &seat.first, Gas: &params,
			Reservation: &Reservation{State: Reserved, Owner: r.Owner},
		}})
	}
	return all, ""
}

// OpenFor reads bytes that somebody signed for s elsewhere. The error wraps
// [ErrBytes] where s has not signed them, for its chain, or no node ever takes them.
func (w *Worker) OpenFor(s Submitter, raw []byte) (Unsigned, Signed, error) {
	chain, err := w.Chain(s)
	if err != nil {
		return Unsigned{}, Signed{}, err
	}
	from, tx, signed, err := chain.Open(raw)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrBytes, err)
	case from != s.Address():
		err = fmt.Errorf("%w: they are signed by %s", ErrBytes, from)
	case tx.ChainID != s.ChainID():
		err = fmt.Errorf("%w: they are for chain %d", ErrBytes, tx.ChainID)
	}
	return tx, signed, err
}

// Mark makes an owner's mark true, under the lease, which it waits for for a while.
// Bytes that are marked [Used] are stored, and sent by whoever looks next.
//
// The error is [ErrNotLeader], [ErrNotOwner], [ErrNotNow] (the account cannot pay for
// the bytes and a placeholder, or no block would take them now), [ErrBytes] (they pay
// nothing, or too much) or the book's refusal by the submitter's policy. Any other is
// unknown.
func (w *Worker) Mark(ctx context.Context, s Submitter, m Mark) error {
	h, err := w.hook(ctx, s)
	if err != nil {
		return err
	}
	defer h.leave(ctx)
	w.pass("mark.taken")
	if m.To == Used {
		if err := h.takes(ctx, m); err != nil {
			return err
		}
	}
	done, err := h.write(ctx, Write{Mark: &m})
	if err != nil {
		return err
	}
	w.pass("mark.written")
	if !done.Marked {
		return cmp.Or(done.Refused, ErrNotOwner)
	}
	return nil
}

// takes says why bytes cannot be taken now, or ever; nil where they can, and where the
// chain knows them already. What is stored is never priced anew: nobody but the owner
// knows what it does.
func (t *tenure) takes(ctx context.Context, m Mark) error {
	q := t.accountOnly()
	q.Known, q.Receipts = []Hash{m.Signed.Hash}, []Hash{m.Signed.Hash}
	v, err := t.look(ctx, q)
	if err != nil {
		return fmt.Errorf("look at the account of %s: %w", t.work.submitter(), err)
	}
	if settledBy(Tx{Versions: q.Known}, v) {
		return nil
	}
	if reason := t.Rules.signedWithin(t.work.Bounds, *m.Gas, v.Account); reason != "" {
		return fmt.Errorf("%w: %s", ErrBytes, reason)
	}
	for _, use := range t.work.feesOf(Write{Mark: &m}) {
		if reason := t.work.Bounds.usedUp(use.AddedWei); reason != "" {
			return fmt.Errorf("%w: %s", ErrNotNow, reason)
		}
	}
	return t.Rules.payable(*m.Gas, newPurse(v, t.work.without(m.TxID)), v.Account)
}

// payable refuses bytes that no block takes, that pay more than anything else here, or
// that the purse cannot pay for.
func (r Rules) payable(g GasParams, p purse, a Account) error {
	switch most := r.FeeCapWei; {
	case most != nil && g.FeeCapWei.Cmp(most) > 0:
		return fmt.Errorf("%w: they pay up to %s wei per gas, above fees.maxFeePerGas %s", ErrBytes, g.FeeCapWei, most)
	case g.TipCapWei.Sign() == 0:
		return fmt.Errorf("%w: they pay no tip, and nodes hold no transaction that pays nothing", ErrBytes)
	}
	if reason := tooDear(Call{FeeCapWei: g.FeeCapWei}, g, a); reason != "" {
		return fmt.Errorf("%w: %s", ErrNotNow, reason)
	}
	if p.take(g) != nil {
		return fmt.Errorf("%w: balance: the account cannot pay for these bytes, what is in flight and a placeholder for each", ErrNotNow)
	}
	return nil
}

// accountOnly asks for the account, and for what shows a premise broken.
func (t *tenure) accountOnly() Look {
	q := Look{Submitter: t.work.submitter(), Account: true, Watch: t.work.watched()}
	if len(t.work.Unsettled) > 0 {
		q.Known = t.work.Unsettled[0].Versions
		q.Receipts = q.Known
	}
	return q
}

// hook is a tenure for one write, which gives the lease back.
type hook struct {
	tenure
	written bool
}

// hook begins one.
func (w *Worker) hook(ctx context.Context, s Submitter) (*hook, error) {
	chain, err := w.Chain(s)
	if err != nil {
		return nil, err
	}
	taken, err := w.takeWaiting(ctx, s)
	if err != nil {
		return nil, err
	}
	return &hook{tenure: tenure{Worker: w, chain: remembering(chain), kind: KindAdvance, work: taken.Work, began: time.Now()}}, nil
}

// write gives the lease back in the same transaction, whatever the wake mark says: the
// advance that follows looks at everything.
func (h *hook) write(ctx context.Context, wr Write) (Written, error) {
	wr.Lease, wr.Release, wr.Fees = h.work.Lease, Abandon, h.work.feesOf(wr)
	began := time.Now()
	done, err := h.Book.Write(ctx, wr)
	if err != nil {
		return done, fmt.Errorf("write for %s: %w", h.work.submitter(), err)
	}
	h.wrote(ctx, began, wr, done)
	h.written, h.work.Lease.Token = true, done.Token
	return done, nil
}

// leave gives the lease back where that is not known to have been done, and asks for a
// look. Where nobody can be asked the sweep finds what is due, so that what is written
// is never answered as if it were not.
func (h *hook) leave(ctx context.Context) {
	if !h.written {
		h.giveUp(ctx)
		h.work.Lease.Token++
	}
	if err := h.Wake.Advance(context.WithoutCancel(ctx), h.work.submitter(), h.work.Lease.Token); err != nil {
		h.Log.WarnContext(ctx, "no advance task after a hook: the sweep finds what is due", append(h.attrs(), "error", err.Error())...)
	}
}
